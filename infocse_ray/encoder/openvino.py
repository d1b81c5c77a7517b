"""An encoder whose backbone OpenVINO computes, on CPUs: what comes after the backbone stays here, in fp32.

1. The backbone is captured as a graph, converted, perhaps with weights in 8 bits, and written as one file.
2. Whoever embeds puts that graph in the backbone's place; tokens, prompts, pooling, whitening are the encoder's own.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from infocse_ray.encoder.graph import INPUTS, TOKENS, quiet, traced
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.storage.checksums import read_sealed, sealed
from infocse_ray.storage.folder import Storage

EXTRA = "openvino"
PACKAGES = {False: ("openvino",), True: ("openvino", "nncf")}
"""That are needed, without and with weights in 8 bits."""

_KERNELS_KEPT = 64
"""A kernel is compiled for every shape of batch, and by default thousands are kept."""


def library() -> ModuleType:
    """OpenVINO, which, like NNCF, would tell its makers over the network of each use, had it this package."""
    sys.modules.setdefault("openvino_telemetry", None)  # pyright: ignore[reportArgumentType]
    import openvino

    return openvino


@functools.cache
def core() -> Any:
    """The process's one: each puts a stack for signal handlers into place, and as it ends the one that it had found.

    Had that been another's that ended before, the next signal would end the process.
    """
    return library().Core()


def version() -> str:
    """OpenVINO's."""
    return library().get_version()


def write_backbone(encoder: SentenceEncoder, file: Storage, int8: bool) -> int:
    """Convert the backbone.

    Args:
        encoder: in evaluation mode, in fp32, on the CPU.
        file: what is written, whole or not at all, with its digest.
        int8: with weights in 8 bits, a scale a row.

    Returns:
        Its bytes.

    Raises:
        ValueError: the backbone computes what can't be traced.
    """
    program = traced(encoder, sentences=False)
    with quiet(), tempfile.TemporaryDirectory() as temporary:
        model = library().convert_model(program)
        for name, port in zip(INPUTS, model.inputs, strict=True):
            port.get_tensor().set_names({name})
        model.outputs[0].get_tensor().set_names({TOKENS})
        if int8:
            import nncf

            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
        target = Path(temporary) / "graph.xml"
        # By default weights would be rounded to 16 bits.
        library().save_model(model, target, compress_to_fp16=False)
        graph, weights = target.read_bytes(), target.with_suffix(".bin").read_bytes()
    whole = sealed(len(graph).to_bytes(8, "little") + graph + weights)
    file.write_bytes(whole)
    return len(whole)


class _Backbone(nn.Module):
    """A graph in a backbone's place."""

    def __init__(self, config: Any, graph: Any) -> None:
        super().__init__()
        self.config, self._graph = config, graph
        self.place = nn.Parameter(torch.empty(0), requires_grad=False)
        """By which an encoder is asked for its device."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> SimpleNamespace:
        """Token vectors, in memory that the next call writes to."""
        inputs = dict(zip(INPUTS, (input_ids.numpy(), attention_mask.numpy()), strict=True))
        return SimpleNamespace(last_hidden_state=torch.from_numpy(self._graph(inputs)[TOKENS]))


def with_backbone(encoder: SentenceEncoder, file: Storage, bf16: bool) -> SentenceEncoder:
    """The encoder for embedding, with the graph in its backbone's place; the one that is given gives its own up.

    Args:
        encoder: on the CPU.
        file: of `write_backbone`.
        bf16: multiply in bf16; else in fp32.

    Raises:
        DamagedFile: the file isn't as it was written.
    """
    whole = read_sealed(file)
    start = 8 + int.from_bytes(whole[:8], "little")
    config = {
        "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        # Two actors of a machine would both be pinned to its first cores.
        "ENABLE_CPU_PINNING": False,
        "CPU_RUNTIME_CACHE_CAPACITY": _KERNELS_KEPT,
    }
    with quiet():
        model = core().read_model(whole[8:start], whole[start:])
        graph = core().compile_model(model, "CPU", config)
    encoder.backbone = _Backbone(encoder.backbone.config, graph)
    return encoder.requires_grad_(False).eval()
