"""Waiting for places that another holds, on a real cluster."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from infocse_ray.runtime import left_places
from infocse_ray.runtime import placement as places
from infocse_ray.runtime.left_places import free_left_places
from infocse_ray.runtime.placement import Placement, await_places


class _Holder:
    def ready(self) -> None: ...


class _Asking:
    """Asks for a place, as Ray Train's controller does, and holds it."""

    def ask(self) -> str:
        self.group = placement_group([{"CPU": 0.25}])
        assert self.group.wait(20)
        return self.group.id.hex()


@pytest.mark.usefixtures("ray_cluster")
def test_places_of_the_dead_are_freed_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_places, "_WAIT_SECONDS", 3.0)
    mine = placement_group([{"CPU": 0.25}])
    assert mine.wait(20)
    asking: Any = ray.remote(num_cpus=0)(_Asking)
    dead, alive = asking.remote(), asking.remote()
    left, held = ray.get([dead.ask.remote(), alive.ask.remote()])
    try:
        assert free_left_places() == 0, "nobody is dead"
        ray.kill(dead)
        assert free_left_places() == 1
        states = {name: group["state"] for name, group in placement_group_table().items()}
        assert [states[name] for name in (left, held, mine.id.hex())] == ["REMOVED", "CREATED", "CREATED"]
    finally:
        ray.kill(alive)
        free_left_places()
        remove_placement_group(mine)


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
