"""Only the most similar edges of the whole corpus: IDC in two passes, embedding once.

1. Actors embed, and write the edges of every document with their weights (Eq. 2 and 3).
2. The threshold is a quantile of the weights of all edges, by a histogram with bins as wide as 1/2,048 of a weight: it
   is at most that much below the exact one.
3. Tasks without an encoder drop the edges below it; what is left connected are the clusters (Eq. 4).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from infocse_ray.annotate.annotations import SCHEMA, cluster_table, counts_of, read_counts, read_whole, write_whole
from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.documents import TrainingDocuments, joined
from infocse_ray.annotate.idc import Edges, connected_clusters, graph_edges
from infocse_ray.annotate.pipeline import Written, through_phases
from infocse_ray.corpus.copies import Distinct
from infocse_ray.corpus.store import Documents, shard_name
from infocse_ray.corpus.tokens import flat, offsets_of
from infocse_ray.storage.folder import Storage

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


_SHIFT = 12
"""Of a weight's 32 bits those that a bin forgets; what is left are the sign, the exponent and 11 bits of the fraction:
2,048 bins from a weight to its double, as wide as 2^-11 of it, over the whole range of float32."""


def count_weights(weights: np.ndarray) -> dict[int, int]:
    """A histogram of weights, float32 [e], finite: edges by bin, in memory that at most 2^20 bins take.

    Those of parts add up to that of the whole, in any order.
    """
    bins, counts = np.unique(_in_order(weights.view(np.int32)) >> _SHIFT, return_counts=True)
    return dict(zip(bins.tolist(), counts.tolist(), strict=True))


def weight_quantile(histogram: Mapping[int, int], share: float) -> float:
    """The lower edge of the bin of the smallest weight from the quantile `share` on, a float32; 0 if there is none.

    The edges from there on are those that numpy's quantile leaves, and what else is in that bin.
    """
    bins = sorted(histogram)
    if not bins:
        return 0.0
    until = np.cumsum([histogram[bin] for bin in bins])
    rank = math.ceil(share * (int(until[-1]) - 1))
    lowest = np.int32(bins[int(np.searchsorted(until, rank, side="right"))] << _SHIFT)
    return float(_in_order(lowest).view(np.float32))


def _in_order(bits: Any) -> Any:
    """The bits of float32, int32, as integers in the order of the numbers; and back."""
    # The larger the bits of a negative number, the smaller it is.
    return np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int32)


class _Group(NamedTuple):
    """A group of shards on its way."""

    targets: list[Storage]
    parts: list[list[Documents]]
    """The row groups of each shard."""
    together: Documents | None
    """All of them, one after the other; None: there is no document."""
    nodes: Documents | None
    """Without copies."""
    distinct: Distinct | None
    edges: Edges
    """Of `together`, once they are embedded."""
    longest: int | None
    """See `counts_of`."""
    work: dict[str, int]
    """What embedding took."""


class FindEdges(NamedTuple):
    """Writes the edges of a group of shards, and counts their weights (see `Phased`)."""

    documents: TrainingDocuments
    folder: Storage
    k: int
    mutual: bool

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """Write what is missing; return the group's `documents` and `weights` (see `count_weights`)."""
        return through_phases(self, annotator, shards)

    def read(self, annotator: Annotator, shards: list[int]) -> _Group | Written:
        """The documents of all shards, as one."""
        targets = [self.folder / shard_name(shard) for shard in shards]
        if all(target.exists() for target in targets):  # written before a crash, each whole
            return Written(_counts([table for target in targets for table in read_whole(target)[0]]))
        parts = [self.documents.read(shard) for shard in shards]
        read = [documents for part in parts for documents in part]
        together = joined(read) if read else None
        nodes, distinct = (None, None) if together is None else annotator.without_copies(together)
        longest = self.documents.own_tokens(annotator.longest)
        return _Group(targets, parts, together, nodes, distinct, _NONE, longest, {})

    def embed(self, annotator: Annotator, group: _Group) -> _Group:
        """The edges."""
        before = annotator.tokens, annotator.padded
        of_blocks: list[Edges] = [_NONE]
        if group.nodes is not None and group.distinct is not None:
            for first, last, vectors in annotator.vectors(group.nodes):
                begin = group.nodes.offsets[first]
                edges = graph_edges(vectors, group.nodes.offsets[first : last + 1] - begin, self.k, self.mutual)
                rows = group.distinct.rows[begin:]
                of_blocks.append(edges._replace(source=rows[edges.source], target=rows[edges.target]))
        edges = Edges(*(np.concatenate(column) for column in zip(*of_blocks, strict=True)))
        work = {"tokens": annotator.tokens - before[0], "padded_tokens": annotator.padded - before[1]}
        return group._replace(edges=edges, work=work)

    def write(self, group: _Group) -> list[dict[str, Any]]:
        """A piece for each shard."""
        edge_tables = iter(_tables(group))
        written: list[pa.Table] = []
        for number, (target, part) in enumerate(zip(group.targets, group.parts, strict=True)):
            tables = [next(edge_tables) for _ in part]
            write_whole(target, _SCHEMA, tables, {"longest": group.longest, "work": {} if number else group.work})
            written += tables
        return _counts(written)


_NONE = Edges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))


def _counts(tables: list[pa.Table]) -> list[dict[str, Any]]:
    weights = np.concatenate([np.empty(0, np.float32), *(flat(table["weight"])[0].to_numpy() for table in tables)])
    return [{"documents": sum(len(table) for table in tables), "weights": count_weights(weights)}]


def _tables(group: _Group) -> list[pa.Table]:
    """A table of `_SCHEMA` for each row group."""
    if group.together is None or group.distinct is None:
        return []
    original = group.distinct.rows[group.distinct.node]
    offsets, read = group.together.offsets, [documents for part in group.parts for documents in part]
    # Sources ascend, so the edges of a document, and those of a row group, are in a row.
    before = np.searchsorted(group.edges.source, offsets)
    documents = offsets_of(np.array([len(part.keys) for part in read]))
    return [
        _table(part, group.edges, original, offsets[first : last + 1], before[first : last + 1])
        for part, first, last in zip(read, documents[:-1], documents[1:], strict=True)
    ]


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
            return read_counts(target)
        edges_of_groups, known = read_whole(self.edges / shard_name(shard))
        parts, firsts, work = [], [], Counter(known["work"])
        for documents, edges in zip(self.documents.own(shard), edges_of_groups, strict=True):
            offsets = documents.offsets
            start = np.repeat(offsets[:-1], np.diff(flat(edges["source"])[1]))
            source, target_, weight = (flat(edges[column])[0].to_numpy() for column in ("source", "target", "weight"))
            kept = weight >= np.float32(self.threshold)
            # A copy is where its text is, however dissimilar that is to the rest.
            original = flat(edges["first"])[0].to_numpy() + np.repeat(offsets[:-1], np.diff(offsets))
            copies = np.flatnonzero(original != np.arange(len(original)))
            sources = np.concatenate([(start + source)[kept], copies])
            targets = np.concatenate([(start + target_)[kept], original[copies]])
            parts.append(documents._replace(clusters=connected_clusters(sources, targets, offsets)))
            firsts.append(original == np.arange(len(original)))
            work.update({"edges_kept": int(kept.sum()), "edges_dropped": int((~kept).sum())})
        counts = counts_of(shard, parts, firsts, known["longest"], dict(work))
        write_whole(target, SCHEMA, [cluster_table(documents) for documents in parts], counts)
        return counts
