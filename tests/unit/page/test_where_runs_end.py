"""Every run ends with its page, whichever command or function ran it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infocse_ray.api import calls
from infocse_ray.commands import demo, finetune, plusplus, pretrain
from infocse_ray.loop import infocse
from infocse_ray.loop import plusplus as few_shot
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from tests.unit.page.runs import scores, write_run

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a run that is finished as soon as it begins."""
    write_run(Storage.open(str(tmp_path)))
    test = {"test": scores(0.5)}
    metrics = {"start": test, "whitened": test, "iterations": [{"iteration": 0, **test}]}
    for module, name in ((infocse, "pretrain"), (few_shot, "finetune"), (few_shot, "plusplus")):
        monkeypatch.setattr(module, name, lambda settings: metrics)
    content = {"name": "news", "storage": str(tmp_path), "corpus": {"source": "a"}, "encoder": {"model": "m"}}
    return Settings.model_validate(content)


@pytest.mark.parametrize("command", [pretrain, finetune, plusplus])
def test_a_command_ends_with_the_path(command: Any, settings: Settings, capsys: pytest.CaptureFixture[str]):
    command._work(settings)
    page = Path(settings.storage) / "news" / "report.html"
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {page}"
    assert page.exists()


def test_the_demo_ends_with_the_path(settings, monkeypatch, capsys):
    monkeypatch.setattr(demo, "write_docstrings", lambda *_, **__: None)
    monkeypatch.setattr(demo, "bundled_encoder", lambda: "m")
    monkeypatch.setattr(demo, "run_job", lambda model, given, prog, description, work, again: work(settings))
    assert demo.main(["--storage", settings.storage]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {settings.storage}/news/report.html"


@pytest.mark.parametrize("function", [calls.pretrain, calls.finetune, calls.plusplus])
def test_a_result_has_the_path(function: Any, settings: Settings):
    result = function(settings)
    assert result.report == f"{settings.storage}/news/report.html"
    assert Path(result.report).exists()
