"""How far off a score may be for having asked so few: 95 % intervals that stay honest at 0 and 1.

1. Every question has a score in [0, 1]: whether its counterpart was among the first k, or 1 / rank. The mean p has the
   variance V, of documents with all their questions (those of one document are alike): that of a share of
   n = p (1 - p) / V independent questions. V is itself known from D documents only: n shrinks by (z / t)^2, t of
   Student's distribution with D - 1 degrees of freedom.
2. The interval is that of Wilson (1927) of such a share: never without width, never beyond 0 or 1. Of a recall with one
   question a document nothing is estimated: n is the number of questions, and this is the plain Wilson interval.
3. Where all score the same, V says nothing, and n is the number of documents. Where documents are few, or few of them
   score other than nearly 0 or nearly 1, they may be as alike by chance, so n is no more than the number of questions;
   a recall's never is.

Korn and Graubard, Confidence Intervals for Proportions with Small Expected Number of Positive Counts Estimated from
Survey Data, 1998 (the effective number of questions, no more than there are, and its correction by t).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit

_Z = 1.959963984540054
"""97.5 % of a standard normal is below it."""
_FEW = 30
"""Documents from which on their variance is believed that questions with scores of their own say more than a share."""
_FEW_HITS = 10
"""Questions' worth of hits, and of misses, from which on."""


def wilson(share: float, questions: float) -> tuple[float, float]:
    """The 95 % interval of a share of so many independent questions."""
    centre = share + _Z**2 / (2 * questions)
    spread = _Z * math.sqrt(share * (1 - share) / questions + _Z**2 / (4 * questions**2))
    scale = 1 + _Z**2 / questions
    # At 0 and 1 the one end is exactly there, but for rounding.
    low, high = max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
    return (0.0 if share == 0 else low), (1.0 if share == 1 else high)


def mean_of(scores: np.ndarray) -> float:
    """The mean, rounded once, so that it doesn't depend on the order, and so on which worker had which question."""
    return math.fsum(scores.tolist()) / len(scores)


def interval(scores: np.ndarray, documents: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of the mean of questions' scores.

    Args:
        scores: [questions], from 0 to 1: bool (right or wrong) or float.
        documents: int [questions], the same number for questions of the same document.

    Raises:
        ValueError: there are no questions.
    """
    if not len(scores):
        raise ValueError("no questions, no interval")
    mean = mean_of(scores)
    _, document = np.unique(documents, return_inverse=True)
    deviations = np.bincount(document, weights=scores - mean)
    variance = math.fsum((deviations**2).tolist()) / len(scores) ** 2
    apart = int(document.max()) + 1
    effective = float(apart)
    if variance > 1e-15:
        effective = mean * (1 - mean) / variance
        if scores.dtype != bool or apart < len(scores):
            effective *= (_Z / stdtrit(apart - 1, 0.975)) ** 2
    capped = scores.dtype == bool or apart < _FEW or min(mean, 1 - mean) * apart < _FEW_HITS
    return wilson(mean, min(effective, len(scores)) if capped else effective)
