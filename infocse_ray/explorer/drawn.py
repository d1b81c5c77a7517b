"""Which documents are looked at: those that the user names, and some that the run's seed draws.

The store is ordered by the hash of documents' ids, so that documents which follow each other in it are as good as drawn
at random, and are embedded together: the seed draws the shard that they begin at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.corpus.schema import shard_of, stable_hash
from infocse_ray.corpus.store import documents_of
from infocse_ray.corpus.tokens import Tokens, sample_hashes

MOST_SENTENCES = 300
"""Of a document that are shown: its first ones."""


class Drawn(NamedTuple):
    """A document to look at."""

    doc_id: str
    key: int
    """The hash of its id."""
    shard: int
    sentences: Tokens
    """Its first `MOST_SENTENCES`, as the run's tokenizer has them."""
    sentences_in_all: int
    named: bool
    """Whether the user named it."""


def draw(documents: TrainingDocuments, count: int, seed: int) -> list[Drawn]:
    """Documents from a shard on that the seed draws, as many as asked for or as there are."""
    shards = documents.shards
    first = int(sample_hashes(seed, np.zeros(1, np.int64))[0] % len(shards))
    found: list[Drawn] = []
    for step in range(len(shards)):
        for one in _documents(documents, shards[(first + step) % len(shards)]):
            if len(found) >= count:
                return found
            found.append(one)
    return found


def find(documents: TrainingDocuments, doc_ids: Sequence[str]) -> tuple[list[Drawn], list[str]]:
    """The documents of these ids, in that order, and the ids that none of the documents has."""
    found: list[Drawn] = []
    missing: list[str] = []
    shards = set(documents.shards)
    for doc_id in dict.fromkeys(doc_ids):
        shard = shard_of(stable_hash(doc_id), documents.store.shards)
        here = _documents(documents, shard) if shard in shards else ()
        one = next((one for one in here if one.doc_id == doc_id), None)
        if one is None:
            missing.append(doc_id)
        else:
            found.append(one._replace(named=True))
    return found, missing


def _documents(documents: TrainingDocuments, shard: int) -> Iterator[Drawn]:
    for table in documents.tables(shard):
        here = documents_of(table)
        for row, (doc_id, key) in enumerate(zip(here.doc_ids.to_pylist(), here.keys.tolist(), strict=True)):
            start, end = here.offsets[row : row + 2].tolist()
            sentences = here.sentences.take(np.arange(start, min(end, start + MOST_SENTENCES)))
            yield Drawn(doc_id, key, shard, sentences, end - start, False)
