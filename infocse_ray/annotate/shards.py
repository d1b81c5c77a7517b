"""The annotations of groups of shards: read, clustered where the vectors are, and written."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from infocse_ray.annotate.annotations import cluster_table, counts_of, read_counts, write_whole
from infocse_ray.annotate.annotator import Annotator, Clustering
from infocse_ray.annotate.documents import TrainingDocuments, joined
from infocse_ray.annotate.pipeline import Written, through_phases
from infocse_ray.corpus.copies import Distinct
from infocse_ray.corpus.store import Documents, shard_name
from infocse_ray.storage.folder import Storage


class _Group(NamedTuple):
    """A group of shards on its way."""

    shards: list[int]
    targets: list[Storage]
    parts: list[list[Documents]]
    """The row groups of each shard."""
    nodes: Documents | None
    """The texts of all of them, one after the other, without copies; None: there is no document."""
    distinct: Distinct | None
    longest: int | None
    """See `counts_of`."""
    clusters: np.ndarray
    """int32 [nodes], once they are embedded."""
    work: dict[str, int]
    """What embedding took."""


class AnnotateShards(NamedTuple):
    """Writes the annotations of a group of shards, which are embedded together (see `Phased`).

    So sentences of one length are many even where shards are small.
    """

    documents: TrainingDocuments
    folder: Storage
    clustering: Clustering

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """Write what is missing; return the counts of each shard (see `counts_of`)."""
        return through_phases(self, annotator, shards)

    def read(self, annotator: Annotator, shards: list[int]) -> _Group | Written:
        """The documents of all shards, as one."""
        targets = [self.folder / shard_name(shard) for shard in shards]
        if all(target.exists() for target in targets):  # written before a crash, each whole
            return Written([read_counts(target) for target in targets])
        # If only some are, all are computed again: what is embedded together must not depend on a crash.
        parts = [self.documents.read(shard) for shard in shards]
        read = [documents for part in parts for documents in part]
        there = any(len(documents.keys) for documents in read)
        nodes, distinct = annotator.without_copies(joined(read)) if there else (None, None)
        longest = self.documents.own_tokens(annotator.encoder.room())
        return _Group(shards, targets, parts, nodes, distinct, longest, np.empty(0, np.int32), {})

    def embed(self, annotator: Annotator, group: _Group) -> _Group:
        """The clusters."""
        before = annotator.tokens, annotator.padded
        clusters = group.clusters if group.nodes is None else annotator.clusters_of_nodes(group.nodes, self.clustering)
        work = {"tokens": annotator.tokens - before[0], "padded_tokens": annotator.padded - before[1]}
        return group._replace(clusters=clusters, work=work)

    def write(self, group: _Group) -> list[dict[str, Any]]:
        """A piece for each shard."""
        columns = group.clusters, np.empty(0, bool)
        if group.distinct is not None:
            columns = group.clusters[group.distinct.node], group.distinct.first
        begin, rows = 0, []
        for shard, target, part in zip(group.shards, group.targets, group.parts, strict=True):
            clustered, firsts = [], []
            for documents in part:
                end = begin + len(documents.sentences)
                clusters, first = (column[begin:end] for column in columns)
                clustered.append(documents._replace(clusters=clusters))
                firsts.append(first)
                begin = end
            counts = counts_of(shard, clustered, firsts, group.longest, {} if rows else group.work)
            write_whole(target, [cluster_table(documents) for documents in clustered], counts)
            rows.append(counts)
        return rows
