from collections.abc import Iterator

import pytest
import torch
from ray.train import ScalingConfig

from infocse_ray.loop import evaluate
from infocse_ray.train import loop, trainer


@pytest.fixture
def training_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray Train's local mode: what a worker does is done in this process, for a group's start takes 10 s each time."""
    monkeypatch.setattr(trainer, "ScalingConfig", lambda **_: ScalingConfig(num_workers=0))
    for room in (loop, evaluate):
        monkeypatch.setattr(room, "assigned_cores", lambda: 1)
        monkeypatch.setattr(room, "worker_device", lambda: torch.device("cpu"))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
