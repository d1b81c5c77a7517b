"""What Weights & Biases is asked for and told, with a stand-in for its package: also where that isn't installed."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.tracking.sink import Status, TrackedRun, Trained
from infocse_ray.tracking.tracking import check_sinks
from infocse_ray.tracking.wandb import WandB
from tests.unit.tracking.runs import settings_for


class StandIn:
    """The package, and every run of it, by what they were called with."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.ended: list[int] = []
        self.summary: dict[str, Any] = {}

    def Settings(self, **settings: Any) -> dict[str, Any]:
        return settings

    def init(self, **asked: Any) -> StandIn:
        self.asked.append(asked)
        return self

    def define_metric(self, *_: Any, **__: Any) -> None:
        pass

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)

    def finish(self, exit_code: int) -> None:
        self.ended.append(exit_code)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    package = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", package)
    return package


def opened(folder: Path) -> WandB:
    sink = WandB()
    sink.open(TrackedRun("news", "pretrain", Storage(str(folder)), {"seed": 7}, "a group"))
    return sink


def test_neither_output_nor_code_nor_the_command_line_is_sent(wandb: StandIn, tmp_path: Path) -> None:
    opened(tmp_path)
    [asked] = wandb.asked
    kept_back = {"console": "off", "disable_git": True, "disable_code": True, "save_code": False}
    assert (kept_back | {"x_disable_meta": True}).items() <= asked["settings"].items()
    assert (asked["config"], asked["group"], asked["job_type"]) == ({"seed": 7}, "a group", "pretrain")


def test_a_run_that_goes_on_is_the_same_one_and_no_step_is_sent_twice(wandb: StandIn, tmp_path: Path) -> None:
    trained = Trained("iteration_1", Stage("train", "f", Storage(str(tmp_path)), None))
    times: list[tuple[range, Status]] = [(range(1, 4), "stopped"), (range(2, 6), "finished")]
    for steps, status in times:
        sink = opened(tmp_path)
        for step in steps:
            sink.points(trained, "train", step, {"loss": 1.0 / step})
        sink.close(status)
    first, second = wandb.asked
    assert first["id"] == second["id"]
    assert second["resume"] == "allow"
    assert [values["iteration_1/step"] for values in wandb.logged] == [1, 2, 3, 4, 5]
    assert wandb.ended == [1, 0], "a run that was stopped isn't shown as finished"


def test_a_validation_is_noted_at_once_for_the_command_may_be_killed(wandb: StandIn, tmp_path: Path) -> None:
    trained = Trained("iteration_1", Stage("train", "f", Storage(str(tmp_path)), None))
    for _ in range(2):  # the first is never closed
        opened(tmp_path).points(trained, "validation", 4, {"mrr": 0.5})
    assert [values["iteration_1/validation/mrr"] for values in wandb.logged] == [0.5]


def test_who_has_no_key_is_refused_before_anything_runs(wandb: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: SimpleNamespace(origin="here"))
    monkeypatch.setenv("WANDB_MODE", "")  # which W&B takes for online
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    for key, refused in ((None, True), ("a key", False)):
        monkeypatch.setattr(wandb, "api", SimpleNamespace(api_key=key), raising=False)
        with pytest.raises(ValueError, match="Weights & Biases has no key here") if refused else nullcontext():
            check_sinks(settings_for("wandb"))
    monkeypatch.setattr(wandb, "api", SimpleNamespace(api_key=None))
    monkeypatch.setenv("WANDB_API_KEY", "a key")
    check_sinks(settings_for("wandb"))
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_sinks(settings_for("wandb"))


def test_each_run_has_one_of_its_own(wandb: StandIn, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        opened(tmp_path / name)
    assert len({asked["id"] for asked in wandb.asked}) == 2
