"""Whether one method's lead over another is more than the luck of the test documents: the paired cluster bootstrap.

1. Every question has a difference: its score under ours, less its score under theirs, each averaged over seeds.
2. As many documents are drawn with replacement as there are, each with all its questions, 10,000 times; each draw has
   a mean difference over its questions. Questions of one document are alike: drawn alone, they would seem more than
   they are.
3. The middle 95 % of these means are the interval; those not above 0 are draws without a lead. Of few documents that
   interval is too narrow, or where the two differ on few, and Student's counts, of the same mean as a ratio of two
   sums, where it is wider.
4. Of trainings with several seeds the interval is wider by what these differ (`Lead.of_seeds`).
5. The best of several encoders that these very questions chose leads by luck, too: its interval begins where one
   begins that holds for all of them at once (`Lead.of_the_best`).

Efron and Tibshirani, An Introduction to the Bootstrap, 1993 (percentile interval); Davison and Hinkley, Bootstrap
Methods and their Application, 1997 (whole clusters drawn); Berg-Kirkpatrick, Burkett and Klein, An Empirical
Investigation of Statistical Significance in NLP, 2012 (paired, over test items); Cochran, Sampling Techniques, 1977,
section 6.3 (the variance of a ratio); Satterthwaite, An Approximate Distribution of Estimates of Variance Components,
1946 (the degrees of freedom of a sum of variances); Dunn, Multiple Comparisons among Means, 1961 (Bonferroni's
inequality).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

RESAMPLES = 10_000
_ZERO = 1e-12
"""A mean that floating point alone keeps from 0 is 0."""
_FEW, _FEW_DIFFER = 200, 50
"""Documents, and those of them that the two differ on, from which on the bootstrap's interval alone is clear of 0 by
luck in 5 to 6 % of cases, no more; with ten of 750 that differ it is in 10 %."""
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

    def of_seeds(self, leads: np.ndarray) -> Lead:
        """The lead of such trainings, where this is of the mean of some of them: other seeds would give others.

        To the variance by documents comes that of a mean of so many seeds, and Student's distribution has the degrees
        of freedom of the sum (Satterthwaite's).

        Args:
            leads: float [seeds], by each seed alone; of one nothing can be said.
        """
        spread = float(leads.var(ddof=1)) / len(leads) if len(leads) > 1 else 0.0
        if spread <= _ZERO**2:
            return self
        normal = stdtrit(np.inf, 0.975)

        def half(documents: float) -> float:
            by_documents = (documents / normal) ** 2
            both = by_documents + spread
            unsure = spread**2 / (len(leads) - 1) + by_documents**2 / max(1, self.documents - 1)
            return float(stdtrit(both**2 / unsure, 0.975) * np.sqrt(both))

        low, high = (
            self.difference - half(self.difference - self.low),
            self.difference + half(self.high - self.difference),
        )
        return self._replace(low=max(-1.0, low), high=min(1.0, high))

    def of_the_best(self, among: int) -> Lead:
        """The lead of the best of so many encoders, which these questions chose; all of them over the same other one.

        Its low end is lower, as far as Student's distribution's quantiles are further out (Bonferroni's inequality).
        """
        if among == 1:
            return self
        freedom = max(1, self.documents - 1)
        grown = stdtrit(freedom, 1.0 - 0.025 / among) / stdtrit(freedom, 0.975)
        return self._replace(low=self.difference - float(grown) * (self.difference - self.low))


def paired_bootstrap(
    ours: np.ndarray, theirs: np.ndarray, documents: np.ndarray, resamples: int = RESAMPLES, seed: int = 0
) -> Lead:
    """Resample documents with all their questions, both methods' scores of a question together.

    Args:
        ours: float [questions], from 0 to 1.
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
    mean = float(differences.mean())
    if len(sizes) > 1 and (len(sizes) < _FEW or np.count_nonzero(sums) < _FEW_DIFFER):
        around = _students(sums, sizes, mean)
        low, high = max(-1.0, min(low, mean - around)), min(1.0, max(high, mean + around))
    return Lead(
        mean,
        float(low),
        float(high),
        float((means <= 0.0).mean()),
        len(ours),
        len(sizes),
    )


def _students(sums: np.ndarray, sizes: np.ndarray, mean: float) -> float:
    """Half of the width of Student's 95 % interval of a mean over questions, by documents.

    Args:
        sums: float [documents], of their questions' differences.
        sizes: int [documents], how many questions each has.
        mean: of all questions.
    """
    count = len(sizes)
    variance = ((sums - mean * sizes) ** 2).sum() * count / (count - 1)
    return float(stdtrit(count - 1, 0.975) * np.sqrt(variance) / sizes.sum())
