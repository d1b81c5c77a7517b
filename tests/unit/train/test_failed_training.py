"""What a training that fails leaves behind in its process, which may have other work next."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.train import loop
from infocse_ray.train.checkpoints import OfOneProcess
from infocse_ray.train.loop import TrainingWorker
from tests.unit.train.test_training_worker import asked_at, begun_training
from tests.unit.trainees import settings_for


def test_no_thread_of_it_is_left(tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_for("simcse", tiny_encoder, interpolation=[], never_worse=False)
    training = begun_training(settings, tmp_path / "source", tmp_path / "stage", tiny_encoder, monkeypatch)
    asked_at(None, monkeypatch)
    begin, begun = loop.begin_step, list[int]()

    def fails_later(*given: Any) -> Any:
        begun.append(1)
        if len(begun) > 4:  # a checkpoint was saved after the third
            raise ValueError("a wrong value")
        return begin(*given)

    monkeypatch.setattr(loop, "begin_step", fails_later)
    before = set(threading.enumerate())
    worker = TrainingWorker(training, OfOneProcess(training.folder))
    with pytest.raises(ValueError, match="a wrong value"):
        worker.run()
    assert [thread.name for thread in set(threading.enumerate()) - before if thread.is_alive()] == []
