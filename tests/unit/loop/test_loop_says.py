"""What a run says of itself: how the exported encoder came about, and of examples."""

from __future__ import annotations

from typing import Any

import pytest

from infocse_ray.corpus.store import TokenStore
from infocse_ray.loop import iteration_stages
from infocse_ray.loop.card import model_card
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from tests.unit.stores import idc


def scores(recall: float) -> dict[str, float]:
    return {"recall@5": recall, "recall@10": recall, "recall@20": recall, "mrr": recall, "queries": 100}


def card(**sections: Any) -> str:
    content = {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}} | sections
    metrics = {
        "corpus": {"documents": 5, "sentences": 9},
        "best_iteration": 1,
        "validate_on": "counterpart",
        "iterations": [{"iteration": 0, "validation": scores(0.3)}],
    }
    return model_card(Settings.model_validate(content), metrics)


def test_the_card_says_how_the_encoder_came_about():
    assert "K = 1, distillation = 0.5, temperature 0.05, batch 128" in card()
    assert "initialised to with CONPONO" in card(loop={"initialization": "conpono"})
    changed = card(annotate={"k": 2}, train={"distillation": 0.25})
    assert "K = 2, distillation = 0.25" in changed
    assert "10 global clusters" in card(annotate={"clustering": "kmeans"})
    baseline = card(train={"method": "simcse"})
    assert "with SimCSE" in baseline
    assert "started from" in baseline
    assert "K = " not in baseline


def counted(monkeypatch: pytest.MonkeyPatch, by_lane: list[int] | None = None, **counts: int) -> None:
    """Count examples as a round does, where the stage finds `counts`."""
    settings = Settings.model_validate(
        {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}, "train": {"batch_size": 10}}
    )
    nowhere = Storage("nowhere")
    found = Stage("examples", "f", nowhere, {"examples_by_lane": by_lane or [counts["examples"]], "short": 0} | counts)
    monkeypatch.setattr(iteration_stages, "run_stage", lambda *_: found)
    store = TokenStore(nowhere, "f", {"shards": 1, "lanes": len(by_lane or [1])})
    one = iteration_stages.IterationStages(nowhere, nowhere, settings, store, ["train"], "halves", {}, None, None)
    one.count(one.documents, idc(), 1)


def test_a_corpus_that_gives_no_example_is_refused_before_training(monkeypatch):
    with pytest.raises(
        ValueError, match=r"corpus\.source: none of the 7 .* all have no two different sentences in one cluster"
    ):
        counted(monkeypatch, examples=0, documents=0, none=7)


def test_fewer_documents_with_examples_than_a_batch_are_spoken_of(monkeypatch, capsys):
    counted(monkeypatch, examples=90, documents=9, none=7)
    said = capsys.readouterr().out
    assert "7 more have no two different sentences in one cluster" in said
    assert "train.batch_size = 10 is more than the 9 documents that give examples" in said
    counted(monkeypatch, examples=90, documents=10, none=0)
    assert capsys.readouterr().out == "  examples: 90 of 10 documents\n"


def test_a_document_with_most_of_the_examples_is_spoken_of(monkeypatch, capsys):
    """Few lanes have much each by themselves."""
    counted(monkeypatch, [10] * 63 + [300], examples=930, documents=90, none=0)
    assert "warning: 32% of the examples are of one lane of 64, most likely of one document" in capsys.readouterr().out
    for even in ([10] * 64, [10, 20, 60]):
        counted(monkeypatch, even, examples=sum(even), documents=90, none=0)
        assert "warning" not in capsys.readouterr().out
