"""The best encoder on its way to storage: training goes on meanwhile, and no checkpoint names what isn't there."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train
from ray.train import Checkpoint

from infocse_ray.errors import NoSpace
from infocse_ray.storage.folder import Storage
from infocse_ray.train import loop
from infocse_ray.train.loop import Training
from tests.unit.train.test_training_worker import METRICS, FakeRayTrain, asked_at, begun_training, worker_of
from tests.unit.trainees import settings_for


@pytest.fixture
def training(tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    """Nine steps with a validation, better than the one before, and a checkpoint after every three."""
    asked_at(None, monkeypatch)
    settings = settings_for("simcse", tiny_encoder, interpolation=[], never_worse=False)
    training = begun_training(settings, tmp_path / "source", tmp_path / "stage", tiny_encoder, monkeypatch)
    better = itertools.count(1)
    scored = lambda *_: SimpleNamespace(metrics=dict.fromkeys(METRICS, float(next(better))) | {"queries": 100})  # noqa: E731
    monkeypatch.setattr(loop, "score", scored)
    return training


def of_models(upload: Callable[[str, Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `upload` do what brings an encoder to storage; it gets the encoder's name and what does it."""
    inner = Storage.upload

    def uploads(place: Storage, folder: str | os.PathLike[str], *more: Any) -> None:
        upload(place.name, lambda: inner(place, folder, *more))

    monkeypatch.setattr(Storage, "upload", uploads)


def test_training_goes_on_while_an_encoder_is_on_its_way_and_its_checkpoint_waits(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, stepped = list[str](), threading.Event()
    rays = FakeRayTrain(tmp_path / "ray", monkeypatch)
    begin = loop.begin_step

    def begins(*arguments: Any) -> Any:
        if arguments[-1] == 5:
            events.append("step 5")
            stepped.set()
        return begin(*arguments)

    def late(name: str, upload: Callable[[], None]) -> None:
        if name == "step-00000003":
            assert stepped.wait(30)
        upload()
        events.append(name)

    def reports(metrics: dict[str, Any], checkpoint: Checkpoint) -> None:
        events.append(f"checkpoint {metrics['step']}")
        rays._report(metrics, checkpoint)

    monkeypatch.setattr(loop, "begin_step", begins)
    monkeypatch.setattr(ray.train, "report", reports)
    of_models(late, monkeypatch)
    worker_of(training).run()
    named = [f"step-{step:08d}" for step in (3, 6, 9)]
    expected = ["step 5", named[0], "checkpoint 3", named[1], "checkpoint 6", named[2], "checkpoint 9"]
    assert events == expected
    chosen = (training.folder / "result.json").read_json()["chosen"]
    assert (chosen["kind"], chosen["step"]) == ("trained", 9)
    assert {name.split("/")[1] for name in training.folder.files() if name.startswith("models/")} == {named[2]}


def test_an_encoder_is_saved_as_it_was(training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeRayTrain(tmp_path / "ray", monkeypatch)
    worker, stepped = worker_of(training), threading.Event()

    def late(name: str, upload: Callable[[], None]) -> None:
        assert stepped.wait(30)
        upload()

    of_models(late, monkeypatch)
    worker.validate()
    for _ in range(3):
        worker.step()
    right = {name: weight.clone() for name, weight in worker._encoder.state_dict().items()}
    worker.step()
    stepped.set()
    worker._saver.wait()
    found = worker._models.load("step-00000003", worker._encoder.max_length).state_dict()
    assert all(bool((found[name] == weight).all()) for name, weight in right.items())


@pytest.mark.parametrize("step", [3, 9])
def test_an_encoder_that_cannot_be_saved_ends_training_and_leaves_no_checkpoint_that_names_it(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    rays = FakeRayTrain(tmp_path / "ray", monkeypatch)

    def full(name: str, upload: Callable[[], None]) -> None:
        if name == f"step-{step:08d}":
            raise NoSpace("no space left there")
        upload()

    of_models(full, monkeypatch)
    with pytest.raises(NoSpace, match="no space left there"):
        worker_of(training).run()
    assert rays.steps == list(range(3, step, 3))
    assert not (training.folder / "result.json").exists()


def test_no_room_on_this_machine_is_told_of_at_once(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeRayTrain(tmp_path / "ray", monkeypatch)
    worker = worker_of(training)

    def no_room(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(worker._encoder, "save", no_room)
    with pytest.raises(NoSpace, match="no space left"):
        worker.run()
    assert worker.progress["step"] == 3
