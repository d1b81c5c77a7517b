"""What the cluster has, what its autoscaler may make of it, and waiting for a stage's workers to have places.

A stage that needs what is not there yet, or what another holds, would hang in Ray without a word: here it says what it
waits for, and the wait is what the autoscaler sees as demand.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ray
import yaml
from ray._private.worker import global_worker
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group

from infocse_ray.runtime.progress import duration, say

_SAY_FIRST_SECONDS = 5.0
_SAY_SECONDS = 30.0
_WARN_SECONDS = 600.0
"""Of waiting, after which it warns, once: nodes take minutes to come, and those that don't are to be looked at."""
_LOOK_SECONDS = 5.0
_NODE_GROUP = "ray.io/node-group"
"""Ray's label of a node that a cluster launcher or Kubernetes started."""


class Placement(NamedTuple):
    """How many workers a stage gets and what each has."""

    workers: int
    use_gpu: bool
    cores: int
    """CPU cores of each worker."""
    fewest: int | None = None
    """Workers that the stage begins and goes on with where there is no room for all; None: with all only."""

    @property
    def bundle(self) -> dict[str, float]:
        """What Ray is asked for each worker."""
        return {"CPU": float(self.cores)} | ({"GPU": 1.0} if self.use_gpu else {})


class Nodes(NamedTuple):
    """The nodes of a cluster."""

    cpus: list[int]
    """CPU cores of each."""
    gpus: list[int]
    """GPUs of each."""
    grows: bool = False
    """Whether more may come, nobody here knows which."""


def nodes_there() -> Nodes:
    """The nodes that are alive."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    launched = any(_NODE_GROUP in (node.get("Labels") or {}) for node in alive)
    return Nodes(*(_each([node["Resources"] for node in alive], name) for name in ("CPU", "GPU")), grows=launched)


def possible_nodes() -> Nodes:
    """The nodes that are alive, or all that the autoscaler may start, where its configuration can be read."""
    there = nodes_there()
    if (config := autoscaler_config()) is None:
        return there
    types, head = config["available_node_types"], config.get("head_node_type")
    most = config.get("max_workers")
    workers: list[dict[str, float]] = []
    # Where not all types can have their most at once, those with GPUs come first.
    for name, kind in sorted(types.items(), key=lambda item: -item[1].get("resources", {}).get("GPU", 0)):
        if name != head:
            count = kind.get("max_workers", most)
            workers += [kind.get("resources", {})] * (count if count is not None else kind.get("min_workers", 0))
    nodes = [types[head].get("resources", {})] if head in types else []
    nodes += workers[:most]
    largest = Nodes(_each(nodes, "CPU"), _each(nodes, "GPU"))
    # On machines of one's own the configuration needn't say what each has.
    said = sum(largest.cpus) >= sum(there.cpus) and sum(largest.gpus) >= sum(there.gpus)
    return largest if said else there._replace(grows=True)


def _each(resources: list[dict[str, float]], name: str) -> list[int]:
    return [int(one.get(name, 0)) for one in resources]


def autoscaler_config() -> dict[str, Any] | None:
    """The configuration of this cluster's autoscaler, which runs on the head, where jobs run; None elsewhere.

    Ray's interfaces tell what there is, not what there may be.
    """
    address = f"--gcs-address={ray.get_runtime_context().gcs_address}"
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            options = process.read_bytes().decode().split("\0")
            if address in options:
                for option in options:
                    if option.startswith("--autoscaling-config="):
                        return yaml.safe_load(Path(option.partition("=")[2]).expanduser().read_text())
    return None


def await_places(where: Placement, title: str, workers: int | None = None, patience: float | None = None) -> bool:
    """Wait until there is room for the workers, saying now and then what is waited for.

    Args:
        where: what each worker has.
        title: of the stage, for people.
        workers: how many it begins with; None: the fewest.
        patience: seconds to wait; None: for ever.

    Returns:
        Whether there is room.
    """
    wanted = workers or where.fewest or where.workers
    group = placement_group([where.bundle] * wanted)
    try:
        due, warned = (begun := time.monotonic()) + _SAY_FIRST_SECONDS, False
        while not group.wait(1):
            if patience is not None and time.monotonic() >= begun + patience:
                return False
            if (now := time.monotonic()) >= due:
                due = now + _SAY_SECONDS
                line = f"{title} waits for {_wanted(where, wanted)}: {_cluster()}"
                warns = not warned and now >= begun + _WARN_SECONDS
                say(f"warning: after {duration(now - begun)} {line}" if warns else f"  {line}")
                warned = warned or warns
        return True
    finally:
        with contextlib.suppress(RayError):
            remove_placement_group(group)


@contextlib.contextmanager
def watched(where: Placement, title: str, fewest: int) -> Iterator[None]:
    """Say, while the block runs, that the nodes left have no room for the fewest workers it goes on with."""
    ended = threading.Event()

    def watch() -> None:
        short, due = 0, 0.0
        while not ended.wait(_LOOK_SECONDS):
            try:
                short = 0 if room(nodes_there(), where) >= fewest else short + 1
            except Exception:  # a watch is never worth a run
                return
            if short > 1 and time.monotonic() >= due:
                due = time.monotonic() + _SAY_SECONDS
                say(f"  {title} goes on when there is room for {_wanted(where, fewest)}: {_cluster()}")

    thread = threading.Thread(target=watch, daemon=True, name="places")
    thread.start()
    try:
        yield
    finally:
        ended.set()


def room(nodes: Nodes, where: Placement) -> int:
    """How many workers whole nodes have room for."""
    by_cores = [cpus // where.cores for cpus in nodes.cpus]
    return sum(map(min, by_cores, nodes.gpus) if where.use_gpu else by_cores)


def _wanted(where: Placement, workers: int) -> str:
    return f"{workers:,} worker{'s' if workers > 1 else ''} of {_listed(where.bundle, where.bundle)}"


def _cluster() -> str:
    there, free = ray.cluster_resources(), ray.available_resources()
    line = f"the cluster has {_listed(there, ('CPU', 'GPU'))}, free are {_listed(free, ('CPU', 'GPU'))}"
    if held := _held_here():
        line += f"; {held} of the others has the Ray task, or actor, that leads this run: start it with num_cpus=0"
    return line


def _held_here() -> str:
    """What a Ray task that leads the run has, for people: the run would wait for just that."""
    # Asked in a driver, Ray's context has no answer; asked where there is no Ray, it starts one.
    leads_from_task = global_worker.mode == ray.WORKER_MODE
    own = ray.get_runtime_context().get_assigned_resources() if leads_from_task else {}
    return " and ".join(f"{own[name]:g} {name}" for name in ("CPU", "GPU") if own.get(name))


def _listed(amounts: Mapping[str, float], names: Iterable[str]) -> str:
    return " and ".join(f"{amounts.get(name, 0):,.0f} {name}" for name in names)
