"""Intervals against scipy's, and what they say at the edge and of questions that are alike."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm, t

from infocse_ray.retrieval.intervals import interval, wilson
from infocse_ray.retrieval.ranks import metrics_of, shown


@pytest.mark.parametrize(("right", "questions"), [(0, 17), (17, 17), (1, 1), (3, 8), (820, 1000)])
def test_a_recall_with_one_question_a_document_has_wilsons_interval(right, questions):
    by_scipy = binomtest(right, questions).proportion_ci(method="wilson")
    expected = pytest.approx((by_scipy.low, by_scipy.high))
    assert wilson(right / questions, questions) == expected
    assert interval(np.arange(questions) < right, np.arange(questions)) == expected


def test_nothing_is_certain():
    low, high = interval(np.ones(17, bool), np.arange(17))
    assert (round(low, 2), high) == (0.82, 1.0)
    # Seventeen ranks of 1 are no proof of an MRR of 1 either.
    assert interval(np.ones(17), np.arange(17)) == (low, high)


def test_questions_of_one_document_that_go_alike_count_as_one():
    right = np.arange(40) < 30
    # How alike they are is known from 40 documents only.
    known = float(norm.ppf(0.975) / t.ppf(0.975, 39)) ** 2
    assert interval(np.repeat(right, 4), np.repeat(np.arange(40), 4)) == pytest.approx(wilson(0.75, 40 * known))
    assert interval(np.ones(160, bool), np.repeat(np.arange(40), 4)) == interval(np.ones(40, bool), np.arange(40))
    # What luck makes even over documents is no reason to believe in more questions than were asked.
    even, documents = np.tile([True, False], 40), np.repeat(np.arange(40), 2)
    assert interval(even, documents) == wilson(0.5, 40)
    assert interval(even | (documents == 7), documents) == wilson(41 / 80, 80)


def test_a_mean_reciprocal_rank_is_known_as_well_as_its_standard_error_says():
    draw = np.random.default_rng(0)
    scores = 1.0 / draw.geometric(0.4, 4000)
    low, high = interval(scores, np.arange(4000))
    error = scores.std() / np.sqrt(4000)
    assert (low, high) == pytest.approx((scores.mean() - 1.96 * error, scores.mean() + 1.96 * error), abs=0.02 * error)


@pytest.mark.parametrize("documents", [3, 5, 10, 40])
def test_intervals_of_few_documents_hold_as_often_as_they_say(documents):
    draw = np.random.default_rng(2)
    held = 0
    for _ in range(1_000):
        scores = 1.0 / draw.geometric(0.4, documents)
        low, high = interval(scores, np.arange(documents))
        held += low <= 0.4 * np.log(1 / 0.4) / 0.6 <= high
    assert held >= 930
    # Of questions of one document, too, and where few documents are alike by chance.
    low, high = interval(np.tile([1.0, 1 / 9], 3), np.repeat(np.arange(3), 2))
    assert high - low > 0.3


@pytest.mark.parametrize("documents", [30, 60])
def test_intervals_of_hard_questions_hold_though_some_samples_lack_a_hit(documents: int):
    """Three of 100 questions are answered at once, the rest far down: a sample without those seems sure of itself."""
    draw, held, cases = np.random.default_rng(7), 0, 400
    right = np.array([1.0] * 3 + (1 / np.linspace(20, 2_000, 97)).tolist())
    for _ in range(cases):
        low, high = interval(draw.choice(right, documents), np.arange(documents))
        held += low <= right.mean() <= high
    assert held / cases > 0.93  # 0.50 and 0.80 by their variance


def test_the_order_of_the_questions_changes_no_bit():
    draw = np.random.default_rng(1)
    ranks, documents = draw.integers(1, 2**40, 30_000), draw.integers(0, 300, 30_000)
    order = np.argsort(draw.permutation(300)[documents], kind="stable")  # documents together, as on other workers
    first = np.argsort(documents, kind="stable")
    assert metrics_of(ranks[first], 60, documents[first]) == metrics_of(ranks[order], 60, documents[order])


def test_what_people_see():
    assert shown(metrics_of(np.array([1] * 17), 99), "recall@5") == "1.0000 (0.82 to 1.00)"
    assert shown(metrics_of(np.array([1] * 17), 99), "mrr") == "1.0000 (0.82 to 1.00)"
    assert shown({"mrr": 0.25, "queries": 9}, "mrr") == "0.2500"


def test_no_questions():
    with pytest.raises(ValueError, match="no questions"):
        interval(np.zeros(0), np.zeros(0, int))
