"""Spearman's rank correlation with 95 % intervals: a bootstrap over pairs, both encoders' cosines of a pair together.

Efron and Tibshirani, An Introduction to the Bootstrap, 1993 (percentile interval).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import bootstrap, rankdata

RESAMPLES = 2_000
"""Each ranks all pairs anew, which takes seconds for a few thousand of them."""
_AT_ONCE = 2**20
"""Elements of a block of resamples."""


class Estimate(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


def spearman(first: np.ndarray, second: np.ndarray, axis: int = -1) -> np.ndarray:
    """The correlation of the ranks along an axis, from -1 to 1; 0 where all values of one side are the same."""
    one, other = (_centred(rankdata(values, axis=axis), axis) for values in (first, second))
    spread = np.sqrt((one**2).sum(axis) * (other**2).sum(axis))
    return (one * other).sum(axis) / np.where(spread > 0, spread, np.inf)


def spearman_estimate(cosines: np.ndarray, scores: np.ndarray) -> Estimate:
    """One encoder's correlation with the scores, float [pairs] both."""
    return _estimate((cosines, scores), spearman)


def spearman_difference(ours: np.ndarray, theirs: np.ndarray, scores: np.ndarray) -> Estimate:
    """What the correlation of `ours` has over that of `theirs`; float [pairs] all, of the same pairs in this order."""
    return _estimate(
        (ours, theirs, scores), lambda one, other, true, axis: spearman(one, true, axis) - spearman(other, true, axis)
    )


def _estimate(samples: tuple[np.ndarray, ...], statistic: Callable[..., np.ndarray]) -> Estimate:
    found = bootstrap(
        samples,
        statistic,
        n_resamples=RESAMPLES,
        batch=max(1, _AT_ONCE // len(samples[0])),
        vectorized=True,
        paired=True,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate(float(statistic(*samples, axis=-1)), float(found.low), float(found.high))


def _centred(values: np.ndarray, axis: int) -> np.ndarray:
    return values - values.mean(axis, keepdims=True)
