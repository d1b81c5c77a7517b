"""A process for what one worker does, that stays for what one worker does next.

A worker takes seconds to start: its interpreter, what it imports, on a GPU a context. With a small corpus that is more
than what it does.

1. A task's process is idle once the task has ended, and Ray gives it the next task that comes.
2. Ray ends those that had a GPU, lest the next task has another one of the node. Where no node has two they stay, and
   give back what torch keeps of the GPU's memory, but for a context of some hundred MiB.
3. The one has as many cores as all workers would have had on a node. Should others hold these for long, or the node
   be lost, it has what can be had: what it does is begun again.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ray

from infocse_ray.runtime.cluster import assigned_cores
from infocse_ray.runtime.placement import Placement, await_places, nodes_there, room

_PATIENCE_SECONDS = 15.0
"""For the cores of all workers; actors of the stage before are gone by then."""


def alone(where: Placement) -> Placement:
    """One worker in place of all; on CPUs with as many cores as these would have had on a node."""
    if where.use_gpu:
        return _least(where)
    most = max([where.cores, *(min(where.cores * where.workers, cpus) for cpus in nodes_there().cpus)])
    return Placement(1, False, most)


def _least(where: Placement) -> Placement:
    return where._replace(workers=1, fewest=None)


def of_one(where: Placement) -> float:
    """How many times what the one in their place has all workers have: GPUs, or cores."""
    return where.workers if where.use_gpu else where.workers * where.cores / alone(where).cores


def await_one(where: Placement, title: str) -> Placement:
    """Wait until there is room for one worker in place of all.

    Args:
        where: of all.
        title: of the stage, for people.

    Returns:
        `alone`, or what one of the workers has, where there is no room for that in some time.
    """
    one, least = alone(where), _least(where)
    if one == least or not await_places(one, title, 1, patience=_PATIENCE_SECONDS):
        one = least
        await_places(one, title, 1)
    return one


def has_lost_its_room(one: Placement, where: Placement) -> bool:
    """Whether no node that is left has room for it, and one has for a smaller in its place."""
    there = nodes_there()
    return room(there, one) < 1 <= room(there, alone(where))


def kept_task(
    work: Callable[..., Any], arguments: tuple[Any, ...], one: Placement, retries: int, yields: bool = False
) -> Any:
    """Begin a task that does `work`.

    Args:
        work: done again from the beginning, should its process die.
        arguments: what it gets.
        one: what it has.
        retries: how often it is.
        yields: whether it is to be asked for item after item.

    Returns:
        What Ray has of its result, or of its items.
    """
    gpus: dict[str, Any] = {}
    if one.use_gpu:
        gpus = {"num_gpus": 1, "max_calls": int(max(nodes_there().gpus, default=0) > 1)}
    options: dict[str, Any] = {"num_returns": "streaming"} if yields else {}
    task = ray.remote(
        num_cpus=one.cores,
        max_retries=retries,
        # By name: in a trial of Ray Tune it would else wait for a core of the trial's own group, which has none.
        scheduling_strategy="DEFAULT",
        **gpus,
        **options,
    )(items_then_idle if yields else then_idle)
    # Not in a closure: that would be kept as one more function by Ray, and by the process.
    return task.remote(work, *arguments)


def then_idle(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do `work` with the cores of this task, and leave its process as it was."""
    (result,) = _then_idle(lambda *given: [work(*given)], arguments)
    return result


def items_then_idle(work: Callable[..., Iterable[Any]], *arguments: Any) -> Iterator[Any]:
    """As `then_idle`, for what `work` yields."""
    for item in _then_idle(work, arguments):  # noqa: UP028 - Ray sends into this generator, which not all iterators take
        yield item


def _then_idle(work: Callable[..., Iterable[Any]], arguments: tuple[Any, ...]) -> Iterator[Any]:
    import torch  # in the process, not where it is asked for: the driver's start waits for no more than it needs

    threads = torch.get_num_threads()
    torch.set_num_threads(assigned_cores())
    try:
        yield from work(*arguments)
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # they hold what is on the GPU
        _end_without_gpu(error)
        raise
    finally:
        torch.set_num_threads(threads)
        _give_back_memory()


def _end_without_gpu(error: BaseException) -> None:
    """End this process where its GPU answers no more, as after an error of a kernel: all that came next would fail.

    Ray then says that the process is lost, and the task, if it may be, is begun again in another.
    """
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            traceback.print_exception(error)
            sys.stderr.flush()
            os._exit(1)


def _give_back_memory() -> None:
    """What torch keeps of this process's GPU: others have it next."""
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
