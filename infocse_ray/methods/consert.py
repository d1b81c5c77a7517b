"""ConSERT (Yan et al. 2021): the same sentence twice, each view changed at the embedding layer.

1. The views are made by `methods/augmentations.py`.
2. NT-Xent with within-view negatives, both ways, by cosine at temperature 0.1. The encoder's own dropout is off.

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
from infocse_ray.methods.augmentations import augmented, check_augmentations
from infocse_ray.methods.contrast import Contrast, Encoded, two_sided
from infocse_ray.methods.method import TwoViews
from infocse_ray.settings import ConSERTSettings


class ConSERT(TwoViews):
    """A sentence and itself, cut off and shuffled."""

    dropout = 0.0
    changes_inputs = True

    def __init__(self, section: ConSERTSettings, spec: EncoderSpec) -> None:
        """Check that the views differ and that the encoder can do what makes them differ.

        Raises:
            ValueError: it can't.
        """
        check_augmentations(section, spec)
        self.section, self.dimension = section, spec.embedding
        self.longest = spec.sentence_tokens

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        return ("consert", self.section)

    def inputs(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: np.ndarray, seeds: np.ndarray
    ) -> dict[str, torch.Tensor]:
        """What each view's augmentation makes of its row."""
        changes = np.array([self.section.first, self.section.second])[labels]
        return augmented(changes, self.section.cutoff, self.dimension, input_ids, attention_mask, seeds)

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """NT-Xent between the two views."""
        first, second = (encoded.side(encoded.where(label)) for label in (0, 1))
        return two_sided(first, second, self.section.temperature)
