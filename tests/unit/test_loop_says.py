"""What a run says of itself: a harmful initialisation, and how the exported encoder came about."""

from __future__ import annotations

from typing import Any

import pytest

from infocse_ray.loop.card import model_card
from infocse_ray.loop.infocse import _warn_if_worse
from infocse_ray.settings import Settings


def scores(recall: float) -> dict[str, float]:
    return {"recall@5": recall, "recall@10": recall, "recall@20": recall, "mrr": recall}


@pytest.mark.parametrize(("start", "best", "warned"), [(0.5, 0.4, True), (0.5, 0.5, False), (0.4, 0.5, False)])
def test_an_initialisation_that_did_harm_is_spoken_of(start, best, warned, capsys):
    initialised = {"iteration": 0, "validation": scores(0.3), "history": [{"step": 0, **scores(start)}]}
    trained = {"iteration": 1, "validation": scores(best), "history": [{"step": 0, **scores(0.3)}]}
    _warn_if_worse([initialised, trained], 1, "recall@5")
    said = capsys.readouterr().out
    assert ("loop.initialization" in said) == warned
    if warned:
        assert "0.4000" in said
        assert "0.5000" in said
    _warn_if_worse([{"iteration": 0, "validation": scores(0.9)}], 0, "recall@5")
    assert "warning" not in capsys.readouterr().out


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
    assert "K = 1, temperature 1, batch 3200" in card()
    assert "initialised to with CONPONO" in card()
    changed = card(annotate={"mutual": True, "min_edge_quantile": 0.5}, train={"positive": "cluster"})
    assert "mutual edges, edges above quantile 0.5, positive = cluster" in changed
    assert "10 global clusters" in card(annotate={"method": "kmeans"})
    baseline = card(train={"strategy": "simcse"})
    assert "with SimCSE" in baseline
    assert "started from" in baseline
    assert "K = " not in baseline
