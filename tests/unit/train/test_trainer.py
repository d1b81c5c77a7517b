"""A group of workers begins again where Ray Train, a stand-in here, gives up because a process of its own died."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.train import WorkerGroupError
from ray.train.v2.api.exceptions import ControllerError

from infocse_ray.errors import NonFinite, TrainingStopped, WorkersLost
from infocse_ray.runtime.failures import process_lost
from infocse_ray.runtime.placement import Placement
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from infocse_ray.train import trainer as module

DIED = RayActorError(error_msg="The actor died.")
FULL = OutOfMemoryError(
    "6 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 192.0.2.2, ID: 7bd3) was "
    "22.42GB used / 23.54GB limit (0.952511)\nOOM kill reason: ...\nRefer to the documentation."
)


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Run a group whose trainings end with these errors, one after the other; how many were begun."""

    def run(*errors: Exception, max_failures: int = 2) -> int:
        begun: list[str] = []

        class Trainer:
            def __init__(self, _: Any, *, run_config: Any, **__: Any) -> None:
                self.name = run_config.name

            def fit(self) -> None:
                begun.append(self.name)
                if len(begun) <= len(errors):
                    raise errors[len(begun) - 1]

        monkeypatch.setattr(module, "TorchTrainer", Trainer)
        monkeypatch.setattr(module, "await_places", lambda *_: None)
        freed: list[int] = []
        monkeypatch.setattr(module, "free_left_places", lambda: freed.append(len(begun)))
        monkeypatch.setattr(module, "watched", lambda *_: contextlib.nullcontext())
        monkeypatch.setattr(module, "run_interruptible", lambda fit, _: fit())
        place = Placement(workers=1, cores=1, use_gpu=False)
        folder = Storage.open(str(tmp_path))
        try:
            module.run_workers(lambda _: None, None, place, folder, "checkpoints", max_failures, "training")
        finally:
            lost = sum(process_lost(error) for error in errors[: len(begun)] if not isinstance(error, WorkerGroupError))
            assert freed == [*range(1, lost + 1)], "what a training left must not keep the next one waiting"
        assert set(begun) == {"checkpoints"}, "another name would not go on from the checkpoint"
        return len(begun)

    return run


def test_it_begins_again_after_a_process_of_ray_train_died(
    fails: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert fails(DIED, ControllerError(FULL)) == 3
    said = capsys.readouterr()
    assert "node 192.0.2.2 ran out of memory (22.42 of 23.54 GB in use)" in said.out + said.err
    assert "Refer to" not in said.out + said.err


def test_it_begins_again_as_often_as_workers_may_fail_and_then_says_why(fails: Callable[..., int]) -> None:
    with pytest.raises(WorkersLost, match=r"checkpoints: the workers failed: node 192\.0\.2\.2 ran out of memory"):
        fails(DIED, DIED, ControllerError(FULL))
    with pytest.raises(TrainingStopped):
        fails(DIED, max_failures=0)


def test_errors_of_its_own_and_of_workers_end_it(fails: Callable[..., int]) -> None:
    # Workers that died Ray Train has replaced itself, max_failures times.
    for error in (WorkerGroupError("text", {0: DIED}), ControllerError(ValueError("a wrong value"))):
        with pytest.raises(TrainingStopped):
            fails(error)


@pytest.mark.parametrize(("non_finite", "kind"), [(True, NonFinite), (False, TrainingStopped)])
def test_a_loss_that_is_not_finite_is_told_apart_from_memory_that_ran_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, non_finite: bool, kind: type[Exception]
) -> None:
    folder = Storage.open(str(tmp_path))
    error = {"error": "step 3: why", "non_finite": non_finite}
    # A driver that was killed before it told of its training's error left this.
    (folder / "result.json").write_json(checked(error | {"error": "step 2: another"}))
    monkeypatch.setattr(module, "in_one_task", lambda *_, **__: (folder / "result.json").write_json(checked(error)))
    monkeypatch.setattr(module, "Board", lambda *_: contextlib.nullcontext(SimpleNamespace(handle=None)))
    settings = SimpleNamespace(train=SimpleNamespace(max_failures=0))
    training: Any = SimpleNamespace(
        folder=folder, budget=(9, None, 9), settings=settings, _replace=lambda **_: training
    )
    place = Placement(workers=1, cores=1, use_gpu=False)
    with pytest.raises(TrainingStopped, match=r"^step 3: why$") as raised:
        module.train(training, place, "training")
    assert raised.type is kind
    assert not (folder / "result.json").exists(), "the same command trains again"


