"""Which pilot is chosen, and what is when none is good."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from infocse_ray.errors import NonFinite, NoSpace, StorageUnavailable, TrainingStopped
from infocse_ray.loop import infocse, recipe
from infocse_ray.loop.iterate import Iterated
from infocse_ray.methods.recipes import NOTHING, RECIPES
from infocse_ray.retrieval.bootstrap import Lead
from infocse_ray.retrieval.verdict import FEWEST
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage

SETTINGS = Settings.model_validate(
    {"name": "r", "recipe": "auto", "corpus": {"source": "a"}, "encoder": {"model": "m"}, "validate": {"metric": "mrr"}}
)
NAMES = list(RECIPES)


def scored(mrr: float) -> dict[str, Any]:
    return {"mrr": mrr, "mrr_low": mrr, "mrr_high": mrr, "recall@5": 1 - mrr}


class Looking(SimpleNamespace):
    """A run whose evaluations are in folders by the encoders' names."""

    def evaluate(self, looks: dict[str, Any]) -> dict[str, Any]:
        assert {look.split for look in looks.values()} == {"valid"}
        return {name: SimpleNamespace(folder=look.encoder) for name, look in looks.items()}


def chosen_among(
    monkeypatch: pytest.MonkeyPatch, *scores: float | None, start: float = 0.5, luck: float = 0.0, documents: int = 99
) -> tuple[Any, Any]:
    """What is chosen where the pilots came to these scores; None: that recipe doesn't suit the corpus.

    Differences up to `luck` are within their interval, over so many documents.
    """

    def lead(ours: str, theirs: str, metric: str) -> Any:
        ahead = (scores[NAMES.index(name)] or 0.0 for name in (ours, theirs))
        lead = next(ahead) - next(ahead)
        return Lead(lead, lead - luck, lead + luck, 0.1, documents, documents)

    monkeypatch.setattr(recipe, "compare", lead)

    def pilot(run: Any, name: str, _: Any) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
        score = scores[NAMES.index(name)]
        if score is None:
            raise recipe._LeftOut("all have one sentence")
        return [scored(start), scored(score)], {"validation": scored(score)}, name

    monkeypatch.setattr(recipe, "_pilot", pilot)
    monkeypatch.setattr(recipe, "_with", lambda run, one: one)
    run: Any = Looking(settings=SETTINGS)
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


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ((0.7, 0.65, 0.6), 1),  # the default is no worse, beyond luck
        ((0.7, 0.55, 0.6), 0),
        ((0.51, 0.5, 0.5), 0),  # the default is no better than the start
        ((0.55, 0.52, 0.59), 1),
        ((None, None, 0.6), 2),
    ],
)
def test_what_is_level_with_the_default_gives_way_to_it(monkeypatch, capsys, scores, best):
    trained, said = chosen_among(monkeypatch, *scores, luck=0.1)
    assert (trained, said["chosen"]) == (RECIPES[NAMES[best]], NAMES[best])
    assert ("isn't better than infocse_distillation beyond luck" in capsys.readouterr().out) == (best == 1)


def test_of_few_documents_no_lead_over_the_default_is_one(monkeypatch, capsys):
    assert chosen_among(monkeypatch, 0.7, 0.55, 0.6, luck=0.1, documents=FEWEST)[1]["chosen"] == NAMES[0]
    assert chosen_among(monkeypatch, 0.7, 0.55, 0.6, luck=0.1, documents=FEWEST - 1)[1]["chosen"] == NAMES[1]


@pytest.mark.parametrize("scores", [(0.5, 0.5, 0.5), (0.4, 0.49, None)])
def test_where_no_pilot_beats_the_start_nothing_is_trained(monkeypatch, capsys, scores):
    trained, said = chosen_among(monkeypatch, *scores)
    assert trained == NOTHING
    assert said["chosen"] is None
    assert "no pilot beats the start" in capsys.readouterr().out


def test_where_nothing_can_be_tried_the_reason_is_said(monkeypatch):
    with pytest.raises(ValueError, match="recipe = auto: nothing can be trained: all have one sentence"):
        chosen_among(monkeypatch, None, None, None)


class Stages(NamedTuple):
    """What a pilot's trainings are told, of `IterationStages`."""

    settings: Settings
    phase: str = "iteration"


