"""What a run says of its validation before it trains: the start's scores, and what is doubtful about them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.loop import infocse, outcome, plusplus
from infocse_ray.loop import run as run_module
from infocse_ray.loop.run import Run
from infocse_ray.retrieval.bootstrap import Lead
from infocse_ray.retrieval.ranks import metrics_of
from infocse_ray.retrieval.refit import WhiteningPlan
from infocse_ray.runtime.progress import warnings_kept
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage

HERE = Storage("here")
PLAN = WhiteningPlan(None, None, ["train"], 1)
CAME, WHITENED = (EncoderFolder(HERE, name, 16) for name in ("came", "whitened"))


class Stages(NamedTuple):
    """As of iterations."""

    root: Storage
    run: Storage
    store: Any
    on: str
    where: dict[str, Any]
    settings: Settings
    whitening: WhiteningPlan | None


class Trains(Exception):
    """Something is about to be trained, or labels drawn."""


def few_shot(run: Run) -> None:
    plusplus._few_shot(run, 1, fall_back=True, also_plain=False)


def without_labels(run: Run) -> None:
    infocse._pretrain(run, None, also_plain=False)


def compared(run: Run) -> None:
    infocse._pretrain(run, None, also_plain=True)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, list[str]]]:
    """What a run says before it trains, and its warnings; each encoder finds so many of so many at the second place."""
    begun = list[Run]()

    def begin(
        found: dict[str, tuple[int, int]],
        start: EncoderFolder = WHITENED,
        work: Callable[[Run], None] = without_labels,
        method: Any = "a method",
        on: str = "counterpart",
        high: float = 0.01,
        columns: tuple[str, ...] = (),
        valid: int = 9,
        **sections: Any,
    ) -> tuple[str, list[str]]:
        def evaluate(root: Any, folder: Any, store: Any, asked: list[Any], *_: Any) -> list[Stage]:
            stages = []
            for one in asked:
                right, questions = found[one.encoder.fingerprint]
                metrics = metrics_of(np.where(np.arange(questions) < right, 2, 30), 500)
                stages.append(Stage("evaluate", "e", HERE, {"metrics": metrics}))
            return stages

        def begins(run: Run, *_: Any) -> None:
            begun.append(run)
            raise Trains

        monkeypatch.setattr(run_module, "evaluate", evaluate)
        monkeypatch.setattr(outcome, "compare", lambda *_: Lead(-0.05, high - 0.1, high, 1.0, 1000, 1000))
        monkeypatch.setattr(infocse, "choose", begins)
        monkeypatch.setattr(plusplus, "draw_labels", begins)
        encoder = {"model": "m", **sections.pop("encoder", {})}
        given = {"name": "r", "corpus": {"source": "a"}, "encoder": encoder, "validate": {"metric": "recall@5"}}
        settings = Settings.model_validate(given | sections)
        store = SimpleNamespace(summary={"labelled": {"valid": 9}, "documents": {"valid": valid}})
        stages: Any = Stages(HERE, HERE, store, on, {"train": None}, settings, PLAN if start == WHITENED else None)
        inputs: Any = SimpleNamespace(method=method, initialization=None, source=SimpleNamespace(columns=columns))
        manifest: Any = SimpleNamespace(add=lambda *_: None)
        run = Run(settings, inputs, manifest, stages, CAME, start, None, work is few_shot, "i")
        with warnings_kept() as warnings, pytest.raises(Trains):
            work(run)
        begin.run = begun[-1]
        return capsys.readouterr().out, list(warnings)

    return begin


def test_a_good_validation_is_told_without_a_warning(said) -> None:
    out, warnings = said({"came": (600, 1000), "whitened": (700, 1000)})
    first, second = out.splitlines()
    assert first.startswith("the encoder as it came: validation recall@5 0.6000 (")
    assert second.startswith("the encoder as it came, whitened: validation recall@5 0.7000 (")
    assert not warnings


@pytest.mark.parametrize("work", [without_labels, few_shot])
def test_too_few_questions_and_a_ceiling_are_warned_of_before_anything_is_trained(said, work) -> None:
    _, [few] = said({"came": (600, 1000), "whitened": (70, 100)}, work=work)
    assert few.startswith("too few questions: recall@5 is 0.7000 (")
    _, [ceiling] = said({"came": (600, 1000), "whitened": (990, 1000)}, work=work)
    assert ceiling.startswith("at its ceiling before training: recall@5 is 0.9900; ")
    assert "set validate.on to sentence" in ceiling


@pytest.mark.parametrize(
    ("given", "helps"),
    [
        ({}, "raise corpus.valid_fraction"),
        ({"columns": ("split",)}, "mark more documents valid in the split column"),
        ({"valid": 5_000}, "raise validate.max_documents"),
        ({"valid": 5_000, "columns": ("split",)}, "raise validate.max_documents"),
    ],
)
def test_it_is_said_what_would_ask_more(said, given: dict[str, Any], helps: str) -> None:
    _, [few] = said({"came": (600, 1000), "whitened": (70, 100)}, **given)
    assert few.endswith(f": {helps}")


def test_what_is_doubted_is_the_score_that_training_begins_with(said) -> None:
    """Not that of the encoder as it came, where it is whitened; and what is asked already isn't proposed."""
    assert said({"came": (990, 1000), "whitened": (700, 1000)})[1] == []
    _, [ceiling] = said({"came": (990, 1000)}, start=CAME, on="sentence")
    assert "at its ceiling" in ceiling
    assert "validate.on" not in ceiling


