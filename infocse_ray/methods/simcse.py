"""Unsupervised SimCSE (Gao, Yao and Chen 2021): the same sentence twice, only dropout differs.

1. Both views are encoded with dropout on.
2. In training a linear layer and tanh follow the pooled vector, as BERT's pooler, with BERT's first weights; it is
   dropped afterwards.
3. View 1 is to find view 2 among those of the batch, one way, by cosine at temperature 0.05.

Published: CLS pooling, dropout 0.1, batch 64, learning rate 3e-5 (base), 32 tokens, one epoch. Deviations: batch,
learning rate, steps and length are the run's (`train.*`, `encoder.max_length`), for one harness trains all; the layer
has a learning rate of its own; an encoder that comes with a pooling keeps it; where train.similarity is the cosine, the
layer gets vectors of length 1; views of the anchor's own document are no negatives, as nowhere in this project unless a
method asks for it.
"""

from __future__ import annotations

from typing import Any

import torch

from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.contrast import Contrast, Encoded, own, unit
from infocse_ray.methods.first_weights import linear
from infocse_ray.methods.method import TwoViews, dropout_of
from infocse_ray.settings import SimCSESettings


class SimCSE(TwoViews):
    """A sentence and itself under other dropout."""

    pooling = "cls"
    head_is_new = True

    def __init__(self, section: SimCSESettings, spec: EncoderSpec) -> None:
        self.section, self.dimension = section, spec.dimension
        self.dropout = dropout_of(section.dropout, "simcse", spec)
        self.longest = spec.sentence_tokens

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        return ("simcse", self.section)

    def head(self, encoder: SentenceEncoder | None = None) -> torch.nn.Module:
        """Linear and tanh, on every vector."""
        return torch.nn.Sequential(linear(self.dimension, self.dimension), torch.nn.Tanh())

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """Rows are the first views, columns the second."""
        projected = encoded._replace(vectors=head(encoded.vectors))
        first, second = (unit(projected.side(projected.where(label))) for label in (0, 1))
        return Contrast(first, second, own(len(first.texts), first.texts.device), self.section.temperature)
