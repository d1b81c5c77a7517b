"""How `minutes` sizes a run's trainings, and what it says of that."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.loop import minutes
from infocse_ray.loop.estimate import Work, work_of
from infocse_ray.loop.minutes import sized
from infocse_ray.loop.run import Run
from infocse_ray.loop.speed import Speed
from infocse_ray.settings import Settings, Train
from infocse_ray.storage.folder import Storage
from tests.unit.loop.estimated import SPEED, WORK, run_of

DEFAULT = Train()


def test_minutes_are_settled_once_and_found_again(tmp_path, monkeypatch, capsys):
    measured: list[int] = []

    def measure(run: Run) -> Speed:
        measured.append(1)
        return Speed(1000.0 * len(measured), 5.0)

    monkeypatch.setattr(minutes, "measured", measure)
    root = Storage.open(str(tmp_path))
    first = sized(run_of(root, minutes=60), time.monotonic())
    tokens = first.settings.train.max_tokens
    assert tokens is not None
    assert tokens == first.settings.train.max_steps == first.iteration_stages.settings.train.max_tokens
    for settings in (first.settings, first.iteration_stages.settings):
        assert settings.minutes is None, "given again these settings settle nothing anew"
    said = capsys.readouterr().out
    assert f"minutes = 60: {tokens:,} tokens" in said
    assert "some 60 min: " in said
    again = sized(run_of(root, minutes=60), time.monotonic() - 500)
    assert again.settings == first.settings
    assert len(measured) == 1, "a run that goes on doesn't measure again"
    other = sized(run_of(root, minutes=120), time.monotonic()).settings.train.max_tokens
    assert other is not None
    assert other > tokens


@pytest.fixture
def tokens_of(tmp_path, monkeypatch) -> Callable[..., int]:
    """Tokens that are settled for so many seconds, where the work is what a function makes of train.max_tokens."""

    def tokens_of(work: Callable[[int], Work], seconds: float, max_steps: int = 10**6) -> int:
        monkeypatch.setattr(minutes, "measured", lambda run: SPEED)
        monkeypatch.setattr(minutes, "work_of", lambda run: work(run.settings.train.max_tokens))
        root = Storage.open(tempfile.mkdtemp(dir=tmp_path))
        run = run_of(root, minutes=seconds / 60, train={"max_steps": max_steps})
        tokens = sized(run, time.monotonic()).settings.train.max_tokens
        assert tokens is not None
        return tokens

    return tokens_of


MANY = WORK._replace(pilots=3, piloted=90_000.0)


@pytest.mark.parametrize(
    "work", [WORK, WORK._replace(texts=20_000.0, started=0.25), MANY, MANY._replace(texts=50_000.0, started=0.25)]
)
@pytest.mark.parametrize("seconds", [600.0, 3600.0, 36_000.0])  # of `MANY` trainings are shorter than pilots at first
def test_tokens_are_those_whose_estimate_is_the_time_there_is(tokens_of, work: Work, seconds: float):
    assert work.estimate(SPEED, tokens_of(lambda _: work, seconds)).seconds == pytest.approx(seconds, rel=2e-3)


@pytest.mark.parametrize("seconds", [1_290.0, 1_330.0, 1_400.0, 1_470.0])
def test_where_a_longer_training_takes_less_it_is_as_long_as_that(tokens_of, seconds: float):
    work = MANY._replace(texts=80_000.0, started=0.25, pilots=0)  # embedded once from 160,000 tokens on
    most = max(tokens for tokens in range(10_000, 400_000, 100) if work.estimate(SPEED, tokens).seconds <= seconds)
    for max_steps in (10**6, 640_000):  # whatever is tried first
        assert tokens_of(lambda _: work, seconds, max_steps) == pytest.approx(most, rel=3e-3)


def test_there_is_a_step_however_short_the_time(tokens_of):
    assert tokens_of(lambda _: WORK, 10.0) == WORK.step


def test_with_little_time_little_is_annotated(tokens_of):
    def work(tokens: int | None) -> Work:  # by halves, as `annotate.share`
        return WORK._replace(annotated=50_000.0 if tokens and tokens <= 60_000 else 400_000.0)

    assert tokens_of(work, 700.0) == pytest.approx(60_000, rel=2e-3), "more would have four fifths annotated in vain"
    assert work(60_000).estimate(SPEED, 60_000).seconds < 700 < work(60_001).estimate(SPEED, 60_001).seconds
    assert work(10**6).estimate(SPEED, tokens_of(work, 3600.0)).seconds == pytest.approx(3600, rel=2e-3)


def test_too_little_time_is_said_with_what_it_takes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(minutes, "measured", lambda run: Speed(100.0, 5.0))
    run = sized(run_of(Storage.open(str(tmp_path)), minutes=1), time.monotonic())
    assert run.settings.train.max_tokens == 2560
    assert (run.settings.loop.max_iterations, run.settings.train.interpolation) == (1, []), "as little as there can be"
    assert "warning: minutes = 1: with one step in each training the run still takes about " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("share", "annotated", "look", "said"),
    [
        (0.3, 1_700_000.0, 2_000.0, "of which annotating is 28 min; raise it, or lower annotate.share"),
        ("auto", 1_700_000.0, 2_000.0, "of which annotating is 28 min; raise it"),
        ("auto", 10_000.0, 830_000.0, "of which annotating is 15 s; raise it, or lower validate.max_documents"),
        ("auto", 10_000.0, 2_000.0, None),
    ],
)
def test_time_that_goes_into_something_else_than_training_is_said(
    tmp_path, monkeypatch, capsys, share: Any, annotated: float, look: float, said: str | None
):
    one = WORK._replace(annotations=1, trainings=1, annotated=annotated, look=look, looks=2, between=1e9)
    monkeypatch.setattr(minutes, "measured", lambda run: SPEED)
    monkeypatch.setattr(minutes, "work_of", lambda run: one)
    root = Storage.open(str(tmp_path))
    sized(run_of(root, minutes=30, annotate={"share": share}), time.monotonic())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
    if said is None:
        assert lines == []
    else:
        assert lines == [f"warning: minutes = 30: training is little of 30 min, {said}"]
    # Where there is time for all that was asked for, it is as much as that.
    sized(run_of(root / "few", minutes=30, train={"max_steps": 1}, annotate={"share": share}), time.monotonic())
    assert "warning" not in capsys.readouterr().out


def test_where_there_is_little_time_fewer_iterations_train(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(minutes, "measured", lambda run: Speed(1000.0, 5.0))
    root = Storage.open(str(tmp_path))

    def iterations(minutes: float, **sections: Any) -> tuple[int, float]:
        run = sized(run_of(root, minutes=minutes, **sections), time.monotonic())
        tokens = run.settings.train.max_tokens
        assert run.iteration_stages.settings == run.settings
        assert tokens is not None
        estimate = work_of(run).estimate(Speed(1000.0, 5.0), tokens)
        assert estimate.seconds == pytest.approx(60 * minutes, rel=0.02)
        return run.settings.loop.max_iterations, estimate.training / estimate.seconds

    most, share = iterations(60)
    assert (most, share > 0.4) == (3, True)
    assert "loop.max_iterations" not in capsys.readouterr().out
    most, share = iterations(8)
    assert most == 1, "with two less than two fifths of it would be training"
    assert share > 0.4
    assert "steps) in each training; loop.max_iterations = 1, not 3, lest little of " in capsys.readouterr().out
    assert iterations(10)[0] == 2
    assert iterations(8, loop={"max_iterations": 1})[0] == 1
    assert "validate.max_documents" not in capsys.readouterr().out, "100 are few"
    simcse = sized(run_of(root, minutes=2, train={"method": "simcse"}), time.monotonic())
    assert simcse.settings.loop.max_iterations == 3, "it has one iteration whatever this says"


def test_where_there_is_little_time_fewer_documents_validate_before_there_are_fewer_iterations(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(minutes, "measured", lambda run: Speed(10_000.0, 5.0))
    root = Storage.open(str(tmp_path))

    def settled(minutes: float, labelled: int = 21_000, compared: bool = False) -> tuple[int, int]:
        run = run_of(root, minutes=minutes, validate={"max_documents": 4000, "max_candidates": 100})
        counts = {"tokens": 3_100_000, "sentences": 310_000, "documents": {"train": 10_000, "valid": 21_000, "test": 0}}
        counts |= {"labelled": {"valid": labelled, "test": 0}}
        run.store.summary.update(counts)
        run = sized(run, time.monotonic(), compared)
        return run.settings.validate.max_documents, run.settings.loop.max_iterations

    assert settled(300) == (4_000, 3)
    assert "lest" not in capsys.readouterr().out
    assert settled(45) == (2_000, 3)
    said = capsys.readouterr().out
    assert "steps) in each training; validate.max_documents = 2,000, not 4,000, lest little of the time" in said
    assert settled(30) == (1_000, 2)
    said = capsys.readouterr().out
    assert "loop.max_iterations = 2, not 3 and validate.max_documents = 1,000, not 4,000, lest little" in said
    assert settled(1) == (1_000, 1)
    assert settled(31, compared=True) == (4_000, 1), "trials are asked alike"
    assert settled(32, labelled=200)[0] == 4_000, "200 ask whatever it is"


def test_where_there_is_less_time_still_no_weights_between_two_are_validated(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(minutes, "measured", lambda run: Speed(1000.0, 5.0))
    root = Storage.open(str(tmp_path))
    five = sized(run_of(root, minutes=5), time.monotonic())
    assert (five.settings.loop.max_iterations, five.settings.train.interpolation) == (1, DEFAULT.interpolation)
    assert "train.interpolation" not in capsys.readouterr().out
    four = sized(run_of(root, minutes=4), time.monotonic())
    for settings in (four.settings, four.iteration_stages.settings):
        assert (settings.loop.max_iterations, settings.train.interpolation) == (1, [])
    assert "loop.max_iterations = 1, not 3 and train.interpolation = [], lest little" in capsys.readouterr().out
    assert sized(run_of(root, minutes=4), time.monotonic()).settings == four.settings
    capsys.readouterr()
    sized(run_of(root / "none", minutes=4, train={"interpolation": []}), time.monotonic())
    assert "train.interpolation" not in capsys.readouterr().out


def test_what_limits_tokens_besides_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(minutes, "measured", lambda run: Speed(1000.0, 5.0))

    def settled(**sections: Any) -> tuple[int | None, int | None, int]:
        root = Storage.open(tempfile.mkdtemp(dir=tmp_path))
        settings = sized(run_of(root, minutes=60, **sections), time.monotonic()).settings
        return settings.train.max_tokens, settings.loop.initialization_tokens, settings.loop.max_iterations

    tokens, first, iterations = settled()
    assert first is None
    assert tokens is not None
    assert settled(train={"max_tokens": 64}) == (64, None, iterations), "no reason to train less often"
    assert settled(train={"max_tokens": 10**9})[0] == pytest.approx(tokens, rel=0.01)
    assert settled(loop={"initialization_tokens": 64})[1] == 64
    both = settled(loop={"initialization_tokens": 10**9})
    assert both[1] == both[0], "no training takes longer than there is time"


def test_however_much_time_there_is_steps_are_no_more_than_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(minutes, "measured", lambda run: Speed(1000.0, 5.0))
    few = sized(run_of(Storage.open(str(tmp_path)), minutes=60, train={"max_steps": 30}), time.monotonic()).settings
    assert (few.train.max_steps, few.train.max_tokens, few.loop.max_iterations) == (30, None, 3), "as without minutes"
    said = capsys.readouterr().out
    assert (
        "minutes = 60: 76,800 tokens (30 steps) in each training; train.max_steps ends it sooner than the time does"
        in said
    )
    more = sized(
        run_of(Storage.open(str(tmp_path / "c")), minutes=60, train={"max_steps": 40}), time.monotonic()
    ).settings
    assert more.train.max_steps == 40, "however short sentences are"
    assert more.train.max_tokens is not None
    assert more.train.max_tokens > 1.1 * 40 * 2560, "a step has special tokens besides, and prompts"
    assert "(40 steps) in each training; train.max_steps ends it sooner" in capsys.readouterr().out
    sized(run_of(Storage.open(str(tmp_path / "b")), minutes=60), time.monotonic())
    assert "train.max_steps" not in capsys.readouterr().out


def test_a_run_that_an_earlier_version_sized_goes_on_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(minutes, "run_stage", lambda *_: SimpleNamespace(summary=settled))
    settled = {"speed": [1000.0, 5.0, None], "max_tokens": 5000, "max_iterations": 2, "max_documents": 200}
    train = sized(run_of(minutes=60, train={"max_steps": 30}), time.monotonic()).settings.train
    assert (train.max_tokens, train.max_steps, train.interpolation) == (5000, 5000, DEFAULT.interpolation)


def test_runs_without_minutes_keep_their_identity():
    from infocse_ray.loop.identity import run_identity

    def identity(**sections: Any) -> str:
        return run_identity(run_of(**sections).settings, "s", "e", "t")

    assert identity() != identity(minutes=10) != identity(minutes=20)


@pytest.mark.parametrize("job", ["finetune", "plusplus"])
def test_minutes_and_a_choice_of_training_are_for_training_without_labels(job: str):
    from infocse_ray.loop import plusplus

    settings = Settings.model_validate(
        {"name": "r", "minutes": 5, "corpus": {"source": "a"}, "encoder": {"model": "m"}}
    )
    with pytest.raises(ValueError, match=r"minutes = 5: is for `infocse pretrain`; set finetune\.epochs"):
        getattr(plusplus, job)(settings)
    chooses = settings.model_copy(update={"minutes": None, "recipe": "auto"})
    with pytest.raises(ValueError, match="recipe = auto: is for `infocse pretrain`, whose metrics"):
        getattr(plusplus, job)(chooses)
