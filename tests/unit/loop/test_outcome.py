"""Whom the verdict holds a result against, and which questions judge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.loop import outcome
from infocse_ray.retrieval.bootstrap import Lead
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch):
    """The verdict on a result whose lead over each start is between `low` and `high`, by split."""

    def judge(
        leads: dict[str, tuple[float, float]], asked: dict[str, int], returned: bool = False, among: int = 1
    ) -> dict[str, Any]:
        def compare(ours: Storage, theirs: Storage, metric: str) -> Lead:
            start, split = theirs.relative.split("/")
            low, high = leads[start]
            return Lead((low + high) / 2, low, high, 0.5, 4 * asked[split], asked[split])

        monkeypatch.setattr(outcome, "compare", compare)
        names = [f"{name}/{split}" for name in (*leads, "result") for split in asked]
        stages = {n: Stage("evaluate", n, Storage("/", n), {"metrics": {"mrr": 0.5}}) for n in names}
        return outcome._judged(stages, "whitened", returned, "mrr", among)

    return judge


def test_the_test_judges_unless_it_asks_too_few(judged):
    leads = {"start": (0.1, 0.2), "whitened": (0.01, 0.1)}
    assert judged(leads, {"test": 10, "valid": 50})["judged_on"] == "test"
    few = judged(leads, {"test": 9, "valid": 50})
    assert (few["judged_on"], few["label"], few["test"]["label"]) == ("validation", "WIN", "LEVEL")
    assert judged(leads, {"test": 9, "valid": 9})["judged_on"] == "test"


def test_a_lead_on_what_chose_it_must_be_more_than_that_of_the_best_by_luck(judged):
    leads = {"start": (0.1, 0.2), "whitened": (0.01, 0.1)}
    assert judged(leads, {"valid": 50}, among=1)["label"] == "WIN"
    chosen = judged(leads, {"valid": 50}, among=23)
    assert (chosen["label"], chosen["validation"]["chosen_among"]) == ("LEVEL", 23)
    assert "of the best of 23)" in chosen["line"]
    assert chosen["validation"]["low"] < 0 < chosen["validation"]["high"] == 0.1
    tested = judged(leads, {"test": 50, "valid": 50}, among=23)
    assert (tested["label"], tested["test"]["chosen_among"]) == ("WIN", 1), "the test has chosen none"
    assert judged({"start": (0.1, 0.2), "whitened": (-0.2, -0.1)}, {"valid": 50}, among=23)["label"] == "LOSS"
    assert "best of" not in judged(leads, {"valid": 50}, returned=True, among=23)["line"]


def test_what_validation_chose_among():
    history = [{"step": step} for step in (0, 24, 48)]
    assert outcome._validated({"history": history, "train": {"between": [{}, {}, {}]}}) == 5
    assert outcome._validated({"history": history}) == 2
    assert outcome._validated({"iteration": 0}) == 0


def test_whitening_alone_is_the_best_of_its_powers_where_these_questions_chose_one():
    def powers(whitening: dict[str, Any] | None, on: str = "sentence") -> int:
        return outcome._powers(SimpleNamespace(whitening=whitening, judged_on=on))  # pyright: ignore

    chosen = {"power": 1.0, "scores": {"0": 0.4, "0.5": 0.5, "1": 0.6}}
    assert powers(chosen) == 3
    assert powers(chosen, on="counterpart") == 0, "labels chose none"
    assert powers({"power": 1.0, "scores": {}}) == powers(None) == 0


@pytest.mark.parametrize("returned", [False, True])
def test_a_result_that_is_worse_than_the_encoder_as_it_came_has_lost(judged, capsys, returned: bool):
    lost = judged({"start": (-0.2, -0.1), "whitened": (0.01, 0.1)}, {"test": 100}, returned)
    assert (lost["label"], lost["over"]) == ("LOSS", "start")
    assert lost["line"].startswith("LOSS, against the encoder as it came: test mrr")
    assert "set encoder.whiten to off" in capsys.readouterr().out
    level = judged({"start": (-0.1, 0.2), "whitened": (0.01, 0.1)}, {"test": 100}, returned)
    assert (level["label"], level["over"]) == ("START RETURNED" if returned else "WIN", "whitened")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("whitened", [(-0.3, -0.1), (-0.3, 0.05), (-0.19, -0.09)])
def test_whitening_is_not_blamed_for_what_training_lost(judged, capsys, whitened: tuple[float, float]):
    lost = judged({"start": (-0.2, -0.02), "whitened": whitened}, {"test": 100})
    assert (lost["label"], lost["over"]) == ("LOSS", "start")
    assert "encoder.whiten" not in capsys.readouterr().out


def test_a_result_that_scores_below_the_encoder_as_it_came_has_not_won(judged, capsys):
    below = judged({"start": (-0.2, 0.1), "whitened": (0.01, 0.1)}, {"test": 100})
    assert (below["label"], below["over"]) == ("LEVEL", "start")
    assert "warning: it is better than the start whitened, but" in capsys.readouterr().out


def test_the_line_has_every_split_and_the_label_of_the_one_that_judges(judged):
    leads = {"start": (0.1, 0.2), "whitened": (0.01, 0.1)}
    each = "mrr 0.5000 to 0.5000, +0.0550 (95 % interval +0.0100 to +0.1000)"
    few = " of 9 documents, too few to tell"
    both = judged(leads, {"test": 9, "valid": 50})
    assert both["line"] == f"WIN, against the encoder as it came, whitened: test {each}{few}; validation {each}"
    returned = judged(leads, {"valid": 50}, returned=True)
    assert returned["line"] == "START RETURNED, against the encoder as it came, whitened: validation mrr 0.5000"
