"""Whether one method's lead over another is more than the luck of the test documents: the paired cluster bootstrap.

1. Every question has a difference: its score under ours, less its score under theirs, each averaged over seeds.
2. As many documents are drawn with replacement as there are, each with all its questions, 10,000 times; each draw has
   a mean difference over its questions. Questions of one document are alike: drawn alone, they would seem more than
   they are.
3. The middle 95 % of these means are the interval; those not above 0 are draws without a lead.

Efron and Tibshirani, An Introduction to the Bootstrap, 1993 (percentile interval); Davison and Hinkley, Bootstrap
Methods and their Application, 1997 (whole clusters drawn); Berg-Kirkpatrick, Burkett and Klein, An Empirical
Investigation of Statistical Significance in NLP, 2012 (paired, over test items).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
_ZERO = 1e-12
"""A mean that floating point alone keeps from 0 is 0."""
_ELEMENTS = 2**22
_COST_OF_A_KIND = 8
"""Drawing how often a kind of document is drawn takes some eight times as long as drawing a document."""


class Lead(NamedTuple):
    """What the bootstrap says of ours - theirs."""

    difference: float
    low: float
    """Of the 95 % interval."""
    high: float
    no_lead: float
    """Share of the resamples whose mean difference is 0 or less."""
    questions: int
    documents: int
    resamples: int


def paired_bootstrap(
    ours: np.ndarray, theirs: np.ndarray, documents: np.ndarray, resamples: int = RESAMPLES, seed: int = 0
) -> Lead:
    """Resample documents with all their questions, both methods' scores of a question together.

    Args:
        ours: float [questions].
        theirs: float [questions], of the same questions in the same order.
        documents: int [questions], the same number for questions of the same document.
        resamples: how many.
        seed: of the draws.

    Raises:
        ValueError: no questions, or not the same number of them.
    """
    if not ours.shape == theirs.shape == documents.shape or ours.ndim != 1 or not len(ours):
        raise ValueError(f"scores of shapes {ours.shape} and {theirs.shape} have no questions in common")
    differences = ours - theirs
    _, document = np.unique(documents, return_inverse=True)
    sizes = np.bincount(document)
    sums = np.bincount(document, weights=differences).round(12)  # equal but for the order of summing is equal
    # Few documents differ in sum and size (with one question and s seeds there are 2 s + 1 sums): how often each kind
    # is drawn, which is multinomial, says as much of a resample as its documents one by one, and is drawn sooner.
    kinds, counts = np.unique(np.stack([sums, sizes], axis=1), axis=0, return_counts=True)
    few = len(kinds) * _COST_OF_A_KIND < len(sizes)
    random = np.random.default_rng(seed)
    block = max(1, _ELEMENTS // (len(kinds) if few else len(sizes)))
    means = np.empty(resamples)
    for begin in range(0, resamples, block):
        size = min(block, resamples - begin)
        if few:
            drawn = random.multinomial(len(sizes), counts / len(sizes), size=size) @ kinds
            total, of = drawn[:, 0], drawn[:, 1]
        else:
            which = random.integers(len(sizes), size=(size, len(sizes)), dtype=np.int32)
            total, of = sums[which].sum(axis=1), sizes[which].sum(axis=1)
        means[begin : begin + size] = total / of
    means[np.abs(means) <= _ZERO] = 0.0
    low, high = np.quantile(means, (0.025, 0.975))
    return Lead(
        float(differences.mean()),
        float(low),
        float(high),
        float((means <= 0.0).mean()),
        len(ours),
        len(sizes),
        resamples,
    )
