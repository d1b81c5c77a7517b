"""Which sinks a run has, and what is refused before it starts."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from infocse_ray.settings import Settings
from infocse_ray.settings.command_line import parse
from infocse_ray.storage.redact import redacted
from infocse_ray.tracking.tracking import check_sinks, tracking_environment
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
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: True)
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
