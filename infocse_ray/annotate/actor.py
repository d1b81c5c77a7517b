"""An actor that embeds shards of the token store: what it does with the vectors is the work it is given.

1. Ray Data deals groups of shards to a pool of actors, each with the encoder loaded once.
2. An actor takes a few groups at once through its pipeline, and embeds a bounded number of sentences at a time.
3. It writes its pieces of the stage; only counts travel back.
4. What is less work than starting actors is done by one process, which stays for what comes next.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import ray
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.engine import TORCH, Engine
from infocse_ray.annotate.pipeline import GROUPS_AT_ONCE, Phased, Pipeline, Work, through_phases
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import Precision
from infocse_ray.encoder.size import operations_a_token
from infocse_ray.runtime.cluster import Placement, assigned_cores, worker_device
from infocse_ray.runtime.placement import await_places, watched
from infocse_ray.runtime.tasks import items_of_one_task

_SWITCH_SECONDS = 0.0005
"""How long a thread keeps the interpreter while another waits for it. The one that has the device gives it up at every
operation it asks for, and would wait 5 ms each time for one that reads or writes."""


_SMALL_ON_CPU = 2e13
_SMALL_ON_GPU = 3e15
"""Multiplications and additions that take two CPU cores a minute, or a GPU half of one: what more processes would save
of that isn't much more than their start. BERT-base has 170 million of them a token, all-MiniLM-L6-v2 21."""


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


def is_small(tokens: float, encoder: EncoderFolder, placement: Placement) -> bool:
    """Whether so many tokens are less work than starting actors."""
    return tokens * operations_a_token(encoder) <= (_SMALL_ON_GPU if placement.use_gpu else _SMALL_ON_CPU)


_RESTARTS = 50
"""Of an actor, and of what it was at: a node may be lost now and then, and what dies every time comes to an end."""


def told(tokens: float, num_workers: int | Literal["auto"]) -> float | None:
    """What `in_actors` is told of tokens: nothing where a number of actors is asked for, which are to be had then."""
    return tokens if num_workers == "auto" else None


def in_actors(
    groups: list[list[int]],
    encoder: EncoderFolder,
    precision: Precision,
    placement: Placement,
    work: Work,
    title: str = "annotating",
    engine: Engine = TORCH,
    tokens: float | None = None,
) -> Iterator[dict[str, Any]]:
    """What `work` returns for every group of shards, in any order, from a pool of actors with the encoder.

    It begins with one actor; the others come as there is room for them.

    Args:
        groups: of shards.
        encoder: what embeds them.
        precision: of embedding.
        placement: of the actors.
        work: what each does with a group.
        title: says what waits until there is room.
        engine: computes the backbone.
        tokens: of all groups, about; where they are few, all is done by one process. None: nobody knows.
    """
    if tokens is not None and is_small(tokens, encoder, placement):
        given = groups, encoder, precision, work, engine
        yield from items_of_one_task(_in_this_process, *given, where=placement, title=title)
        return
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
        max_restarts=_RESTARTS,  # Ray Data's own are without end
        max_task_retries=_RESTARTS,
    )
    with watched(placement, title, 1):
        yield from _counts(done)


def _in_this_process(
    groups: list[list[int]], encoder: EncoderFolder, precision: Precision, work: Work, engine: Engine
) -> Iterator[dict[str, Any]]:
    annotator = Annotator(encoder, precision, worker_device(), engine)
    for group in groups:
        counts = through_phases(work, annotator, group) if isinstance(work, Phased) else work(annotator, group)
        yield from json.loads(json.dumps(counts))


def _dealt(groups: list[list[int]]) -> ray.data.Dataset:
    return ray.data.from_items(groups, override_num_blocks=len(groups))


def _shards(group: np.ndarray) -> list[int]:
    return [int(shard) for shard in group]


def _rows(counts: Iterable[dict[str, Any]]) -> list[str]:
    return [json.dumps(one) for one in counts]


def _counts(done: ray.data.Dataset) -> Iterator[dict[str, Any]]:
    return (json.loads(row["counts"]) for row in done.iter_rows())