@pytest.fixture
def pilots(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Any, list[str]]]:
    """What is chosen, what is said of it and who was trained, where trainings end with these scores or errors."""

    def choose(**ends: float | Exception) -> tuple[Any, Any, list[str]]:
        trained: list[str] = []

        def train_iteration(run: Any, stages: Stages, *_: Any) -> Any:
            trained.append(stages.phase.removeprefix("pilot_"))
            end = ends[trained[-1]]
            if isinstance(end, Exception):
                raise end
            summary = {"history": [scored(0.5), scored(end)], "steps": 9, "seconds": 1.0}
            return {"train": Stage("train", "f", Storage("here"), summary)}, None

        def trains(run: Any, one: Any) -> Any:
            settings = one.of(SETTINGS)
            inputs = SimpleNamespace(method="a method")
            return SimpleNamespace(recipe=one, settings=settings, iteration_stages=Stages(settings), inputs=inputs)

        monkeypatch.setattr(recipe, "train_iteration", train_iteration)
        monkeypatch.setattr(recipe, "_with", trains)
        run: Any = Looking(settings=SETTINGS, start="start")
        chosen, said = recipe.choose(run)
        return chosen.recipe, said, trained  # pyright: ignore[reportAttributeAccessIssue]

    return choose


@pytest.mark.parametrize("first", [True, False], ids=["the first", "the last"])
def test_a_pilot_whose_loss_is_not_finite_is_left_out_and_the_others_go_on(pilots, capsys, first: bool):
    broken = NonFinite("step 3: the loss is not finite; lower train.learning_rate")
    scores: dict[str, Any] = {"infocse": 0.6, "infocse_distillation": 0.7, "simcse": 0.65}
    name = NAMES[0 if first else -1]
    chosen, said, trained = pilots(**scores | {name: broken})
    assert (chosen, said["chosen"], said["start"]) == (RECIPES[NAMES[1]], NAMES[1], scored(0.5))
    assert trained == NAMES
    assert said["pilots"][name] == {"left_out": str(broken)}
    assert [other for other in NAMES if "validation" in said["pilots"][other]] == [one for one in NAMES if one != name]
    assert f"left out: {broken}" in capsys.readouterr().out


def test_where_every_loss_becomes_non_finite_the_fix_is_said(pilots):
    with pytest.raises(ValueError, match=r"recipe = auto: nothing can be trained: step 3: .* train\.learning_rate"):
        pilots(**dict.fromkeys(NAMES, NonFinite("step 3: the loss is not finite; lower train.learning_rate")))


@pytest.mark.parametrize(
    "error",
    [
        TrainingStopped("step 1: out of GPU memory"),
        TrainingStopped("checkpoints: the workers failed"),
        NoSpace("no space left"),
        StorageUnavailable("out of reach"),
    ],
    ids=str,
)
def test_what_a_recipe_did_not_cause_ends_the_run(pilots, error: Exception):
    """As it would have ended each of the others, or come at another time: what is chosen mustn't depend on it."""
    with pytest.raises(type(error), match=str(error)):
        pilots(infocse=0.6, infocse_distillation=error, simcse=0.7)


def test_without_being_asked_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(recipe, "_pilot", lambda *_: pytest.fail("a pilot ran"))
    run: Any = SimpleNamespace(settings=SETTINGS.model_copy(update={"recipe": None}))
    assert recipe.choose(run) == (run, {})


def test_what_a_run_returns_was_chosen_among_pilots_too(monkeypatch):
    """A lead on validation has to be more than that of the best of all that it was asked about."""
    pilots = {"infocse": {"history": [1, 2]}, "simcse": {"left_out": "no dropout"}}
    iterations: list[dict[str, Any]] = [{"iteration": 0, "validation": {}}, {"iteration": 1, "history": [1, 2, 3]}]
    told: list[Any] = []

    def outcome(run: Any, result: str, more: Any, trainings: list[Any]) -> Any:
        told.extend(trainings)
        return SimpleNamespace(results={"result": {"validation": {}}}, tests=lambda _: {})

    monkeypatch.setattr(infocse, "look_before", lambda run, _: run)
    monkeypatch.setattr(infocse, "choose", lambda run: (run, {"chosen": "infocse", "pilots": pilots}))
    monkeypatch.setattr(infocse, "iterate", lambda *_, **__: Iterated(["start", "trained"], iterations, 1))  # pyright: ignore
    monkeypatch.setattr(infocse, "outcome", outcome)
    run: Any = SimpleNamespace(
        settings=SETTINGS,
        start="start",
        whitening=None,
        store=SimpleNamespace(summary={"labelled": {"test": 0}}),
        inputs=SimpleNamespace(sts=None),
        folder=Storage("here"),
        finish=lambda encoder, card, results: results,
    )
    infocse._pretrain(run, None, False)
    assert [one.get("history") for one in told] == [None, [1, 2, 3], [1, 2], None]


def test_a_recipe_is_the_settings_with_its_training():
    for one in [*RECIPES.values(), NOTHING]:
        settings = one.of(SETTINGS)
        assert settings.recipe is None, "a run with these settings does the same without pilots"
        assert (settings.train.method, settings.train.distillation) == one
        assert Settings.model_validate(settings.model_dump()) == settings
