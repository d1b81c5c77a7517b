"""Annotations: a cluster for every sentence of the training documents, in shards beside those of the token store.

A shard has a row group for each of the token store's, in their order, and a row for each document of it that was
annotated: its key, by which it is seen whose clusters these are, and nothing else that the token store has.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infocse_ray.annotate.clusters import cluster_sizes, count_pairs
from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import flat
from infocse_ray.storage.checksums import checked, damaged, read_checked
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, read_groups, write_parquet

SCHEMA = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        pa.field("cluster", pa.list_(pa.int32()), nullable=False),
    ]
)
"""Of a shard: a document's key, and a cluster id for each of its sentences, numbered from 0 in every document."""

OTHERS = "its clusters are of other documents than the token store's"
"""Why a shard of annotations counts as damaged that doesn't belong to the documents."""

_COUNTS = b"infocse_ray.counts"
"""Parquet metadata: what the shard adds to the stage's summary, such as tokens embedded, which its rows don't tell: a
resumed run counts it too."""


def cluster_table(documents: Documents) -> pa.Table:
    """Rows of `SCHEMA`: the documents of a row group of the token store, with their clusters."""
    offsets, clusters = documents.offsets.astype(np.int32), pa.array(documents.clusters, pa.int32())
    lists = pa.ListArray.from_arrays(pa.array(offsets), clusters)
    return pa.table([pa.array(documents.keys), lists], schema=SCHEMA)


def annotated(documents: pa.Table, clusters: pa.Table) -> pa.Table:
    """Those rows of a row group of the token store whose documents have a row of `SCHEMA` in `clusters`."""
    if len(clusters) == len(documents):
        return documents
    return documents.filter(pa.array(np.isin(documents["key"].to_numpy(), clusters["key"].to_numpy())))


def clustered(documents: Documents, table: pa.Table, written: Storage) -> Documents:
    """Documents with their clusters.

    Args:
        documents: annotated ones of a row group of the token store.
        table: rows of `SCHEMA`, of the same row group.
        written: the file that these are from.

    Raises:
        DamagedFile: they are of other documents; `written` is marked, so that its stage makes it again.
    """
    clusters, offsets = flat(table["cluster"])
    if not (np.array_equal(table["key"].to_numpy(), documents.keys) and np.array_equal(offsets, documents.offsets)):
        raise damaged(written, OTHERS)
    return documents._replace(clusters=clusters.to_numpy())


def all_clustered(parts: list[Documents], written: Storage) -> list[Documents]:
    """The row groups of a shard with their clusters; arguments and errors are those of `clustered`."""
    tables, _ = read_whole(written)
    if len(tables) != len(parts):
        raise damaged(written, OTHERS)
    return [clustered(documents, table, written) for documents, table in zip(parts, tables, strict=True)]


def write_whole(target: Storage, tables: list[pa.Table], counts: dict[str, Any]) -> None:
    """Write a shard, rows of `SCHEMA`, a row group each table, unless it is there.

    `read_whole` gives back `counts`, as JSON has them.
    """
    if not target.exists():
        whole = pa.concat_tables([SCHEMA.empty_table(), *[table.cast(SCHEMA) for table in tables]])
        whole = whole.replace_schema_metadata({_COUNTS: json.dumps(counts)})
        write_parquet(target, whole, [len(table) for table in tables])


def read_counts(written: Storage) -> dict[str, Any]:
    """The counts of what `write_whole` wrote; rows are neither read nor verified, which who reads them does."""
    with open_parquet(written) as file:
        return _counts_in(file)


def _counts_in(file: pq.ParquetFile) -> dict[str, Any]:
    return json.loads((file.schema_arrow.metadata or {}).get(_COUNTS, "{}"))


def read_whole(written: Storage) -> tuple[list[pa.Table], dict[str, Any]]:
    """The row groups of what `write_whole` wrote, and the counts."""
    with open_parquet(written) as file:
        return list(read_groups(file, range(file.num_row_groups))), _counts_in(file)


