"""Which sinks a run has, and what is refused before it starts."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from infocse_ray.settings import Settings
from infocse_ray.settings.command_line import parse
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted
from infocse_ray.tracking import tracking
from infocse_ray.tracking.lane import Lane
from infocse_ray.tracking.sink import Sink
from infocse_ray.tracking.tracking import Tracking, check_sinks, make_stores, tracking_environment
from tests.unit.tracking.runs import settings_for

NEEDED = ["--name", "r", "--encoder.model", "m", "--corpus.source", "c"]


@pytest.mark.parametrize(
    ("given", "sinks"),
    [
        ([], ["tensorboard"]),
        (["--tracking.sinks", "mlflow"], ["mlflow"]),
        (["--tracking.sinks", "tensorboard, wandb,wandb"], ["tensorboard", "wandb"]),
        (["--tracking.sinks", "[mlflow, tensorboard]"], ["mlflow", "tensorboard"]),
        (["--tracking.sinks", "[]"], []),
    ],
)
def test_sinks_are_named_as_a_list(given: list[str], sinks: list[str]):
    assert parse(Settings, NEEDED + given, "infocse pretrain", "").tracking.sinks == sinks


def test_a_sink_that_there_isnt_is_refused(capsys):
    with pytest.raises(SystemExit):
        parse(Settings, [*NEEDED, "--tracking.sinks", "comet"], "infocse pretrain", "")
    assert "tracking.sinks = 'comet': should be 'tensorboard', 'mlflow' or 'wandb'" in capsys.readouterr().err
    with pytest.raises(ValidationError):
        settings_for("mlflow", tracking={"group": ""})


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_missing_package_is_said_with_the_extra_that_has_it(name: str, monkeypatch: pytest.MonkeyPatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one, *rest: None if one == name else find(one, *rest))
    check_sinks(settings_for("tensorboard"))
    with pytest.raises(ValueError, match=rf"tracking.sinks = {name}: .* pip install 'infocse-ray\[{name}\]'"):
        check_sinks(settings_for(name))


@pytest.mark.parametrize(("name", "variable"), [("mlflow", "MLFLOW_TRACKING_URI"), ("wandb", "WANDB_DIR")])
def test_a_job_shows_nothing_in_the_folder_that_ray_deletes(
    name: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: SimpleNamespace(origin="here"))
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_sinks(settings_for(name))
    (unpacked := tmp_path / "_ray_pkg_0123").mkdir()
    monkeypatch.chdir(unpacked)
    check_sinks(settings_for("tensorboard"))
    with pytest.raises(ValueError, match=rf"tracking\.sinks = {name}: without {variable} it writes .*; set {variable}"):
        check_sinks(settings_for(name))
    monkeypatch.setenv(variable, str(tmp_path))
    check_sinks(settings_for(name))


def test_what_sinks_read_from_the_environment_goes_to_trials_and_to_no_output(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in os.environ if name.startswith(("MLFLOW_", "WANDB_"))]:
        monkeypatch.delenv(name)
    given: dict[str, Any] = {"MLFLOW_TRACKING_TOKEN": "token-of-a-server", "WANDB_API_KEY": "key-of-a-person"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert tracking_environment() == given
    assert redacted("token-of-a-server key-of-a-person") == "*** ***"


def test_a_folder_of_its_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "wandb" / "offline-run-1").mkdir(parents=True)  # as W&B leaves one where it runs
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(ValueError, match=r"tracking.sinks = wandb: its package is missing"):
        check_sinks(settings_for("wandb"))


def test_what_sinks_keep_is_made_once_before_runs_begin_side_by_side(monkeypatch: pytest.MonkeyPatch, capsys):
    from infocse_ray.tracking import mlflow

    made: list[int] = []
    monkeypatch.setattr(mlflow, "make_store", lambda: made.append(1))
    make_stores([settings_for("tensorboard")])
    assert made == []
    make_stores([settings_for("tensorboard"), settings_for("mlflow"), settings_for("mlflow")])
    assert made == [1]
    monkeypatch.setattr(mlflow, "make_store", lambda: [].index(1))
    make_stores([settings_for("mlflow")])
    assert "warning: tracking: mlflow: 1 is not in list; the runs go on all the same" in capsys.readouterr().out


def test_a_run_waits_for_all_of_its_sinks_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    class Stuck(Sink):
        name = "mlflow"

        def open(self, run: object) -> None:
            answer.wait(60)

    answer = threading.Event()
    monkeypatch.setattr(tracking, "_sink", lambda name: Stuck())
    monkeypatch.setattr(tracking, "_SECONDS", {"finished": 0.5})
    waited: list[float] = []
    monkeypatch.setattr(Lane, "wait", lambda self, until: waited.append(until))
    with Tracking(settings_for("mlflow", "wandb"), "pretrain", Storage.open(str(tmp_path))):
        pass
    assert len(waited) == 2
    assert waited[0] == waited[1]
    answer.set()