def test_what_only_a_training_under_way_needs_goes_when_its_result_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Storage.open(str(tmp_path))
    chosen = {"kind": "trained", "step": 6}
    left = {"step": 9, "tokens": 90, "history": [{"step": 0}], "resumed_at": [3], "stopping": {"best": 0.5}}
    left["stopping"] |= {"best_step": 6}

    def trains(*_: Any, **__: Any) -> None:
        (folder / "checkpoints" / "checkpoint_000000000009" / "files-00000.json").write_bytes(b"{}")
        (folder / "begun").write_bytes(b"")
        (folder / "models" / "step-00000006" / "config.json").write_bytes(b"{}")
        (folder / "result.json").write_json(checked(left | {"chosen": chosen, "between": []}))

    monkeypatch.setattr(module, "in_one_task", trains)
    monkeypatch.setattr(module, "Board", lambda *_: contextlib.nullcontext(SimpleNamespace(handle=None)))
    settings = SimpleNamespace(train=SimpleNamespace(max_failures=0))
    training: Any = SimpleNamespace(
        folder=folder, budget=(9, None, 9), settings=settings, _replace=lambda **_: training
    )
    summary = module.train(training, Placement(workers=1, cores=1, use_gpu=False), "training")
    assert sorted(folder.files()) == ["models/step-00000006/config.json", "result.json"]
    counts = {"steps": 9, "tokens": 90, "best": 0.5, "best_step": 6, "workers": 1, "resumed_at": [3]}
    assert summary == counts | {"chosen": chosen, "between": [], "history": [{"step": 0}]}


class Began(NamedTuple):
    """A training that `_run` began: alone or in a group, and how often the latter may fail."""

    how: str
    failures: int


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[Began]]:
    """Begin a training with so many workers; what was begun."""

    def run(workers: int, error: Exception | None = None, max_failures: int = 2) -> list[Began]:
        seen: list[Began] = []

        def alone(*_: Any, retries: int, **__: Any) -> None:
            seen.append(Began("alone", retries))
            if error is not None:
                raise error

        monkeypatch.setattr(module, "in_one_task", alone)
        monkeypatch.setattr(module, "run_workers", lambda *given: seen.append(Began("group", given[5])))
        settings = SimpleNamespace(train=SimpleNamespace(max_failures=max_failures))
        training: Any = SimpleNamespace(folder=Storage.open(str(tmp_path)), settings=settings)
        nobody: Any = None
        module._run(training, Placement(workers, False, 1), "training", nobody)
        return seen

    return run


def test_one_worker_is_alone_until_that_fails_which_counts(
    begun: Callable[..., list[Began]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert begun(1) == [Began("alone", 0)]
    assert begun(2) == [Began("group", 2)]
    assert begun(1, DIED) == [Began("alone", 0), Began("group", 1)]
    assert "training: The actor died.; beginning again from the last checkpoint" in capsys.readouterr().out
    with pytest.raises(
        WorkersLost, match=r"training: the workers failed: The actor died; what is finished is kept, and"
    ):
        begun(1, DIED, max_failures=0)


def test_a_group_that_began_a_training_goes_on_with_it(begun: Callable[..., list[Began]], tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint_manager_snapshot.json").write_text("{}")
    assert begun(1) == [Began("group", 2)]


def test_a_worker_s_own_error_is_no_loss_though_the_others_died_of_it() -> None:
    its = WorkerGroupError("failed", {0: DIED, 1: ValueError("the loss has no gradient")})
    why = module._why(its, Storage("nowhere"), "training")
    assert type(why) is TrainingStopped
    assert str(why) == "training: the workers failed: the loss has no gradient"
    lost = module._why(WorkerGroupError("failed", {0: DIED}), Storage("nowhere"), "training")
    assert type(lost) is WorkersLost
