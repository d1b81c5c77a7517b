"""Plain Ray tasks: one, where a worker would be, or many of one core with a bounded number in flight."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

import ray

from infocse_ray.runtime.kept_process import alone, give_back_memory, kept_task
from infocse_ray.runtime.placement import Placement, await_places

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
            done, flying = ray.wait(flying, num_returns=len(flying), timeout=0, fetch_local=False)
            if not done:
                done, flying = ray.wait(flying, timeout=_LOOK_SECONDS, fetch_local=False)
            for one in done:
                yield ray.get(one)
    finally:
        if flying and ray.is_initialized():
            for one in flying:
                ray.cancel(one)
            # What they write must not meet what the next attempt writes.
            ray.wait(flying, num_returns=len(flying), timeout=_END_SECONDS, fetch_local=False)


def in_one_task(
    work: Callable[..., Result], *arguments: Any, where: Placement | None = None, title: str = "a task"
) -> Result:
    """Do `work` in a task, and wait for it: what it reads and holds is not the driver's.

    Args:
        work: done again from the beginning, should its process die.
        arguments: what it gets.
        where: of workers, in place of whom there is one, whose process stays for what one does next; None: one core.
        title: says what waits until there is room for that one.
    """
    if where is None:
        return ray.get(_task(work).remote(*arguments))

    def then_idle() -> Result:
        try:
            return work(*arguments)
        finally:
            give_back_memory()

    one = alone(where)
    await_places(one, title, 1)
    return ray.get(kept_task(then_idle, one, _RETRIES).remote())


def items_of_one_task(work: Callable[..., Iterable[Result]], *arguments: Any, where: Placement) -> Generator[Result]:
    """What `work` yields in such a task, each once it is there; arguments are those of `in_one_task`.

    What it yields must be the same when it is done again.
    """

    def then_idle() -> Iterator[Result]:
        try:
            for item in work(*arguments):  # noqa: UP028 - Ray sends into this generator, which not all iterators take
                yield item
        finally:
            give_back_memory()

    task = kept_task(then_idle, alone(where), _RETRIES, num_returns="streaming").remote()
    try:
        for item in task:
            yield ray.get(item)
    except BaseException:
        if ray.is_initialized():
            ray.cancel(task, force=True)
        raise


def _task(work: Callable[..., Any]) -> Any:
    # Placed by name, as Ray Data's tasks are: in a trial of Ray Tune it would else wait for a core of the trial's own
    # placement group, which has none.
    return ray.remote(scheduling_strategy="DEFAULT", max_retries=_RETRIES)(work)
