"""An encoder whose backbone OpenVINO computes, on CPUs: what comes after the backbone stays here, in fp32.

1. The backbone is captured as a graph, converted, perhaps with products in 8 bits, and written as one file.
2. Whoever embeds puts that graph in the backbone's place; tokens, prompts, pooling, whitening are the encoder's own.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from infocse_ray.encoder.graph import INPUTS, TOKENS, quiet, traced
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.storage.checksums import read_sealed, sealed
from infocse_ray.storage.folder import Storage

EXTRA = "openvino"
PACKAGES = {False: ("openvino",), True: ("openvino", "nncf")}
"""That are needed, without and with products in 8 bits."""

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


def converted(encoder: SentenceEncoder) -> Any:
    """The backbone as a model of OpenVINO's.

    Args:
        encoder: in evaluation mode, in fp32, on the CPU.

    Raises:
        ValueError: the backbone computes what can't be traced.
    """
    program = traced(encoder, sentences=False)
    with quiet():
        model = library().convert_model(program)
        for name, port in zip(INPUTS, model.inputs, strict=True):
            port.get_tensor().set_names({name})
        model.outputs[0].get_tensor().set_names({TOKENS})
    return model


def quantised(model: Any, batches: list[list[np.ndarray]], only_square: bool) -> Any:
    """The model with products in 8 bits, of weights and of activations.

    Embeddings stay as they are, and matrices that narrow: what comes to these from inside a feed-forward layer has a
    few values far from all others, which 8 bits tell badly.

    Args:
        model: of `converted`, which is not changed.
        batches: input_ids and attention_mask, int64 [b, length] each, by which the activations' ranges are found.
        only_square: leave matrices that widen as they are, too.
    """
    import nncf

    kept = [op for op in model.get_ops() if _kept(op, only_square)]
    with quiet():
        return nncf.quantize(
            model.clone(),
            nncf.Dataset(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(batches),
            ignored_scope=nncf.IgnoredScope(names=[op.get_friendly_name() for op in kept], validate=False),
        )


def _kept(operation: Any, only_square: bool) -> bool:
    """Whether it is one that stays in the precision it has."""
    kind = operation.get_type_name()
    if kind != "MatMul":
        return kind == "Gather"
    shape = operation.input_value(1).get_partial_shape()
    if shape.is_dynamic or len(shape) != 2:
        return False
    rows, columns = shape.to_shape()
    into, out = (columns, rows) if operation.get_attributes()["transpose_b"] else (rows, columns)
    return out < into or (only_square and out > into)


def write_backbone(model: Any, file: Storage) -> int:
    """Write a model, whole or not at all, with its digest.

    Args:
        model: of `converted` or `quantised`.
        file: what is written.

    Returns:
        Its bytes.
    """
    with quiet(), tempfile.TemporaryDirectory() as temporary:
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
