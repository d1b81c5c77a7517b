"""Measures of rankings, against what they are by definition."""

from __future__ import annotations

import numpy as np
import pytest

from infocse_ray.suites.measures import DEPTH, MEASURES, measured, summarised, without_itself

pytest.importorskip("pytrec_eval")


def ranking(place: int, doc: str = "right", length: int = DEPTH) -> dict[str, float]:
    """A ranking of so many documents with the right one at a place from 1."""
    names = [f"other-{i:03d}" for i in range(length - 1)]
    names.insert(place - 1, doc)
    return {name: 1.0 - i / 1000 for i, name in enumerate(names)}


def test_by_definition():
    places = {"a": 1, "b": 3, "c": 10, "d": 11, "e": 100}
    found = {query: ranking(place) for query, place in places.items()}
    queries = [*places, "nothing"]
    scores = measured(queries, found, {query: {"right": 1} for query in queries})
    assert set(scores) == set(MEASURES)
    assert scores["ndcg@10"] == pytest.approx([1, 1 / 2, 1 / np.log2(11), 0, 0, 0], abs=1e-6)
    assert scores["mrr@10"] == pytest.approx([1, 1 / 3, 1 / 10, 0, 0, 0], abs=1e-6)
    assert scores["recall@5"].tolist() == [1, 1, 0, 0, 0, 0]
    assert scores["recall@10"].tolist() == [1, 1, 1, 0, 0, 0]
    assert scores["recall@100"].tolist() == [1, 1, 1, 1, 1, 0]


def test_graded_and_several():
    relevant = {"q": {"a": 2, "b": 1, "c": 0, "missing": 1}}
    scores = measured(["q"], {"q": {"c": 0.9, "b": 0.8, "a": 0.7}}, relevant)
    gained = 1 / np.log2(3) + 2 / np.log2(4)
    ideal = 2 + 1 / np.log2(3) + 1 / np.log2(4)
    assert scores["ndcg@10"] == pytest.approx([gained / ideal], abs=1e-6)
    assert scores["recall@5"] == pytest.approx([2 / 3])
    assert scores["mrr@10"] == pytest.approx([1 / 2])


def test_many_queries_keep_their_order(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("infocse_ray.suites.measures._QUERIES_AT_ONCE", 3)
    queries = [f"q{i}" for i in range(8)]
    found = {query: ranking(i + 1, length=20) for i, query in enumerate(queries)}
    scores = measured(queries, found, {query: {"right": 1} for query in queries})
    assert scores["mrr@10"] == pytest.approx([1 / (i + 1) for i in range(8)])


def test_a_query_that_is_a_document_does_not_find_itself_unless_that_is_right():
    found = {"q": 1.0, "a": 0.5}
    assert without_itself("q", found, {"a": 1}) == {"a": 0.5}
    assert without_itself("q", found, {"q": 1}) == found
    assert len(without_itself("q", ranking(1, "q", DEPTH + 1), {"a": 1})) == DEPTH


def test_means_with_intervals():
    metrics = summarised({"ndcg@10": np.array([0.0, 1.0, 0.5, 0.5])})
    assert metrics["ndcg@10"] == 0.5
    assert 0 < metrics["ndcg@10_low"] < 0.5 < metrics["ndcg@10_high"] < 1
    assert metrics["queries"] == 4


def test_of_equal_scores_the_last_by_name_is_first_as_trec_eval_has_it():
    import pytrec_eval

    found = {f"doc-{i}": 0.5 for i in range(1, 20)}  # doc-1 begins ten others
    scores = measured(["q"], {"q": found}, {"q": {"doc-1": 1}})
    theirs = pytrec_eval.RelevanceEvaluator({"q": {"doc-1": 1}}, {"recip_rank"}).evaluate({"q": found})
    assert theirs["q"]["recip_rank"] == pytest.approx(1 / 19)
    assert scores["mrr@10"].tolist() == [0.0]
    assert next(iter(without_itself("q", found, {}))) == "doc-9"


def test_scores_that_are_equal_in_single_precision_are_equal_as_trec_eval_has_it():
    found = {"doc-00": 0.1 + 1e-12} | {f"doc-{i:02d}": 0.1 for i in range(1, 12)}
    scores = measured(["q"], {"q": found}, {"q": {"doc-00": 1}})
    assert scores["recall@10"].tolist() == scores["mrr@10"].tolist() == [0.0]
    assert next(iter(without_itself("q", found, {}))) == "doc-11"
