"""Only the most similar edges of the whole corpus: IDC in two passes, embedding once.

1. Actors embed, and write the edges of every document with their weights (Eq. 2 and 3).
2. The threshold is a quantile of the weights: of all, or of a sample of 16,384 drawn by hash.
3. Tasks without an encoder drop the edges below it; what is left connected are the clusters (Eq. 4).
"""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from infocse_ray.annotate.actor import Annotator
from infocse_ray.annotate.annotations import annotation_schema, counts_of, read_whole, with_clusters, write_whole
from infocse_ray.annotate.documents import TrainingDocuments, joined
from infocse_ray.annotate.idc import Edges, connected_clusters, mutual_edges, top_k_edges, undirected_edges
from infocse_ray.corpus.store import Documents, documents_of, shard_name
from infocse_ray.corpus.tokens import flat, offsets_of, sample_hashes
from infocse_ray.storage.folder import Storage

SAMPLE = 16_384
"""Edges that a quantile is taken of where there are more: at the quantile 0.75 its rank is off by 0.003 (one sigma)."""

_SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("source", pa.list_(pa.int32())),
        ("target", pa.list_(pa.int32())),
        ("weight", pa.list_(pa.float32())),
        ("first", pa.list_(pa.int32())),
    ]
)
"""Edges by document: both ends as sentence numbers in it, the source below the target, each edge once, of sentences
that are no copies; then, of each sentence, the number of the first with its text."""


class EdgeSample:
    """The weights of the edges with the smallest hashes: a uniform sample, whatever the order they are shown in.

    Showing an edge again changes nothing, so work that Ray does twice counts once.
    """

    def __init__(self, size: int = SAMPLE) -> None:
        self.size = size
        self.hashes, self.weights = np.empty(0, np.int64), np.empty(0, np.float32)

    def add(self, hashes: np.ndarray, weights: np.ndarray) -> None:
        """Show edges.

        Args:
            hashes: int64 [e], one an edge.
            weights: float32 [e].
        """
        near = self.near(hashes)
        hashes = np.concatenate([self.hashes, hashes[near]])
        self.hashes, first = np.unique(hashes, return_index=True)
        self.hashes = self.hashes[: self.size]
        self.weights = np.concatenate([self.weights, weights[near]])[first[: self.size]]

    def near(self, hashes: np.ndarray) -> np.ndarray:
        """Bool [e]: which edges are in the sample or could get into it."""
        return hashes <= (self.hashes[-1] if len(self.hashes) >= self.size else np.iinfo(np.int64).max)

    def quantile(self, share: float) -> float:
        """The weight that this share of the sample is below, as numpy interpolates it; 0 if there is no edge."""
        return float(np.quantile(self.weights.astype(np.float64), share)) if len(self.weights) else 0.0


def pack(array: np.ndarray) -> str:
    """An array's bytes as text."""
    return base64.b64encode(array.tobytes()).decode()


def unpack(text: str, kind: type[np.generic]) -> np.ndarray:
    """What `pack` packed."""
    return np.frombuffer(base64.b64decode(text), kind)


