"""Seconds and memory of what one GPU does, or a CPU in its place; the same for both sides of a comparison."""

from __future__ import annotations

import gc
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import torch

from infocse_ray.train.meters import CudaMeter

UNCOUNTED = CudaMeter.steps + 1
"""Steps of a training that aren't counted: until it is known how much memory may be kept, and one that keeps it."""
COUNTED = 3
"""Steps that are."""

Batch = TypeVar("Batch")


class Pace(NamedTuple):
    """How fast steps are, and what memory they take."""

    rate: float
    """Pairs a second."""
    memory: str
    """Most that tensors take at a time."""


def now() -> float:
    """Seconds, once the GPU has done what it was asked to."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds(work: Callable[[], object], repeats: int = 2) -> float:
    """Of the fastest run, after one that isn't counted."""
    work()
    return min(_timed(work) for _ in range(repeats))


def tried(work: Callable[[], object], least: float) -> float:
    """Seconds of the fastest run, of as many as take `least` seconds together, after one that isn't counted."""
    work()
    taken = [_timed(work)]
    while sum(taken) < least:
        taken.append(_timed(work))
    return min(taken)


def pace(step: Callable[[Batch], object], batches: Sequence[Batch], pairs: int, device: torch.device) -> Pace:
    """Of the last COUNTED batches, one after the other; a training's batches are of ever new shapes.

    Args:
        step: of training.
        batches: UNCOUNTED + COUNTED of them, in order.
        pairs: in a batch.
        device: whose memory is looked at.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for batch in itertools.islice(batches, UNCOUNTED):
        step(batch)
    begun = now()
    for batch in itertools.islice(batches, UNCOUNTED, None):
        step(batch)
    taken = (now() - begun) / (len(batches) - UNCOUNTED)
    memory = f"{torch.cuda.max_memory_allocated(device) / 2**20:,.0f} MiB" if device.type == "cuda" else "-"
    return Pace(pairs / taken, memory)


def forget() -> None:
    """Give back what nobody holds of a GPU's memory."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def told(row: tuple[str, ...]) -> tuple[str, ...]:
    """A row, told as soon as it is there: whoever has a GPU for minutes may be cut off before the tables are."""
    print(" | ".join(row), file=sys.stderr, flush=True)
    return row


def _timed(work: Callable[[], object]) -> float:
    begun = now()
    work()
    return now() - begun