def counts_of(
    shard: int, parts: list[Documents], first: list[np.ndarray], longest: int | None, work: dict[str, int]
) -> dict[str, Any]:
    """What a shard of annotations adds to the stage's summary; as many bytes however large the shard is.

    Args:
        shard: its number.
        parts: its documents with their clusters.
        first: bool [sentences] of each, which are no copy of an earlier sentence of their document; pairs, and the
            clusters' sizes, are of these.
        longest: how many of the run's own tokens a sentence was cut to where copies were found; None: other tokens.
        work: what making the shard took.
    """
    counts: Counter[str] = Counter(work)
    sizes: Counter[int] = Counter()
    for documents, no_copy in zip(parts, first, strict=True):
        _count(documents, np.flatnonzero(no_copy), counts, sizes)
    return {**counts, "shard": shard, "longest": longest, "sizes": dict(sizes)}


def _count(documents: Documents, rows: np.ndarray, counts: Counter[str], sizes: Counter[int]) -> None:
    assert documents.clusters is not None
    cluster_lengths = cluster_sizes(documents.clusters, documents.offsets, rows)
    counts["documents"] += len(documents.keys)
    counts["sentences"] += int(documents.offsets[-1])
    counts["copies"] += int(documents.offsets[-1]) - len(rows)
    counts["clusters"] += len(cluster_lengths)
    pairs = count_pairs(documents.clusters, documents.offsets, rows)
    counts["pairs"] += int(pairs.sum())
    counts["paired"] += int((pairs > 0).sum())
    # A histogram by powers of two: 1, 2, 3-4, 5-8, ...
    sizes.update(Counter((2 ** np.ceil(np.log2(cluster_lengths)).astype(np.int64)).tolist()))


_EXAMPLES = "examples.json"


class Summary:
    """Adds up the counts of shards, in memory that does not grow with them."""

    def __init__(self, lanes: int) -> None:
        self._totals: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()
        self._pairs_by_lane = [0] * lanes
        self._longest: set[int | None] = set()

    @property
    def documents(self) -> int:
        """Documents counted so far."""
        return self._totals["documents"]

    def add(self, counts: dict[str, Any]) -> None:
        """Add what `counts_of` returned, or its JSON read back."""
        rest = dict(counts)
        self._sizes.update({int(size): n for size, n in rest.pop("sizes").items()})
        self._longest.add(rest.pop("longest"))
        shard = rest.pop("shard")
        self._pairs_by_lane[shard % len(self._pairs_by_lane)] += rest.get("pairs", 0)
        self._totals.update(rest)

    def content(self) -> dict[str, Any]:
        """The stage's summary: counts by name, and the histogram `cluster_sizes`."""
        # Shards of earlier versions count sentences in clusters with others, too.
        totals = {name: count for name, count in self._totals.items() if name not in ("together", "paired")}
        return totals | {"cluster_sizes": {str(s): self._sizes[s] for s in sorted(self._sizes)}}

    def write_examples(self, folder: Storage) -> None:
        """Write what `read_examples` reads."""
        [longest] = self._longest if len(self._longest) == 1 else [None]
        totals = {"documents": self.documents, "paired": self._totals["paired"], "longest": longest}
        (folder / _EXAMPLES).write_json(checked({**totals, "by_lane": {"pairs": self._pairs_by_lane}}))


class AnnotatedPairs(NamedTuple):
    """Pairs that annotating counted: nobody has to read the annotations for it."""

    documents: int
    """Annotated ones."""
    paired: int
    """Those of them that have a cluster of two different texts or more."""
    by_lane: list[int]
    """[lanes]"""


def read_examples(folder: Storage, longest: int) -> AnnotatedPairs | None:
    """What an annotate stage counted; None if it told texts apart in another way.

    Args:
        folder: of the stage.
        longest: how many of the run's own tokens a text is cut to.

    Raises:
        DamagedFile: the file isn't as it was written.
    """
    try:
        found = read_checked(folder / _EXAMPLES)
    except FileNotFoundError:
        return None
    if found["longest"] != longest:
        return None
    return AnnotatedPairs(found["documents"], found["paired"], found["by_lane"]["pairs"])
