"""The moments of two kinds of texts together, sentences and whole documents, each kind with a weight of its own.

A map for documents that are read whole, too, is fitted on what it is to map: half on sentences, half on whole texts.
Fewer whole texts than dimensions have less than half, in proportion: what they vary by is chance then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from infocse_ray.encoder.moments import Moments


class Mixture(NamedTuple):
    """As if every vector were there as often as its kind's weight says."""

    sentences: Moments
    whole: Moments
    """Of whole texts, by the same encoder; at least one."""

    @property
    def count(self) -> int:
        """Texts of both kinds."""
        return self.sentences.count + self.whole.count

    @property
    def dimension(self) -> int:
        """Of the vectors: d."""
        return self.sentences.dimension

    @property
    def share(self) -> float:
        """The weight of all whole texts, up to 1/2; sentences have the rest."""
        return 0.5 * min(1.0, self.whole.count / self.dimension)

    @property
    def effective_count(self) -> float:
        """As many vectors of equal weight say as much (Kish, Survey Sampling, 1965)."""
        share = self.share
        return 1.0 / ((1.0 - share) ** 2 / self.sentences.count + share**2 / self.whole.count)

    def mean(self) -> np.ndarray:
        """float64 [d]."""
        return (1.0 - self.share) * self.sentences.mean() + self.share * self.whole.mean()

    def covariance(self) -> np.ndarray:
        """float64 [d, d]: that within each kind, weighted, and that between their means."""
        apart = self.whole.mean() - self.sentences.mean()
        share = self.share
        within = (1.0 - share) * self.sentences.covariance() + share * self.whole.covariance()
        return within + share * (1.0 - share) * np.outer(apart, apart)
