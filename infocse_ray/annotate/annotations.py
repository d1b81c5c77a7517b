"""Annotations: the training documents of a token store with a cluster for every sentence, in shards, counted."""

from __future__ import annotations

import functools
import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from infocse_ray.annotate.clusters import cluster_sizes, count_pairs
from infocse_ray.corpus.store import Documents, TokenStore, documents_of
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet

COLUMNS = ["doc_id", "key", "split", "sentences", "cluster"]

_COUNTS = b"infocse_ray.counts"
"""Parquet metadata: what the shard adds to the stage's summary, such as tokens embedded, which its rows don't tell: a
resumed run counts it too."""


def annotation_schema(store: TokenStore) -> pa.Schema:
    """Schema of a shard of annotations: columns of the token store's, and `cluster`, one id a sentence."""
    shard = store.shard(0)
    return _schema(shard.root, shard.relative)


@functools.lru_cache(maxsize=4)
def _schema(root: str, relative: str) -> pa.Schema:
    # Opening a shard fetches up to 8 MiB: not once for every other shard.
    with open_parquet(Storage(root, relative)) as file:
        return pa.schema([file.schema_arrow.field(c) for c in COLUMNS[:-1]] + [("cluster", pa.list_(pa.int32()))])


def with_clusters(table: pa.Table, clusters: np.ndarray) -> pa.Table:
    """A table of the token store with a `cluster` column.

    Args:
        table: documents.
        clusters: int32 [sentences] of all its documents.
    """
    offsets = documents_of(table).offsets.astype(np.int32)
    return table.append_column("cluster", pa.ListArray.from_arrays(pa.array(offsets), pa.array(clusters)))


def write_whole(target: Storage, schema: pa.Schema, tables: list[pa.Table], counts: dict[str, Any]) -> None:
    """Write a shard, a row group each table, unless it is there; `read_whole` gives back `counts`, as JSON has them."""
    if not target.exists():
        whole = pa.concat_tables([schema.empty_table(), *[table.cast(schema) for table in tables]])
        whole = whole.replace_schema_metadata({_COUNTS: json.dumps(counts)})
        write_parquet(target, whole, [len(table) for table in tables])


def read_whole(written: Storage) -> tuple[list[pa.Table], dict[str, Any]]:
    """The row groups of what `write_whole` wrote, and the counts."""
    with open_parquet(written) as file:
        counts = json.loads((file.schema_arrow.metadata or {}).get(_COUNTS, "{}"))
        return [file.read_row_group(group) for group in range(file.num_row_groups)], counts


def counts_of(tables: list[pa.Table], first: list[np.ndarray], work: dict[str, int]) -> dict[str, Any]:
    """What a shard of annotations adds to the stage's summary; as many bytes however large the shard is.

    Args:
        tables: of annotations.
        first: bool [sentences] of each, which are no copy of an earlier sentence of their document; pairs, and the
            clusters' sizes, are of these.
        work: what making the shard took.
    """
    counts: Counter[str] = Counter(work)
    sizes: Counter[int] = Counter()
    for table, no_copy in zip(tables, first, strict=True):
        _count(documents_of(table), np.flatnonzero(no_copy), counts, sizes)
    return {**counts, "sizes": dict(sizes)}


def _count(documents: Documents, rows: np.ndarray, counts: Counter[str], sizes: Counter[int]) -> None:
    assert documents.clusters is not None
    cluster_lengths = cluster_sizes(documents.clusters, documents.offsets, rows)
    counts["documents"] += len(documents.keys)
    counts["sentences"] += len(documents.sentences)
    counts["copies"] += len(documents.sentences) - len(rows)
    counts["clusters"] += len(cluster_lengths)
    counts["pairs"] += int(count_pairs(documents.clusters, documents.offsets, rows).sum())
    # A histogram by powers of two: 1, 2, 3-4, 5-8, ...
    sizes.update(Counter((2 ** np.ceil(np.log2(cluster_lengths)).astype(np.int64)).tolist()))


class Summary:
    """Adds up the counts of shards, in memory that does not grow with them."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()

    @property
    def documents(self) -> int:
        """Documents counted so far."""
        return self._totals["documents"]

    def add(self, counts: dict[str, Any]) -> None:
        """Add what `counts_of` returned, or its JSON read back."""
        rest = dict(counts)
        self._sizes.update({int(size): n for size, n in rest.pop("sizes").items()})
        self._totals.update(rest)

    def content(self) -> dict[str, Any]:
        """The stage's summary: counts by name, and the histogram `cluster_sizes`."""
        return dict(self._totals) | {
            "cluster_sizes": {str(s): self._sizes[s] for s in sorted(self._sizes)},
        }
