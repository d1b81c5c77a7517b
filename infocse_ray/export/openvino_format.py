"""OpenVINO: converted by its own converter, weights compressed by NNCF."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from infocse_ray.encoder.graph import INPUTS, SENTENCES, TOKENS, quiet
from infocse_ray.encoder.openvino import core, library

PACKAGES = ("openvino", "nncf")
EXTRA = "openvino"


def file_name(int8: bool) -> str:
    """Where sentence-transformers looks for the graph in an encoder's folder; the weights are beside it."""
    return f"openvino/{'openvino_model_qint8.xml' if int8 else 'openvino_model.xml'}"


def write(program: torch.export.ExportedProgram, folder: Path, int8: bool) -> None:
    """Write the graph.

    Args:
        program: of `traced`.
        folder: of the encoder.
        int8: with weights in 8 bits.
    """
    openvino = library()
    with quiet():
        model = openvino.convert_model(program)
        for name, port in zip(INPUTS, model.inputs, strict=True):
            port.get_tensor().set_names({name})
        for name, port in zip((TOKENS, SENTENCES), model.outputs, strict=True):
            port.get_tensor().set_names({name})
        if int8:
            import nncf

            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
        target = folder / file_name(int8)
        target.parent.mkdir(parents=True, exist_ok=True)
        # By default weights would be rounded to 16 bits.
        openvino.save_model(model, target, compress_to_fp16=False)


class Session:
    """A graph, ready to run on the CPU, in the precision that OpenVINO chooses for it (bf16 where that is native)."""

    def __init__(self, file: Path, threads: int | None = None) -> None:
        """Load it.

        Args:
            file: the graph.
            threads: that it runs on; None: what OpenVINO finds best.
        """
        config = {} if threads is None else {"INFERENCE_NUM_THREADS": threads}
        with quiet():
            self._model = core().compile_model(file, "CPU", config)

    def __call__(self, input_ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
        """Sentence vectors, float32 [batch, d], of two int64 [batch, sequence]."""
        # The result is the model's own memory, which the next call writes to.
        return self._model(dict(zip(INPUTS, (input_ids, attention_mask), strict=True)))[SENTENCES].copy()
