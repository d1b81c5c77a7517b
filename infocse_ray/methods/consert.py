"""ConSERT (Yan et al. 2021): the same sentence twice, each view changed at the embedding layer.

1. Feature cutoff: the same int(rate * d) dimensions of all the sentence's token embeddings become 0, without rescaling.
   Token cutoff: int(rate * tokens) tokens' embeddings do. Dropout: single elements do, each with probability `rate`.
2. Shuffle: the tokens' positions are permuted, which changes the order a transformer sees.
3. NT-Xent with within-view negatives, both ways, by cosine at temperature 0.1. The encoder's own dropout is off.

Published: feature cutoff 0.2 and shuffle; mean pooling in training; batch 96, learning rate 5e-7, 64 tokens, 10 epochs,
warm-up over 10 %, loss times 0.15. Deviations: the run's batch, steps, length and constant learning rate; the factor is
left out, for Adam's steps do not depend on it; the mean over both directions instead of their sum, likewise; with
`dropout` the number of elements is chance, not int(rate * elements); no views of the same document as negatives; at
evaluation the vector is the last layer's, pooled as in training, not the average of the last two layers', so that the
exported folder says what it computes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.chance import mixed, ranks, uniforms
from infocse_ray.methods.contrast import Contrast, Encoded, two_sided
from infocse_ray.methods.method import TwoViews
from infocse_ray.settings import ConSERTSettings


class ConSERT(TwoViews):
    """A sentence and itself, cut off and shuffled."""

    dropout = 0.0

    def __init__(self, section: ConSERTSettings, spec: EncoderSpec) -> None:
        """Check that the views differ and that the encoder can do what makes them differ.

        Raises:
            ValueError: it can't.
        """
        changes = {section.first, section.second}
        where = f"consert.first = {section.first}, consert.second = {section.second}"
        if changes == {"none"}:
            raise ValueError(f"{where}: both views are the sentence unchanged; choose an augmentation for one")
        if not spec.can_cut and changes - {"shuffle", "none"}:
            raise ValueError(
                f"{where}: a {spec.kind} encoder has no embedding layer that can be cut off; set them to shuffle "
                "and none"
            )
        if not spec.can_shuffle and "shuffle" in changes:
            raise ValueError(
                f"{where}: this {spec.kind} encoder takes no positions to shuffle; set it to token_cutoff or dropout"
            )
        self.section, self.dimension = section, spec.embedding
        self.longest = spec.sentence_tokens

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        return ("consert", self.section)

    def inputs(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: np.ndarray, seeds: np.ndarray
    ) -> dict[str, torch.Tensor]:
        """What each view's augmentation makes of its row; padding keeps its place and its embedding."""
        changes = np.array([self.section.first, self.section.second])[labels]
        extra: dict[str, torch.Tensor] = {}
        width, lengths = input_ids.shape[1], attention_mask.numpy().sum(1)
        shuffled = changes == "shuffle"
        if shuffled.any():
            extra["position_ids"] = torch.from_numpy(ranks(uniforms(seeds, width), lengths * shuffled))
        features, tokens, elements = (changes == name for name in ("feature_cutoff", "token_cutoff", "dropout"))
        if (features | tokens | elements).any():
            whole = (tokens | elements).any(), (features | elements).any()
            keep = np.ones((len(changes), width if whole[0] else 1, self.dimension if whole[1] else 1), dtype=bool)
            rate = self.section.cutoff
            if features.any():
                keep[features] &= _features(seeds[features], self.dimension, rate)
            if tokens.any():
                keep[tokens] &= _tokens(seeds[tokens], lengths[tokens], width, rate)
            if elements.any():
                keep[elements] &= _elements(seeds[elements], lengths[elements], width, self.dimension, rate)
            extra["keep"] = torch.from_numpy(keep)
        return extra

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """NT-Xent between the two views."""
        first, second = (encoded.side(encoded.where(label)) for label in (0, 1))
        return two_sided(first, second, self.section.temperature)


def _features(seeds: np.ndarray, dimension: int, rate: float) -> np.ndarray:
    """Dimensions of all tokens that stay: bool [n, 1, d]."""
    places = ranks(uniforms(seeds, dimension), np.full(len(seeds), dimension))
    return (places >= int(dimension * rate))[:, None]


def _tokens(seeds: np.ndarray, lengths: np.ndarray, width: int, rate: float) -> np.ndarray:
    """Tokens that stay: bool [n, width, 1]."""
    return (ranks(uniforms(seeds, width), lengths) >= (lengths * rate).astype(np.int64)[:, None])[:, :, None]


def _elements(seeds: np.ndarray, lengths: np.ndarray, width: int, dimension: int, rate: float) -> np.ndarray:
    """Single elements of the real tokens that stay: bool [n, width, d]. 32 random bits of each decide."""
    words = mixed(mixed(seeds, 0)[:, None, None], np.arange(width)[:, None], np.arange((dimension + 1) // 2))
    stays = words.view(np.uint32)[:, :, :dimension] >= int(rate * 2**32)
    return stays | (np.arange(width) >= lengths[:, None])[:, :, None]
