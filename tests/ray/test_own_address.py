"""Every process of a run knows its own Ray, however many run on the machine; and a local one is out of signals' way."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import ray


class Guard:
    """As Ray Train's of a training: made by an actor, detached."""

    def address(self) -> str | None:
        return os.environ.get("RAY_ADDRESS")


class Controller:
    """As Ray Train's, which has variables of its own."""

    def __init__(self) -> None:
        self.guard: Any = ray.remote(num_cpus=0)(Guard).options(lifetime="detached").remote()

    def addresses(self) -> list[str | None]:
        return [os.environ.get("RAY_ADDRESS"), ray.get(self.guard.address.remote())]

    def end(self) -> None:
        ray.kill(self.guard)


@pytest.mark.usefixtures("ray_cluster")
def test_tasks_and_actors_and_their_actors_are_told_their_rays_address() -> None:
    mine = ray.get_runtime_context().gcs_address
    task = ray.remote(num_cpus=0)(lambda: os.environ.get("RAY_ADDRESS"))
    assert ray.get(task.remote()) == mine
    controller: Any = ray.remote(num_cpus=0, runtime_env={"env_vars": {"A": "b"}})(Controller).remote()
    assert ray.get(controller.addresses.remote()) == [mine, mine]
    ray.get(controller.end.remote())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Ray ends its processes by their group")
@pytest.mark.usefixtures("ray_cluster")
def test_a_signal_to_the_drivers_process_group_leaves_a_local_ray_alone() -> None:
    raylet = ray.get(ray.remote(num_cpus=0)(lambda: os.getppid()).remote())
    assert os.getpgid(raylet) == raylet
    assert os.getpgid(0) != raylet
