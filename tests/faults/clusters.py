"""Clusters of several nodes on this machine, and Ray's worker processes, to be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator

import psutil
from ray.cluster_utils import Cluster

ACTOR, TRAINER = "ray::MapWorker", "ray::RayTrainWorker"
TASK, ALONE = "ray::items_then_idle", "ray::then_idle"
"""How Ray titles the processes of Ray Data's actors, of Ray Train's workers, and those that do what one worker does:
embed, item by item, or train."""


@contextlib.contextmanager
def cluster(nodes: int, cpus: int, head_cpus: int = 0) -> Iterator[Cluster]:
    """A head and so many nodes, of so many cores each."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": head_cpus})
    try:
        for _ in range(nodes):
            made.add_node(num_cpus=cpus)
        yield made
    finally:
        made.shutdown()


def processes(title: str, of: int | None = None) -> list[psutil.Process]:
    """Ray's workers of that title below process `of`, this one unless given."""
    found = []
    for process in psutil.Process(of).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "".join(process.cmdline()[:1]).startswith(title) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@contextlib.contextmanager
def frozen(workers: list[psutil.Process]) -> Iterator[None]:
    """Hold processes still while the block runs; those it kills stay so."""
    for worker in workers:
        worker.suspend()
    try:
        yield
    finally:
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.resume()


def kill(worker: psutil.Process) -> None:
    """`kill -9`, and wait until it is gone."""
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


def until(reached: Callable[[], object]) -> None:
    """Wait for something that comes."""
    while not reached():
        time.sleep(0.02)
