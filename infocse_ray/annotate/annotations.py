"""The annotate stage: embed a shard of the token store and cluster inside each document, in one actor.

1. Ray Data deals shards to a pool of actors, each with the encoder loaded once.
2. An actor embeds a bounded number of sentences, clusters them (IDC), forgets the vectors, goes on.
3. It writes the shard with a `cluster` column; only counts travel back.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import ray
import torch

from infocse_ray.annotate.idc import cluster, cluster_sizes, count_pairs
from infocse_ray.cluster import Placement, assigned_cores, quiet_data, worker_device
from infocse_ray.corpus.store import Documents, TokenStore, documents_of, shard_name
from infocse_ray.corpus.tokens import bounded_ranges, concatenate, flat, offsets_of
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE, Precision, embed, for_inference
from infocse_ray.progress import Bar
from infocse_ray.stage import Stage
from infocse_ray.storage import Storage

COLUMNS = ["doc_id", "key", "split", "sentences", "cluster"]


_SENTENCES_TOGETHER = 2_048
_WORK = b"infocse_ray.tokens"
"""Parquet metadata of the first shard of a group: tokens embedded, so that a resumed run counts them too."""


class Annotations(NamedTuple):
    """Finished annotations: the training documents of a token store, with clusters."""

    folder: Storage
    fingerprint: str
    summary: dict[str, Any]

    @classmethod
    def of(cls, stage: Stage) -> Annotations:
        """The output of a finished `annotate` stage."""
        assert stage.summary is not None
        return cls(stage.folder, stage.fingerprint, stage.summary)

    @property
    def pairs_by_lane(self) -> np.ndarray:
        """int64 [lanes]: unordered in-cluster pairs (Eq. 4) in each lane."""
        return np.asarray(self.summary["pairs_by_lane"], dtype=np.int64)

    def shard(self, number: int) -> Storage:
        """The Parquet file of one shard."""
        return self.folder / shard_name(number)


class Annotator:
    """Annotates documents with one encoder on one device."""

    def __init__(self, encoder: EncoderFolder, k: int, precision: Precision, device: torch.device) -> None:
        self.encoder = for_inference(encoder.load(), precision, device)
        self.k = k
        self.tokens = self.padded = 0

    def clusters(self, documents: Documents) -> np.ndarray:
        """IDC of each document (Eq. 2-4).

        Returns:
            int32 [sentences], cluster ids numbered from 0 inside each document.
        """
        out = np.empty(len(documents.sentences), dtype=np.int32)
        for first, last in bounded_ranges(documents.offsets, SENTENCES_AT_ONCE):
            begin, end = documents.offsets[first], documents.offsets[last]
            part = embed(self.encoder, documents.sentences.take(np.arange(begin, end)))
            out[begin:end] = cluster(part.vectors, documents.offsets[first : last + 1] - begin, self.k)
            self.tokens += part.tokens
            self.padded += part.padded
        return out


class _ShardAnnotator:
    """The Ray Data actor."""

    def __init__(
        self,
        store: TokenStore,
        splits: list[str],
        folder: Storage,
        encoder: EncoderFolder,
        k: int,
        precision: Precision,
    ) -> None:
        torch.set_num_threads(assigned_cores())
        device = worker_device()
        self.store, self.splits, self.folder = store, splits, folder
        self.annotator = Annotator(encoder, k, precision, device)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[str]]:
        return {"counts": [json.dumps(counts) for group in batch["item"] for counts in self._annotate(group)]}

    def _annotate(self, shards: np.ndarray) -> list[dict[str, Any]]:
        """Annotate shards together, so that sentences of one length are many even where shards are small."""
        targets = [self.folder / shard_name(int(shard)) for shard in shards]
        if all(target.exists() for target in targets):  # written before a crash, each whole
            return [_recount(int(shard), target) for shard, target in zip(shards, targets, strict=True)]
        # If only some are, all are computed again: what is embedded together must not depend on a crash.
        before = self.annotator.tokens, self.annotator.padded
        parts = [list(self.store.read(int(shard), self.splits, COLUMNS[:-1])) for shard in shards]
        tables = [table for part in parts for table in part]
        if tables:
            clusters = iter(self._clusters(tables))
            parts = [[_with_clusters(table, next(clusters)) for table in part] for part in parts]
        work = {"tokens": self.annotator.tokens - before[0], "padded_tokens": self.annotator.padded - before[1]}
        counts = []
        for shard, target, part in zip(shards, targets, parts, strict=True):
            here = {} if counts else work
            if not target.exists():
                schema = annotation_schema(self.store)
                whole = pa.concat_tables([schema.empty_table(), *[table.cast(schema) for table in part]])
                whole = whole.replace_schema_metadata({_WORK: json.dumps(here)})
                target.write_parquet(whole, [len(table) for table in part])
            counts.append(_counts(int(shard), part, here))
        return counts

    def _clusters(self, tables: list[pa.Table]) -> list[np.ndarray]:
        """The clusters of each table's sentences, int32 [sentences], embedded as one."""
        together = joined([documents_of(table) for table in tables])
        ends = np.cumsum([len(flat(table["sentences"])[0]) for table in tables])
        return np.split(self.annotator.clusters(together), ends[:-1])


