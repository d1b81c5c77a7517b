"""The paired bootstrap against hand-made cases and scipy's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import bootstrap, norm, t, ttest_1samp

from infocse_ray.retrieval import bootstrap as bootstrap_module
from infocse_ray.retrieval.bootstrap import Lead, paired_bootstrap


def one_each(ours: np.ndarray, theirs: np.ndarray, **more: int) -> Lead:
    """With one question a document."""
    return paired_bootstrap(ours, theirs, np.arange(len(ours)) * 7 - 3, **more)


def test_every_resample_of_three_questions():
    ours, theirs = np.array([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0])
    draws = [np.mean(d) for d in itertools.product((1.0, 0.0, -1.0), repeat=3)]  # all 27, equally likely
    lead = one_each(ours, theirs, resamples=200_000)
    assert lead.difference == 0.0
    assert lead.no_lead == pytest.approx(np.mean(np.array(draws) <= 1e-9), abs=0.005)
    assert (lead.low, lead.high) == pytest.approx((-1.0, 1.0))  # 1 / 27 at each end is more than 2.5 %
    assert (lead.questions, lead.documents) == (3, 3)


def test_a_lead_on_every_question_is_one_in_every_resample():
    lead = one_each(np.full(10, 0.75), np.full(10, 0.5))
    assert lead[:4] == (0.25, 0.25, 0.25, 0.0)
    assert one_each(np.full(10, 0.5), np.full(10, 0.5)).no_lead == 1.0


def test_what_floating_point_keeps_from_zero_is_no_lead():
    thirds = np.array([0, 1, 2, 3]) / 3
    pairs = np.array([(a, b) for a in thirds for b in thirds])
    # Differences cancel exactly; their sum in floating point need not.
    even = np.concatenate([pairs, pairs[:, ::-1]])
    lead = one_each(even[:, 0], even[:, 1], resamples=200_000)
    steps = np.rint(3 * (even[:, 0] - even[:, 1])).astype(int)
    drawn = np.random.default_rng(5).choice(steps, size=(200_000, len(steps))).sum(1)
    assert lead.no_lead == pytest.approx((drawn <= 0).mean(), abs=0.005)


@pytest.mark.parametrize("shift", [0.0, 0.08])
def test_agrees_with_scipy(shift: float):
    draw = np.random.default_rng(3)
    theirs = draw.integers(0, 4, 400) / 3
    ours = np.clip(theirs + draw.integers(-1, 2, 400) / 3 + (draw.random(400) < shift), 0, 1)
    expected = bootstrap(
        (ours, theirs),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=50_000,
        method="percentile",
        rng=np.random.default_rng(1),
    )
    lead = one_each(ours, theirs, resamples=50_000)
    assert lead.difference == pytest.approx((ours - theirs).mean())
    assert (lead.low, lead.high) == pytest.approx(expected.confidence_interval, abs=0.003)
    assert lead.no_lead == pytest.approx((expected.bootstrap_distribution <= 1e-12).mean(), abs=0.01)


def test_documents_are_drawn_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bootstrap_module, "_FEW", 0)
    monkeypatch.setattr(bootstrap_module, "_FEW_DIFFER", 0)
    draw = np.random.default_rng(8)
    documents = draw.permutation(np.repeat(np.arange(12), draw.integers(1, 9, 12)))
    # Questions of one document share their luck, so that drawing them alone would give a narrower interval.
    theirs = np.zeros(len(documents))
    ours = (draw.random(12) - 0.4)[documents] + draw.integers(0, 4, len(documents)) / 30
    groups = [(ours - theirs)[documents == document] for document in range(12)]
    slow = np.array([np.concatenate([groups[d] for d in draw.integers(0, 12, 12)]).mean() for _ in range(20_000)])
    lead = paired_bootstrap(ours, theirs, documents, resamples=20_000)
    assert lead.difference == pytest.approx((ours - theirs).mean())
    assert (lead.low, lead.high) == pytest.approx(tuple(np.quantile(slow, (0.025, 0.975))), abs=0.015)
    assert lead.no_lead == pytest.approx((slow <= 0).mean(), abs=0.015)
    assert (lead.questions, lead.documents) == (len(documents), 12)
    alone = one_each(ours, theirs)
    assert alone.high - alone.low < 0.8 * (lead.high - lead.low)


def test_the_same_seed_draws_the_same():
    ours, theirs = np.random.default_rng(0).integers(0, 2, (2, 50)).astype(float)
    assert one_each(ours, theirs, seed=4) == one_each(ours, theirs, seed=4)
    assert one_each(ours, theirs, seed=4) != one_each(ours, theirs, seed=5)


def test_scores_of_other_questions_are_refused():
    with pytest.raises(ValueError, match="no questions in common"):
        one_each(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="no questions in common"):
        paired_bootstrap(np.zeros(3), np.zeros(3), np.zeros(2, int))
    with pytest.raises(ValueError, match="no questions in common"):
        one_each(np.zeros(0), np.zeros(0))


def test_an_end_that_is_zero_but_for_the_order_of_summing_is_zero():
    draw = np.random.default_rng(3)
    for _ in range(200):
        # Averages over three seeds of recalls: thirds, whose sums leave dust.
        ours, theirs = (draw.integers(0, 4, 12) / 3 for _ in range(2))
        found = one_each(ours, theirs, resamples=500)
        assert found.low == 0 or abs(found.low) > 1e-9
        assert found.high == 0 or abs(found.high) > 1e-9


@pytest.mark.parametrize("different", [2, 2_000])
def test_however_resamples_are_drawn_they_agree(different: int):
    # Few kinds of documents are drawn by kind, many one by one.
    draw = np.random.default_rng(4)
    differences = draw.integers(0, different, 2_000) / different
    found = one_each(differences, np.full(2_000, 0.45))
    error = differences.std() / np.sqrt(2_000)
    expected = (differences.mean() - 0.45 - 1.96 * error, differences.mean() - 0.45 + 1.96 * error)
    assert (found.low, found.high) == pytest.approx(expected, abs=0.15 * error)


def test_of_few_documents_the_interval_is_students_where_that_is_wider():
    draw = np.random.default_rng(6)
    sums = draw.normal(0.02, 0.1, 12)
    lead = one_each(np.clip(0.5 + sums, 0, 1), np.full(12, 0.5))
    # With one question a document it is that of a mean of as many.
    expected = ttest_1samp(sums, 0.0).confidence_interval(0.95)
    assert (lead.low, lead.high) == pytest.approx((expected.low, expected.high))
    # Of documents with several questions it is that of a ratio: by the plain formula.
    sizes = draw.integers(1, 5, 15)
    documents = np.repeat(np.arange(15), sizes)
    ours = draw.random(len(documents))
    mean = (ours - 0.5).mean()
    rest = [(ours - 0.5)[documents == d].sum() - mean * n for d, n in enumerate(sizes)]
    half = t.ppf(0.975, 14) * np.sqrt(15 / 14 * np.square(rest).sum()) / sizes.sum()
    found = paired_bootstrap(ours, np.full(len(ours), 0.5), documents)
    assert (found.low, found.high) == pytest.approx((mean - half, mean + half), abs=0.01)
    assert found.high - found.low >= 2 * half - 1e-12


@pytest.mark.parametrize("documents", [199, 200])
def test_below_200_documents_students_interval_counts(documents: int, monkeypatch: pytest.MonkeyPatch):
    differences = np.random.default_rng(7).normal(0.02, 0.1, documents)
    found = one_each(np.clip(0.5 + differences, 0, 1), np.full(documents, 0.5))
    students = ttest_1samp(differences, 0.0).confidence_interval(0.95)
    monkeypatch.setattr(bootstrap_module, "_FEW", 0)
    monkeypatch.setattr(bootstrap_module, "_FEW_DIFFER", 0)
    alone = one_each(np.clip(0.5 + differences, 0, 1), np.full(documents, 0.5))
    wider = alone._replace(low=min(alone.low, students.low), high=max(alone.high, students.high))
    assert wider != alone
    expected = wider if documents < 200 else alone
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("documents", [12, 60])
def test_two_encoders_that_are_alike_are_told_apart_by_luck_in_one_case_of_twenty(documents: int):
    """Reciprocal ranks, which are skewed, of documents with several questions each, which are alike."""
    draw, apart, cases = np.random.default_rng(2), 0, 400
    for case in range(cases):
        of = np.repeat(np.arange(documents), 1 + draw.poisson(2, documents))
        hard = draw.normal(1, 1, documents)[of]
        logarithms = (hard + draw.normal(0, 0.4, documents)[of] + draw.normal(0, 0.3, len(of)) for _ in range(2))
        one, other = (1 / np.maximum(1, np.exp(rank).astype(int)) for rank in logarithms)
        lead = paired_bootstrap(one, other, of, resamples=500, seed=case)
        apart += lead.low > 0 or lead.high < 0
    assert apart / cases < 0.075  # by the bootstrap alone 0.11 and 0.08


def test_two_that_are_alike_on_most_documents_are_told_apart_by_luck_in_few_cases():
    draw, apart, cases = np.random.default_rng(5), 0, 400
    for case in range(cases):
        differ = draw.choice(750, draw.binomial(750, 10 / 750), replace=False)
        one, other = np.ones(750), np.ones(750)
        one[differ], other[differ] = (1 / draw.integers(1, 8, len(differ)) for _ in range(2))
        lead = one_each(one, other, resamples=1_000, seed=case)
        apart += lead.low > 0 or lead.high < 0
    assert apart / cases < 0.055  # by the bootstrap alone 0.1


def test_the_best_of_many_that_the_questions_chose_leads_beyond_luck_in_few_cases():
    draw, won, seemed, cases = np.random.default_rng(4), 0, 0, 200
    for case in range(cases):
        start = draw.normal(0.5, 0.1, 250)
        best = max((draw.normal(0.5, 0.1, 250) for _ in range(20)), key=np.mean)
        lead = one_each(best, start, resamples=1_000, seed=case)
        seemed += lead.low > 0
        won += lead.of_the_best(20).low > 0
    assert seemed / cases > 0.2
    assert won / cases < 0.06
    lead = Lead(0.1, 0.02, 0.19, 0.0, 9, 9)
    assert lead.of_the_best(1) == lead
    further = t.ppf(1 - 0.025 / 8, 8) / t.ppf(0.975, 8)  # of nine documents
    assert lead.of_the_best(8) == lead._replace(low=pytest.approx(0.1 - 0.08 * further))


def test_other_seeds_would_give_others():
    lead = Lead(0.02, 0.01, 0.04, 0.0, 500, 500)
    assert lead.of_seeds(np.array([0.02])) == lead, "of one seed nothing can be said"
    assert lead.of_seeds(np.full(3, 0.02)) == lead
    leads = np.array([0.03, 0.02, 0.01])
    spread = 0.01**2 / 3
    ends = []
    for half in (0.01, 0.02):
        documents = (half / norm.ppf(0.975)) ** 2
        freedom = (documents + spread) ** 2 / (spread**2 / 2 + documents**2 / 499)
        ends.append(t.ppf(0.975, freedom) * np.sqrt(documents + spread))
    found = lead.of_seeds(leads)
    assert (found.low, found.high) == pytest.approx((0.02 - ends[0], 0.02 + ends[1]))
    assert found._replace(low=0.01, high=0.04) == lead
    ends = [one.of_seeds(np.array([0.9, -0.9])) for one in (lead, lead._replace(difference=-0.02, low=-0.04, high=0.0))]
    assert [(one.low, one.high) for one in ends] == [(-1.0, 1.0)] * 2, "no score differs by more"


@pytest.mark.parametrize("spread", [0.0, 0.005])
def test_equal_methods_of_three_seeds_each_are_told_apart_by_luck_in_few_cases(spread: float):
    draw, seemed, apart, cases = np.random.default_rng(3), 0, 0, 200
    for case in range(cases):
        hard = draw.normal(0.6, 0.2, 400)
        ours, theirs = (hard + draw.normal(0, 0.1, (3, 400)) + draw.normal(0, spread, (3, 1)) for _ in range(2))
        lead = one_each(ours.mean(0), theirs.mean(0), resamples=500, seed=case)
        seemed += lead.low > 0 or lead.high < 0
        lead = lead.of_seeds((ours - theirs).mean(1))
        apart += lead.low > 0 or lead.high < 0
    assert apart / cases < 0.06
    assert seemed / cases > 0.15 or not spread
