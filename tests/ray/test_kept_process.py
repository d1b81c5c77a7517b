"""One process for what one worker does after another; with a cluster of two cores or more."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayError

from infocse_ray.errors import Interrupted
from infocse_ray.runtime.cluster import assigned_cores
from infocse_ray.runtime.interrupts import Request, listening
from infocse_ray.runtime.kept_process import alone, kept_task, of_one
from infocse_ray.runtime.placement import Placement
from infocse_ray.runtime.progress import Board
from infocse_ray.runtime.tasks import _end, in_one_task, in_tasks, items_of_one_task
from infocse_ray.storage.folder import Storage
from infocse_ray.train.trainer import run_one_worker

pytestmark = pytest.mark.usefixtures("ray_cluster")

WHERE = Placement(2, False, 1)


def _counted(folder: Path, stops: bool = False) -> Iterator[tuple[int, int, int]]:
    for number in range(3):
        while stops and number and not (folder / f"seen-{number - 1}").exists():
            time.sleep(0.01)
        yield number, os.getpid(), assigned_cores()


def _write_process(folder: Path) -> None:
    (folder / "process").write_text(str(os.getpid()))


def test_what_comes_next_finds_the_process_there_with_all_cores(tmp_path: Path) -> None:
    cores = min(2, int(ray.cluster_resources()["CPU"]))
    assert alone(WHERE) == Placement(1, False, cores)
    assert of_one(WHERE) == 2 / cores
    assert (alone(Placement(4, True, 3)), of_one(Placement(4, True, 3))) == (Placement(1, True, 3), 4)
    rounds = []
    for _ in range(5):  # one that Ray began to start for the work of a test before may come in between
        first = in_one_task(os.getpid, where=WHERE)
        items = list(items_of_one_task(_counted, tmp_path, where=WHERE, title="testing"))
        assert [(number, given) for number, _, given in items] == [(number, cores) for number in range(3)]
        run_one_worker(_write_process, tmp_path, Placement(1, False, 1), Storage.open(str(tmp_path)), "scoring")
        rounds.append([first, *(process for _, process, _ in items), int((tmp_path / "process").read_text())])
        if len(set(rounds[-1])) == 1:
            break
    assert len(set(rounds[-1])) == 1, rounds


def test_items_are_there_once_they_are_yielded(tmp_path: Path) -> None:
    for number, *_ in items_of_one_task(_counted, tmp_path, True, where=WHERE, title="testing"):
        (tmp_path / f"seen-{number}").touch()
    assert (tmp_path / "seen-2").exists()


def _dies_once(folder: Path) -> Iterator[int]:
    for number in range(4):
        if number == 2 and not (folder / "died").exists():
            (folder / "died").touch()
            os._exit(1)
        yield number


def test_it_begins_again_where_its_process_died_and_gives_each_item_once(tmp_path: Path) -> None:
    assert list(items_of_one_task(_dies_once, tmp_path, where=WHERE, title="testing")) == [0, 1, 2, 3]
    assert (tmp_path / "died").exists()


def _fails() -> Iterator[int]:
    yield 1
    raise ValueError("no good")


def test_what_it_raises_comes_after_what_it_gave() -> None:
    items = items_of_one_task(_fails, where=WHERE, title="testing")
    assert next(items) == 1
    with pytest.raises(RayError, match="no good"):
        next(items)


def _endless(folder: Path) -> Iterator[int]:
    (folder / "process").write_text(str(os.getpid()))
    yield 1
    while True:
        time.sleep(0.1)


def test_whoever_stops_asking_ends_it(tmp_path: Path) -> None:
    with contextlib.closing(items_of_one_task(_endless, tmp_path, where=WHERE, title="testing")) as items:
        assert next(items) == 1
    process, ends = Path("/proc") / (tmp_path / "process").read_text(), time.monotonic() + 30
    while process.exists() and time.monotonic() < ends:
        time.sleep(0.1)
    assert not process.exists()
    assert in_one_task(lambda: 1, where=WHERE) == 1


def _works(folder: Path) -> None:
    (folder / "process").touch()
    while True:
        time.sleep(0.1)


@pytest.mark.parametrize(
    "wait",
    [
        lambda folder: in_one_task(_works, folder, where=WHERE),
        lambda folder: list(items_of_one_task(_endless, folder, where=WHERE, title="testing")),
        lambda folder: list(in_tasks(_works, [(folder,)])),
    ],
    ids=["one task", "items", "tasks"],
)
def test_a_signal_ends_the_wait_and_the_task(wait: Callable[[Path], Any], tmp_path: Path) -> None:
    def signalled() -> None:
        while not (tmp_path / "process").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    with listening():
        threading.Thread(target=signalled).start()
        with pytest.raises(Interrupted):
            wait(tmp_path)
    # The task is over, whether its process is, too, or stays for another.
    ray.get(ray.remote(num_cpus=int(ray.cluster_resources()["CPU"]))(lambda: None).remote(), timeout=60)


def _looks(folder: Path, board: Any) -> None:
    request = Request(board)
    request.now()  # the board knows that somebody looks
    (folder / "process").touch()
    while not request.made():
        time.sleep(0.1)
    (folder / "stopped").touch()


@pytest.mark.parametrize(
    ("around", "number", "raised"),
    [(listening, signal.SIGTERM, Interrupted), (contextlib.nullcontext, signal.SIGINT, KeyboardInterrupt)],
    ids=["a job", "Ctrl-C in a process of somebody's own"],
)
def test_work_that_looks_whether_it_is_to_stop_comes_to_its_end(
    around: Callable[[], Any], number: int, raised: type[BaseException], tmp_path: Path
) -> None:
    def signalled() -> None:
        while not (tmp_path / "process").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts tests with it ignored
    try:
        with around(), Board("testing", "step") as board:
            threading.Thread(target=signalled).start()
            with pytest.raises(raised):
                in_one_task(_looks, tmp_path, board.handle, where=WHERE, asked=board)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "stopped").exists()


@pytest.mark.parametrize("yields", [False, True], ids=["one result", "items"])
def test_what_has_come_to_its_end_is_not_cancelled(yields: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray may abort the driver then."""
    cancelled = list[Any]()
    monkeypatch.setattr(ray, "cancel", lambda task, **_: cancelled.append(task))
    task = kept_task(_one_item if yields else os.getpid, (), WHERE._replace(workers=1), 0, yields)
    ray.wait([task.completed() if yields else task], timeout=60)
    _end(task)
    assert not cancelled
    task = kept_task(
        _endless_items if yields else time.sleep, () if yields else (3,), WHERE._replace(workers=1), 0, yields
    )
    _end(task)
    assert cancelled == [task]
    monkeypatch.undo()
    _end(task)


def _one_item() -> Iterator[int]:
    yield 1


def _endless_items() -> Iterator[int]:
    while True:
        yield 1
        time.sleep(0.1)
