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
from infocse_ray.corpus.store import Documents, TokenStore, documents_of, row_groups, shard_name
from infocse_ray.corpus.tokens import bounded_ranges
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE, Precision, embed, for_inference
from infocse_ray.progress import Bar
from infocse_ray.stage import Stage
from infocse_ray.storage import Storage

COLUMNS = ["doc_id", "key", "split", "sentences", "cluster"]


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
        return {"counts": [json.dumps(self._annotate(int(shard))) for shard in batch["item"]]}

    def _annotate(self, shard: int) -> dict[str, Any]:
        target = self.folder / shard_name(shard)
        counts: Counter[str] = Counter()
        sizes: Counter[int] = Counter()
        if target.exists():  # written before a crash, whole
            with target.parquet() as file:
                for group in range(file.num_row_groups):
                    _count(documents_of(file.read_row_group(group)), counts, sizes)
        else:
            tables = []
            before = self.annotator.tokens, self.annotator.padded
            with self.store.shard(shard).parquet() as file:
                for group in row_groups(file, self.splits):
                    table = file.read_row_group(group, columns=COLUMNS[:-1])
                    documents = documents_of(table)
                    clusters = self.annotator.clusters(documents)
                    column = pa.ListArray.from_arrays(pa.array(documents.offsets.astype(np.int32)), pa.array(clusters))
                    tables.append(table.append_column("cluster", column))
                    _count(documents._replace(clusters=clusters), counts, sizes)
                empty = pa.schema(
                    [file.schema_arrow.field(c) for c in COLUMNS[:-1]] + [("cluster", pa.list_(pa.int32()))]
                )
            whole = pa.concat_tables([empty.empty_table(), *[t.cast(empty) for t in tables]])
            target.write_parquet(whole, [len(t) for t in tables])
            counts["tokens"] = self.annotator.tokens - before[0]
            counts["padded_tokens"] = self.annotator.padded - before[1]
        return {"shard": shard, **counts, "sizes": dict(sizes)}


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
    shards = ray.data.from_items(list(range(store.shards)), override_num_blocks=store.shards)
    done = shards.map_batches(
        _ShardAnnotator,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=placement.workers),
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
