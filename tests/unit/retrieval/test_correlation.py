"""Spearman's rank correlation and its intervals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from infocse_ray.retrieval.correlation import spearman, spearman_difference, spearman_estimate

DRAW = np.random.default_rng(0)
SCORES = DRAW.integers(0, 6, 200).astype(float)
GOOD = SCORES + DRAW.normal(size=200)
BAD = SCORES + 8 * DRAW.normal(size=200)


def test_it_is_that_of_scipy_with_ties_too():
    assert spearman(GOOD, SCORES) == pytest.approx(spearmanr(GOOD, SCORES)[0])
    both = spearman(np.stack([GOOD, BAD]), np.stack([SCORES, SCORES]))
    assert both == pytest.approx([spearmanr(GOOD, SCORES)[0], spearmanr(BAD, SCORES)[0]])
    assert spearman(np.ones(5), np.arange(5)) == 0.0


def test_intervals():
    good, bad = spearman_estimate(GOOD, SCORES), spearman_estimate(BAD, SCORES)
    assert bad.low < bad.value < bad.high < good.low < good.value < good.high
    lead = spearman_difference(GOOD, BAD, SCORES)
    assert lead.value == pytest.approx(good.value - bad.value)
    assert 0 < lead.low < lead.value < lead.high


def test_pairs_are_drawn_together():
    other = GOOD + 0.01 * DRAW.normal(size=200)
    lead, alone = spearman_difference(GOOD, other, SCORES), spearman_estimate(GOOD, SCORES)
    assert lead.high - lead.low < 0.2 * (alone.high - alone.low)
    assert spearman_difference(GOOD, GOOD, SCORES) == (0.0, 0.0, 0.0)