def joined(parts: list[Documents]) -> Documents:
    """Documents of all parts, one after the other; ids and keys are the first part's and mean nothing."""
    offsets = offsets_of(np.concatenate([np.diff(part.offsets) for part in parts]))
    return parts[0]._replace(offsets=offsets, sentences=concatenate([part.sentences for part in parts]))


def annotation_schema(store: TokenStore) -> pa.Schema:
    """Schema of a shard of annotations: columns of the token store's, and `cluster`, one id a sentence."""
    with store.shard(0).parquet() as file:
        return pa.schema([file.schema_arrow.field(c) for c in COLUMNS[:-1]] + [("cluster", pa.list_(pa.int32()))])


def _counts(shard: int, tables: list[pa.Table], work: dict[str, int]) -> dict[str, Any]:
    counts: Counter[str] = Counter(work)
    sizes: Counter[int] = Counter()
    for table in tables:
        _count(documents_of(table), counts, sizes)
    return {"shard": shard, **counts, "sizes": dict(sizes)}


def _recount(shard: int, written: Storage) -> dict[str, Any]:
    """The counts of a shard that is there already."""
    with written.parquet() as file:
        work = json.loads((file.schema_arrow.metadata or {}).get(_WORK, "{}"))
        return _counts(shard, [file.read_row_group(group) for group in range(file.num_row_groups)], work)


def _with_clusters(table: pa.Table, clusters: np.ndarray) -> pa.Table:
    offsets = documents_of(table).offsets.astype(np.int32)
    return table.append_column("cluster", pa.ListArray.from_arrays(pa.array(offsets), pa.array(clusters)))


def shard_groups(store: TokenStore) -> list[list[int]]:
    """Shards that are annotated together: as many neighbours as make some 2,000 sentences, so that little is padding.

    A function of the store alone: annotations must not depend on the number of actors.
    """
    size = max(1, _SENTENCES_TOGETHER * store.shards // max(1, store.summary["sentences"]))
    return [list(range(first, min(first + size, store.shards))) for first in range(0, store.shards, size)]


def _count(documents: Documents, counts: Counter[str], sizes: Counter[int]) -> None:
    assert documents.clusters is not None
    found = cluster_sizes(documents.clusters, documents.offsets)
    counts["documents"] += len(documents.keys)
    counts["sentences"] += len(documents.sentences)
    counts["clusters"] += len(found)
    counts["pairs"] += int(count_pairs(documents.clusters, documents.offsets).sum())
    # A histogram by powers of two: 1, 2, 3-4, 5-8, ...
    sizes.update(Counter((2 ** np.ceil(np.log2(found)).astype(np.int64)).tolist()))


def annotate(
    stage: Stage,
    store: TokenStore,
    splits: list[str],
    encoder: EncoderFolder,
    k: int,
    precision: Precision,
    placement: Placement,
    title: str,
) -> dict[str, Any]:
    """Annotate the documents of `splits` into the stage's folder.

    Returns:
        The stage's summary: documents, sentences, clusters, pairs, `pairs_by_lane`, the histogram
        `cluster_sizes` (upper bound of each power-of-two bin -> clusters), tokens and padding.
    """
    quiet_data()
    lanes = store.summary["lanes"]
    by_lane = np.zeros(lanes, dtype=np.int64)
    totals: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    groups = shard_groups(store)
    shards = ray.data.from_items(groups, override_num_blocks=len(groups))
    done = shards.map_batches(
        _ShardAnnotator,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(placement.workers, len(groups))),
        num_cpus=placement.cores,
        num_gpus=1 if placement.use_gpu else 0,
        fn_constructor_kwargs={
            "store": store,
            "splits": splits,
            "folder": stage.folder,
            "encoder": encoder,
            "k": k,
            "precision": precision,
        },
    )
    bar = Bar(title, store.documents(splits), "documents")
    for row in done.iter_rows():
        counts = json.loads(row["counts"])
        by_lane[counts.pop("shard") % lanes] += counts.get("pairs", 0)
        sizes.update({int(size): n for size, n in counts.pop("sizes").items()})
        totals.update(counts)
        bar.to(totals["documents"])
    bar.close()
    return dict(totals) | {
        "pairs_by_lane": by_lane.tolist(),
        "cluster_sizes": {str(s): sizes[s] for s in sorted(sizes)},
    }
