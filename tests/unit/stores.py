"""Token stores and annotations written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from infocse_ray.annotate.annotations import SCHEMA
from infocse_ray.corpus.schema import SPLITS, shard_of, stable_hash, store_schema
from infocse_ray.corpus.store import TokenStore, shard_name
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.idc import Idc
from infocse_ray.methods.method import Method
from infocse_ray.sampling.examples import Examples
from infocse_ray.sampling.shards import Shards
from infocse_ray.settings import Train
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import write_parquet

SPEC = EncoderSpec(
    sentence_tokens=14,
    query_tokens=14,
    longest=62,
    dimension=32,
    hidden=32,
    embedding=32,
    word=32,
    kind="bert",
    can_cut=True,
    can_shuffle=True,
    can_drop=True,
    can_decode=True,
    around=(1, 1),
    vocabulary=200,
    special=(0, 1, 2, 3, 4),
    mask=4,
    characters=np.full(200, 5, dtype=np.int16),
    behind_a_space=None,
)
"""Of an encoder like the tiny one."""


class Written(NamedTuple):
    """A document to write."""

    doc_id: str
    sentences: list[list[int]]
    clusters: Sequence[int] = ()
    counterparts: Sequence[list[int]] = ()
    split: str = "train"


def idc(temperature: float = 1.0, cosine: bool = False, sentence_tokens: int = 14) -> Idc:
    """InfoCSE's method."""
    train = Train(temperature=temperature, similarity="cosine" if cosine else "dot")
    return Idc(train, SPEC._replace(sentence_tokens=sentence_tokens))


def numbered(labels: np.ndarray) -> list[int]:
    """Cluster ids from 0 without gaps, as annotations have them."""
    return np.unique(labels, return_inverse=True)[1].tolist()


def counted(source: Shards, method: Method) -> Examples:
    """The examples that a method makes of documents, counted one document at a time."""
    by_lane = [0] * source.lanes
    for shard in source.numbers:
        with source.open(shard) as opened:
            for group in opened.groups():
                by_lane[shard % source.lanes] += int(method.count(opened.read(group)).examples.sum())
    return Examples(source, "f", {"examples_by_lane": by_lane})


def write_annotations(
    folder: Storage,
    documents: list[Written],
    lanes: int,
    shards: int,
    group: int = 3,
    splits: Sequence[str] = ("train",),
) -> Shards:
    """Documents dealt to shards in turn, in row groups of `group`; those of `splits` annotated, if any is."""
    for shard in range(shards):
        mine = documents[shard::shards]
        cut = [mine[i : i + group] for i in range(0, len(mine), group)]
        table = pa.table(
            {
                "doc_id": pa.array([d.doc_id for d in mine], pa.string()),
                "key": pa.array([stable_hash(d.doc_id) for d in mine], pa.int64()),
                "split": pa.array([d.split for d in mine], pa.string()),
                "sentences": pa.array([d.sentences for d in mine], pa.list_(pa.list_(pa.uint16()))),
                "counterparts": pa.array([list(d.counterparts) for d in mine], pa.list_(pa.list_(pa.uint16()))),
                "counterpart_keys": pa.array(
                    [[stable_hash(repr(c)) for c in d.counterparts] for d in mine], pa.list_(pa.int64())
                ),
            }
        )
        write_parquet(folder / "documents" / shard_name(shard), table, [len(part) for part in cut])
        used = [part for part in cut if part[0].split in splits]
        clusters = pa.table(
            {
                "key": pa.array([stable_hash(d.doc_id) for part in used for d in part], pa.int64()),
                "cluster": pa.array([list(d.clusters) for part in used for d in part], pa.list_(pa.int32())),
            },
            schema=SCHEMA,
        )
        write_parquet(folder / "annotations" / shard_name(shard), clusters, [len(part) for part in used])
    annotated = any(d.clusters for d in documents)
    return Shards(
        folder / "documents", "f", shards, lanes, list(splits), True, folder / "annotations" if annotated else None
    )


def write_store(
    folder: Storage, documents: list[Written], shards: int, group: int = 3, by_key: bool = False
) -> TokenStore:
    """Documents dealt to shards in turn, or as a corpus is by their keys, each split in row groups of its own."""
    for shard in range(shards):
        dealt = documents[shard::shards]
        if by_key:
            dealt = [d for d in documents if shard_of(stable_hash(d.doc_id), shards) == shard]
        rows: list[dict[str, Any]] = []
        groups: list[int] = []
        for split in SPLITS:
            mine = [d for d in dealt if d.split == split]
            groups += [len(mine[i : i + group]) for i in range(0, len(mine), group)]
            rows += [
                {
                    "doc_id": d.doc_id,
                    "key": stable_hash(d.doc_id),
                    "split": d.split,
                    "sentences": d.sentences,
                    "counterparts": list(d.counterparts),
                    "counterpart_keys": [stable_hash(repr(c)) for c in d.counterparts],
                }
                for d in mine
            ]
        table = pa.Table.from_pylist(rows, schema=store_schema(pa.uint16()))
        write_parquet(folder / "documents" / shard_name(shard), table, groups)
    summary = {
        "shards": shards,
        "lanes": shards,
        "sentences": sum(len(d.sentences) for d in documents),
        "tokens": sum(len(sentence) for d in documents for sentence in d.sentences),
        "documents": {s: sum(d.split == s for d in documents) for s in SPLITS},
        "labelled": {s: sum(len(d.counterparts) for d in documents if d.split == s) for s in SPLITS},
    }
    return TokenStore(folder, "f", summary)


def opened(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> set[int]:
    """The shards of token stores that a call reads."""
    seen: set[int] = set()
    read = TokenStore.read

    def noted(store: TokenStore, shard: int, *asked: Any) -> Any:
        seen.add(shard)
        return read(store, shard, *asked)

    with monkeypatch.context() as patched:
        patched.setattr(TokenStore, "read", noted)
        call()
    return seen
