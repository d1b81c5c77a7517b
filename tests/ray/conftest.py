import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from ray.train import ScalingConfig

from infocse_ray.annotate import actor
from infocse_ray.loop import evaluate
from infocse_ray.train import loop, trainer


class _Dealt:
    """Groups of shards, as the dataset that they are dealt from: what its workers do is done in this process."""

    def __init__(self, groups: list[list[int]]) -> None:
        self._groups, self._work = groups, lambda batch: batch

    def map_batches(self, work: Any, fn_constructor_kwargs: dict[str, Any] | None = None, **_: Any) -> "_Dealt":
        self._work: Callable[[Any], Any] = work(**(fn_constructor_kwargs or {})) if isinstance(work, type) else work
        return self

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        for group in self._groups:
            yield from ({"counts": counts} for counts in self._work({"item": np.asarray([group])})["counts"])


@pytest.fixture
def workers_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What Ray Train's workers and Ray Data's actors do is done in this process: each time, their start takes 10 s.

    For tests whose subject is what comes of it; preparing and one worker alone stay Ray's tasks.
    """
    monkeypatch.setattr(trainer, "ScalingConfig", lambda **_: ScalingConfig(num_workers=0))
    monkeypatch.setattr(actor, "_dealt", _Dealt)
    for room in (actor, loop, evaluate):
        monkeypatch.setattr(room, "assigned_cores", lambda: 1)
        monkeypatch.setattr(room, "worker_device", lambda: torch.device("cpu"))
    threads, switch = torch.get_num_threads(), sys.getswitchinterval()
    yield
    torch.set_num_threads(threads)
    sys.setswitchinterval(switch)
