"""Plain Ray tasks: one, where a worker would be, or many of one core with a bounded number in flight."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from infocse_ray.runtime.interrupts import run_interruptible
from infocse_ray.runtime.kept_process import await_one, has_lost_its_room, kept_task
from infocse_ray.runtime.placement import Placement, watched
from infocse_ray.runtime.progress import Board, say

Result = TypeVar("Result")

_AHEAD = 64
"""Tasks handed to Ray beyond two a core: what waits is what an autoscaler sees as demand."""
_RETRIES = 10
"""Of a task whose worker or node died; what it raises itself isn't tried again."""
_LOOK_SECONDS = 5.0
_END_SECONDS = 5.0


def in_tasks(work: Callable[..., Result], calls: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
    """What `work` returns for every tuple of arguments, in any order; so many at once as there are cores.

    Args:
        work: done in a task of one core; again in another one, should its worker die, so it must stand being cut off.
        calls: its arguments, asked for as tasks end: the driver holds those of the tasks in flight.

    Raises:
        What `work` raised, wrapped by Ray; the other tasks are cancelled then.
    """
    do, left = _task(work), iter(calls)
    flying: list[ray.ObjectRef] = []
    most, look = 0, 0.0
    try:
        while True:
            if time.monotonic() >= look:  # a cluster grows
                most, look = _AHEAD + 2 * int(ray.cluster_resources().get("CPU", 1)), time.monotonic() + _LOOK_SECONDS
            while len(flying) < most and (call := next(left, None)) is not None:
                flying.append(do.remote(*call))
            if not flying:
                return
            waiting = flying
            done, flying = ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)
            if not done:
                done, flying = run_interruptible(
                    lambda waiting=waiting: ray.wait(waiting, timeout=_LOOK_SECONDS, fetch_local=False)
                )
            for one in done:
                yield ray.get(one)
    finally:
        if flying and ray.is_initialized():
            for one in ray.wait(flying, num_returns=len(flying), timeout=0, fetch_local=False)[1]:
                ray.cancel(one)
            # What they write must not meet what the next attempt writes. Where SIGINT is ignored, as behind a shell's
            # &, none knows that it was asked.
            for one in ray.wait(flying, num_returns=len(flying), timeout=_END_SECONDS, fetch_local=False)[1]:
                _end(one)


def in_one_task(
    work: Callable[..., Result],
    *arguments: Any,
    where: Placement | None = None,
    title: str = "a task",
    retries: int = _RETRIES,
    asked: Board | None = None,
) -> Result:
    """Do `work` in a task, and wait for it: what it reads and holds is not the driver's.

    Args:
        work: done again from the beginning, should its process die.
        arguments: what it gets.
        where: of workers, in place of whom there is one, whose process stays for what one does next; None: one core.
        title: says what waits until there is room for that one.
        retries: how often it is done again.
        asked: the board where `work` looks whether it is to stop, on a signal; None: it doesn't look.

    Raises:
        What `work` raised, wrapped by Ray.
        Interrupted, KeyboardInterrupt: a signal came; the task has stopped, or is ended.
    """
    if where is not None:
        (result,) = _of_one(work, arguments, where, title, retries, yields=False, asked=asked)
        return result
    task: Any = _task(work).remote(*arguments)
    try:
        return _got(task)
    except BaseException:
        _end(task)
        raise


def items_of_one_task(
    work: Callable[..., Iterable[Result]], *arguments: Any, where: Placement, title: str
) -> Generator[Result]:
    """What `work` yields in such a task, each once it is there; for the rest see `in_one_task`.

    What it yields must be the same when it is done again.
    """
    return _of_one(work, arguments, where, title, _RETRIES, yields=True)


def _of_one(
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    where: Placement,
    title: str,
    retries: int,
    yields: bool,
    asked: Board | None = None,
) -> Generator[Any]:
    """Each item, or the one result."""
    given = 0
    while True:
        one = await_one(where, title)
        task = kept_task(work, arguments, one, retries, yields)
        try:
            with watched(one, title, 1):
                for number, item in enumerate(_items(task, one, where, asked)):
                    if number >= given:
                        given += 1
                        yield item
            return
        except _RoomLost:
            _end(task)
            say(f"  {title}: the node that it was on is lost; beginning again on what is left")
        except BaseException:
            _end(task)
            raise


class _RoomLost(Exception):
    """A task waits for a node as large as the one it was on, which is lost, and there are smaller ones."""


def _items(task: Any, one: Placement, where: Placement, asked: Board | None) -> Iterator[Any]:
    """What a task gives, waited for outside Ray's own wait, out of which no signal comes.

    Raises:
        _RoomLost: it waits for room that isn't there any more.
    """
    if isinstance(task, ray.ObjectRef):
        _await(task, one, where, asked)
        yield _got(task)
        return
    while True:
        _await(task, one, where, asked)
        if not (item := run_interruptible(lambda: [ray.get(ref) for ref in itertools.islice(task, 1)])):
            return
        yield item[0]


def _await(task: Any, one: Placement, where: Placement, asked: Board | None) -> None:
    def wait() -> None:
        lost = 0
        while not ray.wait([task], timeout=_LOOK_SECONDS, fetch_local=False)[0]:
            lost = lost + 1 if has_lost_its_room(one, where) else 0
            if lost > 1:
                raise _RoomLost

    run_interruptible(wait, asked, ended=True)


def _got(task: Any) -> Any:
    return run_interruptible(lambda: ray.get(task))


def _end(task: Any) -> None:
    """End a task, unless it has: Ray aborts this process where one is cancelled while it takes in that it is done."""
    if not ray.is_initialized():
        return
    with contextlib.suppress(RayError):
        done = task if isinstance(task, ray.ObjectRef) else task.completed()
        if not ray.wait([done], timeout=0, fetch_local=False)[0]:
            ray.cancel(task, force=True)


def _task(work: Callable[..., Any]) -> Any:
    # Placed by name, as Ray Data's tasks are: in a trial of Ray Tune it would else wait for a core of the trial's own
    # placement group, which has none.
    return ray.remote(scheduling_strategy="DEFAULT", max_retries=_RETRIES)(work)
