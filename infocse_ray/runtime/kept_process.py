"""A process for what one worker does, that stays for what one worker does next.

A worker takes seconds to start: its interpreter, what it imports, on a GPU a context. With a small corpus that is more
than what it does.

1. A task's process is idle once the task has ended, and Ray gives it the next task that comes.
2. Ray ends those that had a GPU, lest the next task has another one of the node. Where no node has two they stay, and
   give back what torch keeps of the GPU's memory, but for a context of some hundred MiB.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ray

from infocse_ray.runtime.placement import Placement, nodes_there


def alone(where: Placement) -> Placement:
    """One worker in place of all; on CPUs with as many cores as these would have had on a node."""
    if where.use_gpu:
        return where._replace(workers=1, fewest=None)
    most = max([where.cores, *(min(where.cores * where.workers, cpus) for cpus in nodes_there().cpus)])
    return Placement(1, False, most)


def of_one(where: Placement) -> float:
    """How many times what the one in their place has all workers have: GPUs, or cores."""
    return where.workers if where.use_gpu else where.workers * where.cores / alone(where).cores


def kept_task(work: Callable[[], Any], where: Placement, retries: int, **options: Any) -> Any:
    """A Ray task that does `work` where one worker would be.

    Args:
        work: done again from the beginning, should its process die.
        where: what a worker has.
        retries: how often it is.
        options: of the task, besides.
    """
    gpus: dict[str, Any] = {}
    if where.use_gpu:
        gpus = {"num_gpus": 1, "max_calls": int(max(nodes_there().gpus, default=0) > 1)}
    return ray.remote(
        num_cpus=where.cores,
        max_retries=retries,
        # By name: in a trial of Ray Tune it would else wait for a core of the trial's own group, which has none.
        scheduling_strategy="DEFAULT",
        **gpus,
        **options,
    )(work)


def give_back_memory() -> None:
    """What torch keeps of this process's GPU: others have it next."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
