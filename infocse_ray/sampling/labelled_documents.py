"""The documents of drawn labels, copied out of the corpus: who trains on labels again and again reads these alone.

Every lane of the corpus is a shard of the copy, written by one Ray Data task: documents keep their lane.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from infocse_ray.corpus.schema import ROW_GROUP_DOCUMENTS
from infocse_ray.corpus.store import TokenStore, counterparts_of, shard_name
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.runtime.cluster import quiet_data
from infocse_ray.runtime.progress import Bar
from infocse_ray.sampling.shards import Shards
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet

_SPLITS = ["train"]


def copy_labelled(store: TokenStore, drawn: LabelSample, folder: Storage, title: str) -> dict[str, Any]:
    """Copy the documents of the train split that have a drawn label.

    Args:
        store: the corpus.
        drawn: which labelled examples.
        folder: gets a Parquet file a lane, in the token store's format.
        title: of the progress bar.

    Returns:
        `examples`, `documents` and `examples_by_lane`, as `count_examples` does.
    """
    quiet_data()
    lanes = store.summary["lanes"]
    at_once = min(lanes, max(16, 4 * int(ray.cluster_resources().get("CPU", 1))))
    tasks = ray.data.from_items([{"lane": lane} for lane in range(lanes)], override_num_blocks=at_once)
    by_lane, documents = [0] * lanes, 0
    bar = Bar(title, lanes, "lanes")
    copy = functools.partial(_copy, store=store, drawn=drawn, folder=folder)
    counts = tasks.map_batches(copy, batch_size=1, batch_format="pyarrow")
    for done, row in enumerate(counts.iter_rows(), 1):
        lane, examples, some = json.loads(row["counts"])
        by_lane[lane] = examples
        documents += some
        bar.to(done)
    bar.close()
    return {"examples": sum(by_lane), "documents": documents, "examples_by_lane": by_lane}


def labelled_documents(store: TokenStore, folder: Storage, fingerprint: str) -> Shards:
    """What `copy_labelled` wrote into `folder`, in a stage of this fingerprint."""
    lanes = store.summary["lanes"]
    return Shards(folder, fingerprint, lanes, lanes, list(_SPLITS), labels=True)


def _copy(lanes: pa.Table, store: TokenStore, drawn: LabelSample, folder: Storage) -> pa.Table:
    rows = []
    for lane in lanes["lane"].to_pylist():
        kept, examples = [], 0
        for shard in range(lane, store.shards, store.summary["lanes"]):
            for table in store.read(shard, _SPLITS):
                owner, keys, _ = counterparts_of(table)
                labelled = np.bincount(owner[drawn.has(table["key"].to_numpy()[owner], keys)], minlength=len(table))
                kept.append(table.filter(pa.array(labelled > 0)))
                examples += int(labelled.sum())
        with open_parquet(store.shard(lane)) as file:  # a lane may have no document to train on
            together = pa.concat_tables([file.schema_arrow.empty_table(), *kept])
        begins = range(0, len(together), ROW_GROUP_DOCUMENTS)
        groups = [min(ROW_GROUP_DOCUMENTS, len(together) - begin) for begin in begins]
        write_parquet(folder / shard_name(lane), together, groups)
        rows.append(json.dumps([lane, examples, len(together)]))
    return pa.table({"counts": pa.array(rows, pa.string())})
