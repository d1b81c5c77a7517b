"""Waiting for places that another holds, on a real cluster."""

from __future__ import annotations

from typing import Any

import pytest
import ray

from infocse_ray.runtime import placement as places
from infocse_ray.runtime.placement import Placement, await_places


class _Holder:
    def ready(self) -> None: ...


@pytest.mark.usefixtures("ray_cluster")
def test_a_stage_waits_for_an_actor_that_lingers_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = int(ray.cluster_resources()["CPU"])
    holder: Any = ray.remote(num_cpus=cores)(_Holder).remote()
    ray.get(holder.ready.remote())
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        ray.kill(holder)

    monkeypatch.setattr(places, "say", say)
    monkeypatch.setattr(places, "_SAY_FIRST_SECONDS", 0.0)
    await_places(Placement(1, False, cores), "training")
    assert said[0] == (
        f"  training waits for 1 worker of {cores} CPU: the cluster has {cores} CPU and 0 GPU, free are 0 CPU and 0 GPU"
    )
    # Nothing is held for the stage once it may begin.
    ray.get(ray.remote(num_cpus=cores)(lambda: None).remote(), timeout=60)
