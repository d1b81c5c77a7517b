"""Mirror-BERT (Liu et al. 2021): the same sentence twice, a few characters of one masked, under other dropout.

1. View 2 of a sentence of 30 characters or more has 5 characters in a row replaced by one mask token.
2. Both views are encoded with dropout 0.1.
3. NT-Xent over the 2B views, by cosine at temperature 0.04.

Published: mean pooling, 10,000 sentences, batch 200, learning rate 2e-5, 50 tokens, weight decay 0.01. Deviations: the
run's batch, steps, length and learning rate, no weight decay, all sentences; the span is a span of characters of the
tokens, and a token of which it covers a part goes as a whole, because text is tokenised once and not again in training;
of word pieces each that begins a word, a punctuation mark too, counts with a space before it, the first as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from infocse_ray.corpus.tokens import Tokens, offsets_of, places
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.chance import below, uniforms
from infocse_ray.methods.contrast import Contrast, Encoded, two_sided
from infocse_ray.methods.method import TwoViews, dropout_of
from infocse_ray.settings import MirrorBERTSettings


class MirrorBERT(TwoViews):
    """A sentence and itself with a span masked."""

    def __init__(self, section: MirrorBERTSettings, spec: EncoderSpec) -> None:
        """Check that the encoder can mask, and that the views differ.

        Raises:
            ValueError: it has no mask token, or they don't.
        """
        if spec.mask is None:
            raise ValueError(
                "train.method = mirror_bert: the encoder has no mask token with a vector; use another method"
            )
        if not section.span and not section.dropout:
            raise ValueError(
                "mirror_bert.span = 0, mirror_bert.dropout = 0: both views are the sentence unchanged; raise either"
            )
        self.section, self.mask, self.characters = section, spec.mask, spec.characters
        self.dropout = dropout_of(section.dropout, "mirror_bert", spec)
        self.longest = spec.sentence_tokens

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        return ("mirror_bert", self.section)

    def augment(self, texts: Tokens, labels: np.ndarray, seeds: np.ndarray) -> Tokens:
        """Mask a span of each second view."""
        ends = offsets_of(self.characters[texts.values])
        before, total = ends[texts.offsets[:-1]], np.diff(ends[texts.offsets])
        span = self.section.span
        changed = np.flatnonzero((labels == 1) & (total >= max(1, self.section.shortest)) & (span > 0))
        room = np.maximum(1, total[changed] - span + 1)
        start = before[changed] + below(uniforms(seeds[changed], 1)[:, 0], room)
        # Of each the first token, and the last, of which the span covers a part.
        first = np.searchsorted(ends[1:], start, side="right")
        last = np.searchsorted(ends[1:], np.minimum(start + span, before[changed] + total[changed]) - 1, side="right")
        values = texts.values.copy()
        values[first] = self.mask
        gone = np.zeros(len(values), bool)
        gone[places(first + 1, last - first)] = True
        lengths = texts.lengths
        lengths[changed] -= last - first
        return Tokens(values[~gone], offsets_of(lengths))

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """NT-Xent between the two views."""
        first, second = (encoded.side(encoded.where(label)) for label in (0, 1))
        return two_sided(first, second, self.section.temperature)
