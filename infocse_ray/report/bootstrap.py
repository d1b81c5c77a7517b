"""Whether one method's lead over another is more than the luck of the test questions: the paired bootstrap.

1. Every question has a difference: its score under ours, less its score under theirs, each averaged over seeds.
2. As many questions are drawn with replacement as there are, 10,000 times; each draw has a mean difference.
3. The middle 95 % of these means are the interval; those not above 0 are draws without a lead.

Efron and Tibshirani, An Introduction to the Bootstrap, 1993 (percentile interval); Berg-Kirkpatrick, Burkett and
Klein, An Empirical Investigation of Statistical Significance in NLP, 2012 (paired, over test items).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
_ZERO = 1e-12
"""A mean that floating point alone keeps from 0 is 0."""
_ELEMENTS = 2**22


class Lead(NamedTuple):
    """What the bootstrap says of ours - theirs."""

    difference: float
    low: float
    """Of the 95 % interval."""
    high: float
    no_lead: float
    """Share of the resamples whose mean difference is 0 or less."""
    questions: int
    resamples: int


def paired_bootstrap(ours: np.ndarray, theirs: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> Lead:
    """Resample questions, both methods' scores of one together.

    Args:
        ours: float [questions].
        theirs: float [questions], of the same questions in the same order.
        resamples: how many.
        seed: of the draws.

    Raises:
        ValueError: no questions, or not the same number of them.
    """
    if ours.shape != theirs.shape or ours.ndim != 1 or not len(ours):
        raise ValueError(f"scores of shapes {ours.shape} and {theirs.shape} have no questions in common")
    # Differences are few (recall over s seeds has 2 s + 1): how often each is drawn, which is multinomial, says as
    # much of a resample as its questions one by one, and takes no memory that grows with them.
    values, counts = np.unique(ours - theirs, return_counts=True)
    random = np.random.default_rng(seed)
    block = max(1, _ELEMENTS // len(values))
    means = np.concatenate(
        [
            random.multinomial(len(ours), counts / len(ours), size=min(block, resamples - begin)) @ values / len(ours)
            for begin in range(0, resamples, block)
        ]
    )
    low, high = np.quantile(means, (0.025, 0.975))
    return Lead(
        float(values @ counts / len(ours)),
        float(low),
        float(high),
        float((means <= _ZERO).mean()),
        len(ours),
        resamples,
    )
