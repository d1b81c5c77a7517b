"""Plain tasks: bounded in flight, again where a worker died, none goes on after a failure."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.exceptions import RayError

from infocse_ray.runtime import tasks as tasks_module
from infocse_ray.runtime.failures import caused_by
from infocse_ray.runtime.tasks import in_one_task, in_tasks

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_every_call_is_done_and_few_are_asked_for_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "_AHEAD", 3)
    monkeypatch.setattr(tasks_module.ray, "cluster_resources", lambda: {"CPU": 1.0})
    asked = 0

    def calls() -> Iterator[tuple[int, str]]:
        nonlocal asked
        for number in range(40):
            asked += 1
            yield number, "x"

    found = []
    for result in in_tasks(lambda number, text: (number, text), calls()):
        found.append(result)
        assert asked <= len(found) + 2 * 5
    assert sorted(found) == [(number, "x") for number in range(40)]
    assert in_one_task(lambda a, b: a + b, 1, 2) == 3
    assert list(in_tasks(lambda: None, [])) == []


def _dies_once(folder: Path, number: int) -> int:
    if number == 3 and not (folder / "died").exists():
        (folder / "died").touch()
        os._exit(1)
    return number


def test_a_task_whose_worker_died_is_done_again(tmp_path: Path) -> None:
    assert sorted(in_tasks(_dies_once, ((tmp_path, number) for number in range(8)))) == list(range(8))
    assert (tmp_path / "died").exists()


def _fails(folder: Path, number: int) -> None:
    if number == 0:
        raise ValueError("no good")
    time.sleep(0.2)
    (folder / str(number)).touch()


def test_a_failure_is_raised_and_ends_the_others(tmp_path: Path) -> None:
    with pytest.raises(RayError) as error:
        list(in_tasks(_fails, ((tmp_path, number) for number in range(60))))
    assert str(caused_by(error.value, ValueError)) == "no good"
    done = len(list(tmp_path.iterdir()))
    time.sleep(1)
    assert len(list(tmp_path.iterdir())) == done < 59


def _waits(folder: Path, number: int) -> None:
    while number and not (folder / str(number)).exists():
        time.sleep(0.05)


def test_what_has_ended_is_not_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled, cancel = list[ray.ObjectRef](), ray.cancel

    def remember(task: ray.ObjectRef, **how: bool) -> None:
        cancelled.append(task)
        cancel(task, **how)

    monkeypatch.setattr(tasks_module.ray, "cancel", remember)
    results = in_tasks(_waits, ((tmp_path, number) for number in range(3)))
    next(results)
    flying = list(results.gi_frame.f_locals["flying"])  # pyright: ignore[reportAttributeAccessIssue]
    (tmp_path / "1").touch()
    [ended], waiting = ray.wait(flying, timeout=60)
    results.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert ended not in cancelled
    assert set(cancelled) == set(waiting)
