"""Draw labelled examples, by one pass of Ray Data tasks over the shards.

1. Every task looks at some shards and returns the N smallest hashes of their labelled examples.
2. The driver keeps the N smallest of all: it holds what was asked for, whatever the corpus' size.
3. The largest of these says, of any labelled example, whether it was drawn (`LabelSample`).
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.methods.label_sample import label_hashes, leaking
from infocse_ray.runtime.progress import Bar
from infocse_ray.sampling.examples import over_shards
from infocse_ray.sampling.shards import Shards


def draw(source: Shards, size: int | None, seed: int, title: str, tokenizer: CorpusTokenizer) -> dict[str, Any]:
    """Draw labelled examples of the train split, and count leaks in all splits.

    Args:
        source: the documents of all splits, with labels.
        size: how many to draw; None: all.
        seed: another one draws others.
        title: of the progress bar.
        tokenizer: of the documents.

    Returns:
        `last`, of the `LabelSample` set; `labelled`, the labelled examples of each split; `leaks`, how many of these
        have a counterpart with the tokens of a sentence of their document.
    """
    smallest = np.empty(0, np.int64)
    labelled: Counter[str] = Counter()
    leaks: Counter[str] = Counter()
    bar = Bar(title, None, "labels")
    for row in over_shards(source, _look, size=size, seed=seed, tokenizer=tokenizer):
        smallest = _smallest(np.concatenate([smallest, np.asarray(row["hashes"], dtype=np.int64)]), size)
        labelled.update(json.loads(row["labelled"]))
        leaks.update(json.loads(row["leaks"]))
        bar.to(labelled.total())
    bar.close()
    return {
        "last": int(smallest[-1]) if size is not None and len(smallest) else None,
        "labelled": {split: labelled[split] for split in SPLITS},
        "leaks": {split: leaks[split] for split in SPLITS},
    }


def _smallest(hashes: np.ndarray, size: int | None) -> np.ndarray:
    """The `size` smallest, ascending; nothing where all are wanted. A task that Ray ran twice changes nothing."""
    return np.unique(hashes)[:size] if size is not None else hashes[:0]


def _look(packs: pa.Table, source: Shards, size: int | None, seed: int, tokenizer: CorpusTokenizer) -> pa.Table:
    smallest = np.empty(0, np.int64)
    labelled: Counter[str] = Counter()
    leaks: Counter[str] = Counter()
    for shard in [shard for pack in packs["shards"].to_pylist() for shard in pack]:
        with source.open(shard) as opened:
            for split in SPLITS:
                for documents in opened.read_all(opened.groups([split])):
                    assert documents.counterparts is not None
                    rows, keys, _ = documents.counterparts
                    labelled[split] += len(keys)
                    leaks[split] += int(leaking(documents, tokenizer).sum())
                    if split == "train" and size is not None:
                        hashes = label_hashes(seed, documents.keys[rows], keys)
                        smallest = _smallest(np.concatenate([smallest, hashes]), size)
    return pa.table(
        {
            "hashes": pa.array([smallest.tolist()], pa.list_(pa.int64())),
            "labelled": [json.dumps(labelled)],
            "leaks": [json.dumps(leaks)],
        }
    )
