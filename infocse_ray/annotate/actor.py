"""An actor that embeds shards of the token store: what it does with the vectors is the work it is given.

1. Ray Data deals groups of shards to a pool of actors, each with the encoder loaded once.
2. An actor embeds a bounded number of sentences, works on the vectors, forgets them, goes on.
3. It writes its pieces of the stage; only counts travel back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import ray
import torch

from infocse_ray.annotate.annotations import annotation_schema, counts_of, read_whole, with_clusters, write_whole
from infocse_ray.annotate.documents import TrainingDocuments, joined
from infocse_ray.corpus.copies import Distinct, without_copies
from infocse_ray.corpus.store import Documents, shard_name
from infocse_ray.corpus.tokens import Tokens, bounded_ranges
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE, Precision, embed, for_inference
from infocse_ray.runtime.cluster import Placement, assigned_cores, worker_device
from infocse_ray.runtime.placement import await_places, watched
from infocse_ray.storage.folder import Storage

Clustering = Callable[[torch.Tensor, np.ndarray], np.ndarray]
"""Vectors float32 [n, d] and offsets int64 [documents + 1] -> int32 [n], clusters from 0 in every document."""


class Annotator:
    """Embeds documents with one encoder on one device, and counts what that takes."""

    def __init__(self, encoder: EncoderFolder, precision: Precision, device: torch.device) -> None:
        self.encoder = for_inference(encoder.load(), precision, device)
        self.tokens = self.padded = 0

    def embed(self, sentences: Tokens) -> torch.Tensor:
        """float32 [n, d] on the device; give it at most SENTENCES_AT_ONCE, or a document."""
        part = embed(self.encoder, sentences)
        self.tokens += part.tokens
        self.padded += part.padded
        return part.vectors

    def without_copies(self, documents: Documents) -> tuple[Documents, Distinct]:
        """Documents with each text once, as the encoder reads it, and which sentences these are."""
        encoder = self.encoder
        return without_copies(documents, encoder.max_length - len(encoder.prefix) - len(encoder.suffix))

    def vectors(self, documents: Documents) -> Iterator[tuple[int, int, torch.Tensor]]:
        """Ranges of documents, first and after the last, with the vectors of all their sentences."""
        for first, last in bounded_ranges(documents.offsets, SENTENCES_AT_ONCE):
            begin, end = documents.offsets[first], documents.offsets[last]
            yield first, last, self.embed(documents.sentences.take(np.arange(begin, end)))

    def clusters(self, documents: Documents, clustering: Clustering) -> tuple[np.ndarray, np.ndarray]:
        """Clusters inside each document; copies of a sentence are embedded once, and share its cluster.

        Returns:
            int32 [sentences], cluster ids numbered from 0 inside each document; and bool [sentences], which are no copy
            of an earlier one.
        """
        nodes, distinct = self.without_copies(documents)
        out = np.empty(len(nodes.sentences), dtype=np.int32)
        for first, last, vectors in self.vectors(nodes):
            begin, end = nodes.offsets[first], nodes.offsets[last]
            out[begin:end] = clustering(vectors, nodes.offsets[first : last + 1] - begin)
        return out[distinct.node], distinct.first


class Work(Protocol):
    """The work of an actor on a group of shards."""

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """Write the group's pieces; return counts that have a JSON form and stay small however large the shards."""
        ...


class AnnotateShards(NamedTuple):
    """Writes the annotations of a group of shards, which are embedded together.

    So sentences of one length are many even where shards are small.
    """

    documents: TrainingDocuments
    folder: Storage
    clustering: Clustering

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """Write what is missing; return the counts of each shard (see `counts_of`)."""
        targets = [self.folder / shard_name(shard) for shard in shards]
        if all(target.exists() for target in targets):  # written before a crash, each whole
            return [read_whole(target)[1] for target in targets]
        # If only some are, all are computed again: what is embedded together must not depend on a crash.
        before = annotator.tokens, annotator.padded
        parts = [self.documents.read(shard) for shard in shards]
        read = [documents for part in parts for _, documents in part]
        clusters = self._clusters(annotator, read) if read else iter(())
        work = {"tokens": annotator.tokens - before[0], "padded_tokens": annotator.padded - before[1]}
        schema = annotation_schema(self.documents.store)
        rows = []
        for target, part in zip(targets, parts, strict=True):
            clustered = [next(clusters) for _ in part]
            tables = [with_clusters(table, own) for (table, _), (own, _) in zip(part, clustered, strict=True)]
            counts = counts_of(tables, [first for _, first in clustered], {} if rows else work)
            write_whole(target, schema, tables, counts)
            rows.append(counts)
        return rows

    def _clusters(self, annotator: Annotator, read: list[Documents]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Of each table's sentences what `Annotator.clusters` gives, embedded as one."""
        ends = np.cumsum([len(documents.sentences) for documents in read])
        columns = annotator.clusters(joined(read), self.clustering)
        return zip(*(np.split(column, ends[:-1]) for column in columns), strict=True)


class _ShardActor:
    """The Ray Data actor."""

    def __init__(self, encoder: EncoderFolder, precision: Precision, work: Work) -> None:
        torch.set_num_threads(assigned_cores())
        self.annotator, self.work = Annotator(encoder, precision, worker_device()), work

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[str]]:
        return {"counts": [row for group in batch["item"] for row in _rows(self.work(self.annotator, _shards(group)))]}


def in_actors(
    groups: list[list[int]],
    encoder: EncoderFolder,
    precision: Precision,
    placement: Placement,
    work: Work,
    title: str = "annotating",
) -> Iterator[dict[str, Any]]:
    """What `work` returns for every group of shards, in any order, from a pool of actors with the encoder.

    It begins with one actor; the others come as there is room for them. `title` says what waits until there is.
    """
    await_places(placement, title, 1)
    done = _dealt(groups).map_batches(
        _ShardActor,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(placement.workers, len(groups))),
        num_cpus=placement.cores,
        num_gpus=1 if placement.use_gpu else 0,
        fn_constructor_kwargs={"encoder": encoder, "precision": precision, "work": work},
    )
    with watched(placement, title, 1):
        yield from _counts(done)


def in_tasks(groups: list[list[int]], work: Callable[[list[int]], list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """What `work` returns for every group of shards, in any order, from tasks of one core without an encoder."""

    def do(batch: dict[str, np.ndarray]) -> dict[str, list[str]]:
        return {"counts": [row for group in batch["item"] for row in _rows(work(_shards(group)))]}

    return _counts(_dealt(groups).map_batches(do, batch_size=1))  # pyright: ignore[reportArgumentType]


def in_one_task(work: Callable[..., None], *arguments: Any) -> None:
    """Do `work` in a task of one core, and wait for it: what it reads and holds is not the driver's."""
    # Placed by name, as Ray Data's tasks are: in a trial of Ray Tune it would else wait for a core of the trial's own
    # placement group, which has none.
    ray.get(ray.remote(scheduling_strategy="DEFAULT")(work).remote(*arguments))


def _dealt(groups: list[list[int]]) -> ray.data.Dataset:
    return ray.data.from_items(groups, override_num_blocks=len(groups))


def _shards(group: np.ndarray) -> list[int]:
    return [int(shard) for shard in group]


def _rows(counts: Iterable[dict[str, Any]]) -> list[str]:
    return [json.dumps(one) for one in counts]


def _counts(done: ray.data.Dataset) -> Iterator[dict[str, Any]]:
    return (json.loads(row["counts"]) for row in done.iter_rows())
