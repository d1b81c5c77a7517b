"""What people and programs are told of a run, and what they are warned of before it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from infocse_ray.retrieval.bootstrap import Lead
from infocse_ray.retrieval.doubts import doubts
from infocse_ray.retrieval.ranks import metrics_of
from infocse_ray.retrieval.verdict import verdict, versus


def lead(low: float, high: float) -> Lead:
    return Lead((low + high) / 2, low, high, 0.3, 400, 120)


@pytest.mark.parametrize(
    ("low", "high", "start", "label"),
    [
        (0.001, 0.05, False, "WIN"),
        (0.0, 0.05, False, "LEVEL"),
        (-0.02, 0.05, False, "LEVEL"),
        (-0.02, 0.0, False, "LEVEL"),
        (-0.05, -0.001, False, "LOSS"),
        (0.0, 0.0, True, "START RETURNED"),
    ],
)
def test_a_lead_is_one_if_the_whole_interval_is(low, high, start, label):
    found = verdict(lead(low, high), start, "mrr", 0.5, 0.52)
    assert found.label == label
    content = json.loads(json.dumps(found.content()))
    assert content["label"] == label
    assert (content["low"], content["high"], content["before"], content["after"]) == (low, high, 0.5, 0.52)
    assert (content["metric"], content["questions"], content["documents"]) == ("mrr", 400, 120)


def test_of_few_documents_nothing_is_told_apart():
    for documents, label in ((9, "LEVEL"), (10, "WIN")):
        found = verdict(lead(0.2, 0.5)._replace(documents=documents), False, "mrr", 0.5, 0.85)
        assert found.label == label
        assert found.scores().endswith(f" of {documents} documents, too few to tell") == (documents < 10)
        assert versus(found.lead, "mrr", "a", "b").endswith(", too few to tell") == (documents < 10)
    assert versus(lead(0.2, 0.5)._replace(documents=1), "mrr", "a", "b").startswith("LEVEL, neither is better")


def test_scores_say_how_much_and_how_sure():
    won = verdict(lead(0.01, 0.05), False, "recall@5", 0.7, 0.73)
    assert won.scores() == "recall@5 0.7000 to 0.7300, +0.0300 (95 % interval +0.0100 to +0.0500)"
    assert verdict(lead(0.0, 0.0), True, "recall@5", 0.7, 0.7).scores() == "recall@5 0.7000", "of the start, once"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.01, 0.03, "WIN, a is better than b in mrr: a less b is +0.0200 (95 % interval +0.0100 to +0.0300)"),
        (-0.03, -0.01, "LOSS, b is better than a in mrr: a less b is -0.0200 (95 % interval -0.0300 to -0.0100)"),
        (-0.01, 0.03, "LEVEL, neither is better in mrr for sure: a less b is +0.0100"),
    ],
)
def test_two_encoders_in_a_line(low, high, said):
    assert versus(lead(low, high), "mrr", "a", "b").startswith(said)


def ranks(right: int, questions: int) -> dict[str, float]:
    return metrics_of(np.where(np.arange(questions) < right, 2, 30), 500)


def test_nothing_to_doubt():
    assert doubts(ranks(700, 1000), "recall@5") == []


def test_too_few_questions_and_how_many_it_takes():
    [line] = doubts(ranks(70, 100), "recall@5")
    assert line.startswith("too few questions: recall@5 is 0.7000 (0.60 to 0.78) on 100")
    needed = int(line.split("takes about ")[1].split(":")[0].replace(",", ""))
    assert doubts(ranks(round(0.7 * needed), needed), "recall@5") == []
    assert doubts(ranks(round(0.7 * 0.8 * needed), round(0.8 * needed)), "recall@5")


def test_a_ceiling_and_what_is_above_it():
    [line] = doubts(ranks(990, 1000), "recall@5", "counterpart")
    assert line.startswith("at its ceiling before training: recall@5 is 0.9900; ")
    assert "validate.metric to mrr (0.4953 now)" in line
    assert "validate.on to sentence" in line
    [line] = doubts(ranks(990, 1000), "recall@20", "sentence")
    assert "validate.on" not in line
    assert "500 candidates" in line
    everything = metrics_of(np.ones(1000, int), 500)
    assert all("to mrr" not in doubts(everything, name)[0] for name in ("recall@5", "mrr"))
    # Seventeen right answers of seventeen: too few, and nothing left to see.
    assert [line.split(":")[0] for line in doubts(ranks(17, 17), "recall@5")] == [
        "too few questions",
        "at its ceiling before training",
    ]
