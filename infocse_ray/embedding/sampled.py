"""Some documents sentence by sentence, kept beside the vectors: a search learns from them what words should count.

The vectors' own files have a document's text in one piece, which can't be cut into the sentences that it came in again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from infocse_ray.corpus.schema import stable_hash
from infocse_ray.embedding.texts import read_texts
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet

SAMPLED = 500
"""Documents."""
_SENTENCES = 32
"""Of a document, its first ones."""
_SHARDS = 8
"""That are looked through at most: a corpus of single sentences has no such documents."""
_FILE = "sampled.parquet"
_LANGUAGE = b"infocse_ray.language"


class Sampled(NamedTuple):
    """What there is of it."""

    documents: list[list[str]]
    """The sentences of each."""
    language: str
    """Theirs, ISO 639-1."""


def write_sampled(folder: Storage, texts: Storage, shards: int, language: str) -> None:
    """Write up to `SAMPLED` documents of two sentences or more, or how they begin.

    Shards have their documents by hash of the id, so those of the first shards are as good as any others; within
    a shard the first by that hash are taken.

    Args:
        folder: of the vectors.
        texts: of all shards, as `write_texts` leaves them.
        shards: how many there are.
        language: ISO 639-1, of the texts.
    """
    parts, missing = [], SAMPLED
    for shard in range(min(shards, _SHARDS)):
        there = read_texts(texts, shard).select(["doc_id", "sentences"])
        lengths = there["sentences"].combine_chunks().value_lengths()
        there = there.filter(pa.array(lengths.to_numpy(zero_copy_only=False) > 1))
        order = np.argsort([stable_hash(doc_id) for doc_id in there["doc_id"].to_pylist()], kind="stable")
        some = there.take(pa.array(order[:missing], pa.int64()))
        cut = [sentences[:_SENTENCES] for sentences in some["sentences"].to_pylist()]
        parts.append(pa.table({"doc_id": some["doc_id"], "sentences": pa.array(cut, pa.list_(pa.string()))}))
        missing -= len(some)
        if not missing:
            break
    table = pa.concat_tables(parts).replace_schema_metadata({_LANGUAGE: language})
    write_parquet(folder / _FILE, table, [len(table)])


def read_sampled(folder: Storage) -> Sampled | None:
    """What is there; None where an earlier version wrote none.

    Args:
        folder: of the vectors.
    """
    file = folder / _FILE
    if not file.exists():
        return None
    with open_parquet(file) as opened:
        table = opened.read()
    return Sampled(table["sentences"].to_pylist(), (table.schema.metadata or {})[_LANGUAGE].decode())
