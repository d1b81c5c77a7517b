"""Which pilot is chosen, and what is when none is good."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.loop import recipe
from infocse_ray.methods.recipes import NOTHING, RECIPES
from infocse_ray.settings import Settings

SETTINGS = Settings.model_validate(
    {"name": "r", "recipe": "auto", "corpus": {"source": "a"}, "encoder": {"model": "m"}, "validate": {"metric": "mrr"}}
)
NAMES = list(RECIPES)


def scored(mrr: float) -> dict[str, Any]:
    return {"mrr": mrr, "mrr_low": mrr, "mrr_high": mrr, "recall@5": 1 - mrr}


def chosen_among(monkeypatch: pytest.MonkeyPatch, *scores: float | None, start: float = 0.5) -> tuple[Any, Any]:
    """What is chosen where the pilots came to these scores; None: that recipe doesn't suit the corpus."""

    def pilot(run: Any, name: str, _: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        score = scores[NAMES.index(name)]
        if score is None:
            raise recipe._LeftOut("all have one sentence")
        return [scored(start), scored(score)], {"validation": scored(score)}

    monkeypatch.setattr(recipe, "_pilot", pilot)
    monkeypatch.setattr(recipe, "_with", lambda run, one: one)
    run: Any = SimpleNamespace(settings=SETTINGS)
    return recipe.choose(run)


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ((0.6, 0.7, 0.65), 1),
        ((0.7, 0.7, 0.6), 0),
        ((0.4, 0.45, 0.51), 2),
        ((None, None, 0.6), 2),
        ((0.6, None, 0.7), 2),
    ],
)
def test_the_best_by_the_runs_metric_is_chosen(monkeypatch, capsys, scores, best):
    trained, said = chosen_among(monkeypatch, *scores)
    assert trained == RECIPES[NAMES[best]]
    assert said["chosen"] == NAMES[best]
    assert said["start"] == scored(0.5)
    assert {name for name, pilot in said["pilots"].items() if "left_out" in pilot} == {
        name for name, score in zip(NAMES, scores, strict=True) if score is None
    }
    out = capsys.readouterr().out
    assert f"recipe: {NAMES[best]}, for validation mrr: start 0.5000" in out


@pytest.mark.parametrize("scores", [(0.5, 0.5, 0.5), (0.4, 0.49, None)])
def test_where_no_pilot_beats_the_start_nothing_is_trained(monkeypatch, capsys, scores):
    trained, said = chosen_among(monkeypatch, *scores)
    assert trained == NOTHING
    assert said["chosen"] is None
    assert "no pilot beats the start" in capsys.readouterr().out


def test_where_nothing_can_be_tried_the_reason_is_said(monkeypatch):
    with pytest.raises(ValueError, match="recipe = auto: nothing can be trained: all have one sentence"):
        chosen_among(monkeypatch, None, None, None)


def test_without_being_asked_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(recipe, "_pilot", lambda *_: pytest.fail("a pilot ran"))
    run: Any = SimpleNamespace(settings=SETTINGS.model_copy(update={"recipe": None}))
    assert recipe.choose(run) == (run, {})


def test_a_recipe_is_the_settings_with_its_training():
    for one in [*RECIPES.values(), NOTHING]:
        settings = one.of(SETTINGS)
        assert settings.recipe is None, "a run with these settings does the same without pilots"
        assert (settings.train.method, settings.train.distillation) == one
        assert Settings.model_validate(settings.model_dump()) == settings
