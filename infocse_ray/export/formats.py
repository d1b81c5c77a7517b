"""The formats by name, and an exported graph in the place of an encoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch

from infocse_ray.encoder.graph import PROMPT
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.export import onnx_format, openvino_format
from infocse_ray.runtime.libraries import check_installed

Run = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Sentence vectors, float32 [batch, d], of input_ids and attention_mask, int64 [batch, sequence] each."""


class GraphFormat(Protocol):
    """What a format's file has."""

    @property
    def PACKAGES(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def EXTRA(self) -> str: ...  # noqa: D102

    def file_name(self, int8: bool) -> str: ...  # noqa: D102
    def write(self, program: torch.export.ExportedProgram, folder: Path, int8: bool) -> None: ...  # noqa: D102
    def Session(self, file: Path, threads: int | None = None) -> Run: ...  # noqa: D102


FORMATS: dict[Literal["onnx", "openvino"], GraphFormat] = {"onnx": onnx_format, "openvino": openvino_format}


def check_packages(name: Literal["onnx", "openvino"], setting: str = "format") -> None:
    """Refuse a format whose packages aren't here.

    Args:
        name: of the format.
        setting: what the error message says it was named by.

    Raises:
        ValueError: one is missing.
    """
    check_installed(FORMATS[name].PACKAGES, FORMATS[name].EXTRA, f"{setting} = {name}")


class GraphEncoder:
    """An encoder whose vectors come from a graph; all else, such as its tokens, is the original's."""

    def __init__(self, original: SentenceEncoder, run: Run) -> None:
        """Put a graph in the encoder's place.

        Args:
            original: what was exported.
            run: the graph.
        """
        self._original, self._run = original, run

    def __getattr__(self, name: str) -> object:
        return getattr(self._original, name)

    @property
    def max_length(self) -> int:
        """Tokens that texts are cut to, which whoever embeds whole texts changes for a while."""
        return self._original.max_length

    @max_length.setter
    def max_length(self, length: int) -> None:
        self._original.max_length = length

    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, pooled: torch.Tensor | None = None
    ) -> torch.Tensor:
        """As `SentenceEncoder.forward`."""
        if pooled is not None:
            attention_mask = torch.where(pooled == 0, PROMPT * attention_mask, attention_mask)
        return torch.from_numpy(self._run(input_ids.numpy(), attention_mask.numpy()))
