"""Token stores and annotations written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from infocse_ray.annotate.annotations import Annotations
from infocse_ray.corpus.schema import SPLITS, stable_hash, store_schema
from infocse_ray.corpus.store import TokenStore, shard_name
from infocse_ray.storage import Storage


class Written(NamedTuple):
    """A document to write."""

    doc_id: str
    sentences: list[list[int]]
    clusters: Sequence[int] = ()
    counterpart: list[int] | None = None
    split: str = "train"


def write_annotations(
    folder: Storage, documents: list[Written], lanes: int, shards: int, group: int = 3
) -> Annotations:
    """Documents dealt to shards in turn, in row groups of `group`."""
    pairs = [0] * lanes
    for shard in range(shards):
        mine = documents[shard::shards]
        for document in mine:
            pairs[shard % lanes] += sum(c * (c - 1) // 2 for c in np.bincount(document.clusters).tolist())
        table = pa.table(
            {
                "doc_id": pa.array([d.doc_id for d in mine], pa.string()),
                "key": pa.array([stable_hash(d.doc_id) for d in mine], pa.int64()),
                "split": pa.array([d.split for d in mine], pa.string()),
                "sentences": pa.array([d.sentences for d in mine], pa.list_(pa.list_(pa.uint16()))),
                "cluster": pa.array([list(d.clusters) for d in mine], pa.list_(pa.int32())),
            }
        )
        (folder / shard_name(shard)).write_parquet(
            table, [len(table[i : i + group]) for i in range(0, len(mine), group)]
        )
    return Annotations(folder, "f", {"pairs_by_lane": pairs})


def write_store(folder: Storage, documents: list[Written], shards: int, group: int = 3) -> TokenStore:
    """Documents dealt to shards in turn, each split in row groups of its own."""
    for shard in range(shards):
        rows: list[dict[str, Any]] = []
        groups: list[int] = []
        for split in SPLITS:
            mine = [d for d in documents[shard::shards] if d.split == split]
            groups += [len(mine[i : i + group]) for i in range(0, len(mine), group)]
            rows += [
                {
                    "doc_id": d.doc_id,
                    "key": stable_hash(d.doc_id),
                    "split": d.split,
                    "sentences": d.sentences,
                    "counterpart": d.counterpart,
                    "counterpart_key": None if d.counterpart is None else stable_hash(repr(d.counterpart)),
                }
                for d in mine
            ]
        table = pa.Table.from_pylist(rows, schema=store_schema(pa.uint16()))
        (folder / "documents" / shard_name(shard)).write_parquet(table, groups)
    summary = {
        "shards": shards,
        "lanes": shards,
        "sentences": sum(len(d.sentences) for d in documents),
        "documents": {s: sum(d.split == s for d in documents) for s in SPLITS},
        "labelled": {s: sum(d.split == s and d.counterpart is not None for d in documents) for s in SPLITS},
    }
    return TokenStore(folder, "f", summary)
