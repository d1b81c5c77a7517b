"""Measure in fresh processes: clock, memory, a Ray of one's own."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import ray
import torch

from infocse_ray.runtime.cluster import connect
from infocse_ray.runtime.libraries import quiet_libraries

Result = TypeVar("Result")


def in_fresh_process(work: Callable[..., Result], *arguments: Any) -> Result:
    """Do `work` in a process of its own that starts from nothing and ends with it."""
    print(f"{work.__name__} ...", file=sys.stderr, flush=True)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_quietly, work, arguments).result()


def _quietly(work: Callable[..., Result], arguments: tuple) -> Result:
    quiet_libraries()
    with contextlib.redirect_stdout(sys.stderr):
        return work(*arguments)


@contextlib.contextmanager
def local_ray() -> Iterator[None]:
    """A Ray of this process alone, with the environment that jobs give it."""
    os.environ["RAY_ADDRESS"] = "local"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    connect()
    try:
        yield
    finally:
        ray.shutdown()


def default_device() -> torch.device:
    """Where a single process computes."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def now() -> float:
    """Seconds, once the GPU has done what it was asked to."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def memory_mib(kind: str) -> float:
    """VmRSS, what is resident, or VmHWM, the most there was; on a GPU what tensors take of its memory.

    ru_maxrss would not do: a process inherits it from the one that started it.
    """
    if torch.cuda.is_available():
        taken = torch.cuda.max_memory_allocated() if kind == "VmHWM" else torch.cuda.memory_allocated()
        return taken / 2**20
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:")) / 2**10
