"""Which shards an iteration annotates: all of them, or a share that is enough for what its training reads.

1. The pairs that training reads at most, and those that sentences give as a rule, with a margin, say how many shards.
2. They are drawn by a hash of the seed, the iteration and the shard, whole and as many in each lane, so that a lane is
   as long as the others and every iteration reads other documents.
3. One shard of each lane, the first by a hash of the seed alone, is in every draw: iterations have documents in common.
All of it follows from the store's summary, the settings and the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokens import sample_hashes
from infocse_ray.settings import Annotate, Settings

MARGIN = 1.5
"""Times the pairs that training reads, are annotated: what a shard gives is an estimate."""

FEWEST = 4
"""Shards of a lane that are annotated at least: a batch takes from different documents."""

_SUMMARY = "shards_a_lane"


class Share(NamedTuple):
    """A draw of shards."""

    a_lane: int
    """How many of each lane's."""
    seed: int
    iteration: int

    @classmethod
    def of_stage(cls, summary: dict[str, Any] | None, seed: int, iteration: int) -> Share | None:
        """What a finished annotate stage annotated; None: all shards."""
        a_lane = (summary or {}).get(_SUMMARY)
        return None if a_lane is None else cls(a_lane, seed, iteration)

    def summary(self) -> dict[str, int]:
        """What the stage's summary says of it."""
        return {_SUMMARY: self.a_lane}

    def shards(self, store: TokenStore) -> list[int]:
        """The shards that are drawn, ascending; lane l has l, l + lanes, and so on."""
        lanes = store.summary["lanes"]
        shard = np.arange(store.shards)
        hashes = sample_hashes(self.seed, np.full(len(shard), self.iteration), shard).reshape(-1, lanes)
        always = sample_hashes(self.seed, shard).reshape(-1, lanes).argmin(axis=0)
        hashes[always, np.arange(lanes)] = np.iinfo(np.int64).min
        drawn = np.argsort(hashes, axis=0, kind="stable")[: self.a_lane]
        return np.sort(shard.reshape(-1, lanes)[drawn, np.arange(lanes)], axis=None).tolist()

    def of_all(self, store: TokenStore) -> float:
        """The part of the store that is drawn."""
        return self.a_lane * store.summary["lanes"] / store.shards


def share_of_iteration(settings: Settings, store: TokenStore, splits: Sequence[str], iteration: int) -> Share | None:
    """What an iteration annotates, by `annotate.share`; None: everything.

    Args:
        settings: of the run.
        store: whose shards are annotated.
        splits: of the training documents.
        iteration: from 1.
    """
    there = store.shards // store.summary["lanes"]
    share = settings.annotate.share
    if share == "auto":
        documents = TrainingDocuments(store, list(splits))
        pairs = pairs_in(settings.annotate, documents.count, documents.sentences)
        share = MARGIN * pairs_read(settings, store) / max(pairs, 1.0)
    # What is a whole number but for rounding is that number.
    a_lane = max(FEWEST, math.ceil(min(share, 1.0) * there - 1e-9))
    return None if a_lane >= there else Share(a_lane, settings.seed, iteration)


def pairs_read(settings: Settings, store: TokenStore) -> float:
    """The pairs that the training of an iteration reads at most; a pair is two sentences of average length."""
    train = settings.train
    pairs = train.max_steps * train.batch_size
    if train.max_tokens is None:
        return pairs
    # The step that reaches the tokens is the last.
    return min(pairs, train.max_tokens / tokens_a_pair(settings, store) + train.batch_size)


def tokens_a_pair(settings: Settings, store: TokenStore) -> float:
    """Of two sentences of average length."""
    return 2 * sentence_length(store, settings.encoder.max_length)


def sentence_length(store: TokenStore, max_length: int) -> float:
    """Tokens of an average sentence, 1 at least, of which up to max_length are read."""
    mean = store.summary["tokens"] / max(store.summary["sentences"], 1)
    return min(max(mean, 1.0), float(max_length))


def pairs_in(annotate: Annotate, documents: float, sentences: float) -> float:
    """The pairs that documents give, estimated to be few.

    A sentence's edge to its nearest joins it to another, so that clusters have two sentences at least, half a pair
    each, and rarely so few: one pair a sentence, unless documents have but two, is counted, where 2.5 were measured.
    K-means is taken to spread a document's sentences over all centroids, which they never do less.

    Args:
        annotate: how sentences are clustered.
        documents: how many.
        sentences: of all of them.
    """
    mean = sentences / max(documents, 1.0)
    if annotate.clustering == "kmeans":
        return sentences * min((mean - 1) / (2 * annotate.kmeans_clusters), 0.5)
    return sentences * min((mean - 1) / 2, 1.0)


def in_all(draws: Iterable[Sequence[int] | None]) -> list[int] | None:
    """The shards that are in all of some draws, ascending; None: all shards, which None is a draw of."""
    found: set[int] | None = None
    for drawn in draws:
        if drawn is not None:
            found = set(drawn) if found is None else found & set(drawn)
    return None if found is None else sorted(found)
