"""An encoder as one graph: token ids in, token vectors and sentence vectors out.

Whoever runs the graph alone takes `sentence_embedding`, which has pooling, Dense modules, whitening and normalisation
in it. The backends of sentence-transformers take `last_hidden_state` and do the rest by the modules of the folder, as
they would with a backbone alone.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

import torch
from torch import nn

from infocse_ray.encoder.kernels import with_finite_masks
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.tokenizer import first_line

INPUTS = ("input_ids", "attention_mask")
"""int64 [batch, sequence] each. Where prompts aren't pooled, a prompt's tokens have 2 in the mask."""
TOKENS, SENTENCES = "last_hidden_state", "sentence_embedding"
"""Outputs: float32 [batch, sequence, hidden] and [batch, d]."""

PROMPT = 2
"""In the attention mask: a token that others see and that isn't pooled."""


class _Graph(nn.Module):
    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen, pooled = attention_mask, attention_mask
        if not self.encoder.include_prompt:
            seen, pooled = (attention_mask > 0).to(torch.int64), (attention_mask == 1).to(torch.int64)
        hidden = self.encoder.hidden(input_ids, seen)
        return hidden, self.encoder.pool(hidden, pooled)


class _Tokens(nn.Module):
    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.encoder.hidden(input_ids, attention_mask)


def traced(encoder: SentenceEncoder, sentences: bool = True) -> torch.export.ExportedProgram:
    """The encoder's computation, for any number of texts of any length.

    Args:
        encoder: in evaluation mode, in fp32, on the CPU.
        sentences: with the sentence vectors; else of the backbone alone, whose only output is token vectors.

    Raises:
        ValueError: its backbone computes what can't be traced.
    """
    # Neither 1 nor equal to each other: sizes that are would be taken for fixed ones.
    ids = torch.full((3, 7), encoder.pad_id)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    graph = _Graph(encoder) if sentences else _Tokens(encoder)
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad(), quiet(), with_finite_masks(encoder.backbone.config):
        try:
            return torch.export.export(graph.eval(), (ids, mask), dynamic_shapes=(free, free))
        except Exception as error:  # whatever export or the backbone's own code raises: of torch it has no one class
            kind, reason = encoder.backbone.config.model_type, first_line(error)
            raise ValueError(f"model: a {kind} backbone can't be made a graph by torch.export: {reason}") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what exporters print and warn of, which is about their own insides."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