TAKES_AWAY = "whitening takes away: validation recall@5 0.7000 to 0.6500, -0.0500 (95 % interval -0.1100 to -0.0100); "


@pytest.mark.parametrize(("work", "method"), [(without_labels, "a method"), (without_labels, None), (few_shot, None)])
def test_whitening_that_takes_away_is_left_out_where_it_is_no_luck(said, work, method) -> None:
    worse = {"came": (700, 1000), "whitened": (650, 1000)}
    _, [warning] = said(worse, work=work, method=method, high=-0.01)
    assert warning == TAKES_AWAY + "it is left out; a number as encoder.whiten keeps it"
    run = said.run
    assert (run.start, run.left_out, run.whitening) == (CAME, WHITENED, None)
    assert run.settings.encoder.whiten == run.iteration_stages.settings.encoder.whiten == "off"
    assert run.iteration_stages.whitening is None
    assert outcome._began(run) == {"start": CAME, "whitened": WHITENED}, "both are shown"
    assert said(worse, work=work, method=method, high=0.01)[1] == []
    assert (said.run.start, said.run.left_out) == (WHITENED, None)
    assert said.run.iteration_stages.whitening == PLAN


@pytest.mark.parametrize(
    ("work", "sections"),
    [
        (compared, {}),
        (without_labels, {"encoder": {"whiten": 0.5}}),
        (without_labels, {"encoder": {"dimensions": 8}}),
        (without_labels, {"train": {"never_worse": False}}),
        (without_labels, {"train": {"whitened": True}}),
    ],
)
def test_whitening_that_was_asked_for_is_warned_of(said, work, sections) -> None:
    _, [warning] = said({"came": (700, 1000), "whitened": (650, 1000)}, work=work, high=-0.01, **sections)
    assert warning == TAKES_AWAY + "--encoder.whiten off leaves it out"
    assert (said.run.start, said.run.left_out) == (WHITENED, None)


def test_what_is_doubted_is_what_is_left(said) -> None:
    _, [_, ceiling] = said({"came": (990, 1000), "whitened": (700, 1000)}, high=-0.01)
    assert "at its ceiling" in ceiling


def test_what_trains_nothing_is_not_doubted(said) -> None:
    assert said({"came": (60, 100), "whitened": (70, 100)}, method=None)[1] == []
