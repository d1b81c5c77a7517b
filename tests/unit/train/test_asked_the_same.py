"""Every iteration's training validates on the same questions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from infocse_ray.train import loop


class Asked(Exception):
    """In place of an answer."""


def test_the_runs_seed_draws_the_questions_of_all_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def questions_for(*arguments: Any) -> None:
        raise Asked(arguments)

    for name in ("TrainState", "ExampleStream", "SavedModels", "TrainingMetrics"):
        monkeypatch.setattr(loop, name, lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(loop, "worker_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(loop, "assigned_cores", torch.get_num_threads)
    monkeypatch.setattr(loop, "questions_for", questions_for)
    settings = Settings.model_validate(
        {"name": "r", "seed": 7, "corpus": {"source": "a"}, "encoder": {"model": "m"}, "validate": {"reading": "both"}}
    )
    encoder = cast(Any, SimpleNamespace(load=lambda: torch.nn.Linear(1, 1)))
    nothing, examples = cast(Any, None), cast(Any, SimpleNamespace(source=SimpleNamespace(annotations="some")))
    for stage_seed in (1, 2):
        stage = Storage.open(str(tmp_path / str(stage_seed)))
        training = loop.Training(
            settings, nothing, examples, nothing, loop.Budget(1, None, 1), encoder, stage_seed, stage, "sentence"
        )
        with pytest.raises(Asked) as asked:
            loop.train_alone(training)
        assert asked.value.args[0][1:] == (
            "valid",
            "sentence",
            settings.validate.max_documents,
            torch.device("cpu"),
            7,
            None,
            "both",
        )
