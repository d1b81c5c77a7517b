"""ONNX: written by torch's exporter, quantised and run by ONNX Runtime."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infocse_ray.encoder.graph import INPUTS, SENTENCES, TOKENS, quiet
from infocse_ray.encoder.tokenizer import first_line

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
EXTRA = "onnx"


def file_name(int8: bool) -> str:
    """Where sentence-transformers looks for the graph in an encoder's folder."""
    return f"onnx/{'model_qint8.onnx' if int8 else 'model.onnx'}"


def write(program: torch.export.ExportedProgram, folder: Path, int8: bool) -> None:
    """Write the graph.

    Args:
        program: of `traced`.
        folder: of the encoder.
        int8: with the weights of the backbone's matrices and embeddings in 8 bits.

    Raises:
        ValueError: it computes what torch's exporter can't write.
    """
    target = folder / file_name(int8)
    target.parent.mkdir(parents=True, exist_ok=True)
    if int8:
        with tempfile.TemporaryDirectory() as temporary:
            whole = Path(temporary) / "model.onnx"
            _write(program, whole)
            _quantise(whole, target)
    else:
        _write(program, target)


def _write(program: torch.export.ExportedProgram, target: Path) -> None:
    names = {0: "batch", 1: "sequence"}
    with quiet():
        try:
            written = torch.onnx.export(
                program,
                (),
                input_names=list(INPUTS),
                output_names=[TOKENS, SENTENCES],
                dynamic_shapes=(names, names),
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            # Its own first line says, in colours, at which step it failed.
            reason = first_line(error.__cause__ or error)
            raise ValueError(
                f"format = onnx: torch's exporter can't write this backbone: {reason}; use openvino"
            ) from error
        assert written is not None
        written.save(target)


def _quantise(whole: Path, target: Path) -> None:
    """Weights to 8 bits, a scale a column; activations as they come, when the graph runs.

    What comes after the token vectors stays in fp32: it is small, and whitening would enlarge the rounding.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready = whole.with_name("ready.onnx")
    large = sum(file.stat().st_size for file in whole.parent.iterdir()) > onnx.checker.MAXIMUM_PROTOBUF
    with quiet():
        # Shapes say which matrices are weights; ONNX Runtime optimises the graph itself when it loads it.
        quant_pre_process(whole, ready, skip_optimization=True, skip_symbolic_shape=True, save_as_external_data=large)
        after = _after_tokens(onnx.load(ready, load_external_data=False))
        quantize_dynamic(
            ready,
            target,
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,  # 7 bits: without VNNI a pair of products of 8 bits overflows 16, silently
            nodes_to_exclude=after,
            use_external_data_format=large,
        )


def _after_tokens(model: Any) -> list[str]:
    """Names of the nodes between the token vectors and the sentence vectors."""
    makers = {output: node for node in model.graph.node for output in node.output}
    todo, names = [SENTENCES], set()
    while todo:
        node = makers.get(todo.pop())
        if node is not None and TOKENS not in node.output and node.name not in names:
            names.add(node.name)
            todo += node.input
    return sorted(names)


class Session:
    """A graph, ready to run on the CPU."""

    def __init__(self, file: Path, threads: int | None = None) -> None:
        """Load it.

        Args:
            file: the graph.
            threads: that it runs on; None: those that torch takes.
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def __call__(self, input_ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
        """Sentence vectors, float32 [batch, d], of two int64 [batch, sequence]."""
        inputs = dict(zip(INPUTS, (input_ids, attention_mask), strict=True))
        return self._session.run([SENTENCES], inputs)[0]  # pyright: ignore[reportReturnType]
