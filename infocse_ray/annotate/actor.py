"""An actor that embeds shards of the token store: what it does with the vectors is the work it is given.

1. Ray Data deals groups of shards to a pool of actors, each with the encoder loaded once.
2. An actor takes a few groups at once through its pipeline, and embeds a bounded number of sentences at a time.
3. It writes its pieces of the stage; only counts travel back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import ray
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.engine import TORCH, Engine
from infocse_ray.annotate.pipeline import GROUPS_AT_ONCE, Pipeline, Work
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import Precision
from infocse_ray.runtime.cluster import Placement, assigned_cores, worker_device
from infocse_ray.runtime.placement import await_places, watched

_SWITCH_SECONDS = 0.0005
"""How long a thread keeps the interpreter while another waits for it. The one that has the device gives it up at every
operation it asks for, and would wait 5 ms each time for one that reads or writes."""


class _ShardActor:
    """The Ray Data actor."""

    def __init__(self, encoder: EncoderFolder, precision: Precision, work: Work, engine: Engine) -> None:
        sys.setswitchinterval(_SWITCH_SECONDS)
        cores, device = assigned_cores(), worker_device()  # Ray tells its own threads only

        def annotator() -> Annotator:
            torch.set_num_threads(cores)
            return Annotator(encoder, precision, device, engine)

        self.pipeline = Pipeline(annotator, work)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[str]]:
        return {"counts": [row for group in batch["item"] for row in _rows(self.pipeline(_shards(group)))]}


def in_actors(
    groups: list[list[int]],
    encoder: EncoderFolder,
    precision: Precision,
    placement: Placement,
    work: Work,
    title: str = "annotating",
    engine: Engine = TORCH,
) -> Iterator[dict[str, Any]]:
    """What `work` returns for every group of shards, in any order, from a pool of actors with the encoder.

    It begins with one actor; the others come as there is room for them. `title` says what waits until there is;
    `engine` computes the backbone.
    """
    await_places(placement, title, 1)
    actors = min(placement.workers, len(groups))
    # No more at once than is an actor's share, lest the first to start takes what the others would begin with.
    at_once = max(1, min(GROUPS_AT_ONCE, len(groups) // max(1, actors)))
    done = _dealt(groups).map_batches(
        _ShardActor,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(
            size=actors,
            max_tasks_in_flight_per_actor=max(2, at_once),
            max_concurrent_calls_per_actor=at_once,
            enable_true_multi_threading=True,
        ),
        num_cpus=placement.cores,
        num_gpus=1 if placement.use_gpu else 0,
        fn_constructor_kwargs={"encoder": encoder, "precision": precision, "work": work, "engine": engine},
    )
    with watched(placement, title, 1):
        yield from _counts(done)


def in_tasks(groups: list[list[int]], work: Callable[[list[int]], list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """What `work` returns for every group of shards, in any order, from tasks of one core without an encoder."""

    def do(batch: dict[str, np.ndarray]) -> dict[str, list[str]]:
        return {"counts": [row for group in batch["item"] for row in _rows(work(_shards(group)))]}

    return _counts(_dealt(groups).map_batches(do, batch_size=1))  # pyright: ignore[reportArgumentType]


def _dealt(groups: list[list[int]]) -> ray.data.Dataset:
    return ray.data.from_items(groups, override_num_blocks=len(groups))


def _shards(group: np.ndarray) -> list[int]:
    return [int(shard) for shard in group]


def _rows(counts: Iterable[dict[str, Any]]) -> list[str]:
    return [json.dumps(one) for one in counts]


def _counts(done: ray.data.Dataset) -> Iterator[dict[str, Any]]:
    return (json.loads(row["counts"]) for row in done.iter_rows())
