"""Waiting for places that another holds, on a real cluster."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from infocse_ray.runtime import left_places
from infocse_ray.runtime import placement as places
from infocse_ray.runtime.left_places import LeftPlaces
from infocse_ray.runtime.placement import Placement, await_places


class _Holder:
    def ready(self) -> None: ...


@pytest.mark.usefixtures("ray_cluster")
def test_places_that_nobody_is_in_are_freed_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_places, "_LOOK_SECONDS", 0.5)
    monkeypatch.setattr(left_places, "_WAIT_SECONDS", 8.0)

    def group(cores: float) -> Any:
        made = placement_group([{"CPU": cores}])
        assert made.wait(20)
        return made

    def state(of: Any) -> str:
        return placement_group_table(of)["state"]

    groups = [earlier := group(0.25)]
    left = LeftPlaces()
    assert left.free(Placement(1, False, 1)) == 0, "there is none"
    groups += [other := group(0.25), used := group(1.0)]
    inside = PlacementGroupSchedulingStrategy(used)
    holder: Any = ray.remote(num_cpus=0)(_Holder).options(scheduling_strategy=inside).remote()
    ray.get(holder.ready.remote())
    try:
        assert left.free(Placement(1, False, 1)) == 0
        assert [state(one) for one in groups] == ["CREATED"] * 3
        ray.kill(holder)
        assert left.free(Placement(1, False, 1)) == 1
        assert state(used) == "REMOVED"
        assert [state(one) for one in (earlier, other)] == ["CREATED"] * 2
    finally:
        for one in groups:
            remove_placement_group(one)


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
