"""How much memory a step takes, and how much there is: as a GPU's allocator says, or, on CPUs, as autograd keeps it."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import torch

_CPU_SHARE = 0.3
"""Of a machine's memory, to be kept in activations: some of what they take besides comes and goes unseen."""


class Meter(Protocol):
    """What a device can say of its memory."""

    steps: int
    """How many steps it takes until one has all that a step will ever have."""
    runs_out: bool
    """Whether memory that runs out is an error that a step can be begun anew after."""

    def watched(self) -> contextlib.AbstractContextManager[None]:
        """Look for the most that is taken inside."""
        ...

    def taken(self) -> int:
        """Bytes that were taken at most, beyond what was taken before."""
        ...

    def room(self) -> int:
        """Bytes that could have been."""
        ...


class CudaMeter:
    """A GPU's memory, as torch's allocator counts it; nothing is waited for."""

    steps = 2  # the optimiser's moments aren't there in the first
    runs_out = True

    def __init__(self, device: torch.device) -> None:
        self._device, self._before = device, 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look for the most that is taken inside."""
        torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_allocated(self._device)
        yield

    def taken(self) -> int:
        """Bytes that were taken at most, beyond what was taken before."""
        return torch.cuda.max_memory_allocated(self._device) - self._before

    def room(self) -> int:
        """Bytes that could have been."""
        free, _ = torch.cuda.mem_get_info(self._device)
        return free + torch.cuda.memory_reserved(self._device) - self._before


class CpuMeter:
    """What autograd keeps for backward, each storage once: the same in every run, as what is resident is not."""

    steps = 1
    runs_out = False

    def __init__(self) -> None:
        self._ledger = _Ledger()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look for the most that is taken inside."""
        ledger = self._ledger = _Ledger()  # what was taken before is dropped from its own
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: _Held(ledger, tensor), lambda held: held.tensor):
            yield

    def taken(self) -> int:
        """Bytes that were taken at most, beyond what was taken before."""
        return self._ledger.most

    def room(self) -> int:
        """Bytes of the machine's memory that go with this process' threads, but for what else needs some."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return int(_CPU_SHARE * _memory() * min(1.0, torch.get_num_threads() / cores))


class _Ledger:
    """Which storages are kept, how often, and how many bytes that is."""

    def __init__(self) -> None:
        self.most = self._now = 0
        self._holders: Counter[int] = Counter()

    def hold(self, place: int, size: int) -> None:
        """A storage is kept once more."""
        self._holders[place] += 1
        if self._holders[place] == 1:
            self._now += size
            self.most = max(self.most, self._now)

    def drop(self, place: int, size: int) -> None:
        """A storage is kept once less."""
        self._holders[place] -= 1
        if not self._holders[place]:
            self._now -= size


class _Held:
    """A tensor that autograd keeps."""

    def __init__(self, ledger: _Ledger, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        # Detached: a result that is kept by its own function would keep that, for ever.
        self.tensor, self._ledger, self._storage = tensor.detach(), ledger, (storage.data_ptr(), storage.nbytes())
        ledger.hold(*self._storage)

    def __del__(self) -> None:
        self._ledger.drop(*self._storage)


def _memory() -> int:
    """Bytes of memory of this machine, or of the container that it is."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        limit = "max"
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        whole = 0
    return min(whole, int(limit)) if limit.isdigit() else whole