class FindEdges(NamedTuple):
    """Writes the edges of a group of shards, and samples them."""

    documents: TrainingDocuments
    folder: Storage
    k: int
    mutual: bool
    seed: int
    sample: EdgeSample
    """Of all groups that this actor has seen: what can't get into it, no other has to see."""

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """Write what is missing; return the group's counts and those of its edges that the sample may want.

        Returns:
            One dictionary: `documents`, `edges`, and packed `hashes` (int64) and `weights` (float32).
        """
        targets = [self.folder / shard_name(shard) for shard in shards]
        if all(target.exists() for target in targets):  # written before a crash, each whole
            tables = [table for target in targets for table in read_whole(target)[0]]
        else:
            tables = self._write(annotator, shards, targets)
        columns = [_flat_edges(table) for table in tables]
        key, source, target, weight = (np.concatenate(part) for part in zip(_NO_EDGES, *columns, strict=True))
        hashes = sample_hashes(self.seed, key, source, target)
        self.sample.add(hashes, weight)
        near = self.sample.near(hashes)
        counts = {"documents": sum(len(table) for table in tables), "edges": len(weight)}
        return [counts | {"hashes": pack(hashes[near]), "weights": pack(weight[near])}]

    def _write(self, annotator: Annotator, shards: list[int], targets: list[Storage]) -> list[pa.Table]:
        before = annotator.tokens, annotator.padded
        parts = [[documents for _, documents in self.documents.read(shard)] for shard in shards]
        read = [documents for part in parts for documents in part]
        found = iter(self._edges(annotator, read) if read else [])
        work = {"tokens": annotator.tokens - before[0], "padded_tokens": annotator.padded - before[1]}
        written: list[pa.Table] = []
        for number, (target, part) in enumerate(zip(targets, parts, strict=True)):
            tables = [next(found) for _ in part]
            write_whole(target, _SCHEMA, tables, {} if number else work)
            written += tables
        return written

    def _edges(self, annotator: Annotator, read: list[Documents]) -> list[pa.Table]:
        """A table of `_SCHEMA` for each part of the documents, embedded as one."""
        together = joined(read)
        nodes, distinct = annotator.without_copies(together)
        found: list[Edges] = []
        for first, last, vectors in annotator.vectors(nodes):
            begin = nodes.offsets[first]
            edges = top_k_edges(vectors, nodes.offsets[first : last + 1] - begin, self.k)
            edges = undirected_edges(mutual_edges(edges) if self.mutual else edges)
            rows = distinct.rows[begin:]
            found.append(edges._replace(source=rows[edges.source], target=rows[edges.target]))
        edges = Edges(*(np.concatenate(column) for column in zip(*found, strict=True)))
        original = distinct.rows[distinct.node]
        # Sources ascend, so the edges of a document, and those of a part, are in a row.
        before = np.searchsorted(edges.source, together.offsets)
        documents = offsets_of(np.array([len(part.keys) for part in read]))
        return [
            _table(part, edges, original, together.offsets[first : last + 1], before[first : last + 1])
            for part, first, last in zip(read, documents[:-1], documents[1:], strict=True)
        ]


_NO_EDGES = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))


def _table(part: Documents, edges: Edges, original: np.ndarray, offsets: np.ndarray, before: np.ndarray) -> pa.Table:
    """Edges before[i]:before[i + 1] are of document i, whose first row is offsets[i]; `original` is of all rows."""
    mine = slice(before[0], before[-1])
    start = np.repeat(offsets[:-1], np.diff(before))
    columns = [(edges.source[mine] - start).astype(np.int32), (edges.target[mine] - start).astype(np.int32)]
    lists = [_lists(column, before) for column in [*columns, edges.weight[mine]]]
    first = original[offsets[0] : offsets[-1]] - np.repeat(offsets[:-1], np.diff(offsets))
    return pa.table([pa.array(part.keys), *lists, _lists(first.astype(np.int32), offsets)], schema=_SCHEMA)


def _lists(values: np.ndarray, offsets: np.ndarray) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), pa.array(values))


def _flat_edges(table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Key, source, target and weight of each edge of a table of `_SCHEMA`."""
    source, offsets = flat(table["source"])
    key = np.repeat(table["key"].to_numpy(), np.diff(offsets))
    target, weight = flat(table["target"])[0], flat(table["weight"])[0]
    return key, source.to_numpy(), target.to_numpy(), weight.to_numpy()


class DropEdges(NamedTuple):
    """Writes the annotations of a group of shards from their edges, without those below the threshold."""

    documents: TrainingDocuments
    edges: Storage
    folder: Storage
    threshold: float

    def __call__(self, shards: list[int]) -> list[dict[str, Any]]:
        """Write what is missing; return the counts of each shard (see `counts_of`)."""
        return [self._shard(shard, self.folder / shard_name(shard)) for shard in shards]

    def _shard(self, shard: int, target: Storage) -> dict[str, Any]:
        if target.exists():
            return read_whole(target)[1]
        found, work = read_whole(self.edges / shard_name(shard))
        tables, firsts, work = [], [], Counter(work)
        for table, edges in zip(self.documents.rows(shard), found, strict=True):
            offsets = documents_of(table).offsets
            start = np.repeat(offsets[:-1], np.diff(flat(edges["source"])[1]))
            _, source, target_, weight = _flat_edges(edges)
            kept = weight.astype(np.float64) >= self.threshold
            # A copy is where its text is, however dissimilar that is to the rest.
            original = flat(edges["first"])[0].to_numpy() + np.repeat(offsets[:-1], np.diff(offsets))
            copies = np.flatnonzero(original != np.arange(len(original)))
            sources = np.concatenate([(start + source)[kept], copies])
            targets = np.concatenate([(start + target_)[kept], original[copies]])
            tables.append(with_clusters(table, connected_clusters(sources, targets, offsets)))
            firsts.append(original == np.arange(len(original)))
            work.update({"edges_kept": int(kept.sum()), "edges_dropped": int((~kept).sum())})
        counts = counts_of(tables, firsts, dict(work))
        write_whole(target, annotation_schema(self.documents.store), tables, counts)
        return counts
