"""How much an iteration annotates: everything, or as much as is enough for what its training reads.

1. The pairs that training reads at most, and those that sentences give as a rule, with a margin, say which part.
2. Lest training deals many pairs of few documents there are as many that it reads PAIRS_A_DOCUMENT of each, and
   DOCUMENTS_A_PAIR for each pair of a batch, of 128 at least; or as many as it has open in its lanes, which is enough
   whatever it reads.
3. Where each lane has several shards so many of them are drawn; where these few are more than the part, some of their
   documents. `auto` halves these, and halves them again: whoever trains a little more, or in larger batches, as the
   trials of a sweep may, then mostly finds the annotations that there are.
All of it follows from the store's summary, the settings and the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.annotate.open_documents import most_open
from infocse_ray.annotate.share import Share
from infocse_ray.corpus.store import TokenStore
from infocse_ray.settings import Annotate, Settings

MARGIN = 1.5
"""Times the pairs that training reads, are annotated: what sentences give is an estimate."""

PAIRS_A_DOCUMENT = 8
"""That training reads of each document, on average, at most: 7 of each of 2,000 articles came to what 1 or 2 of each of
10,000 did (docs/results_length.md, "Five times the documents")."""

DOCUMENTS_A_PAIR = 32
"""At least: a long document has many pairs, and among few documents it is in every batch, or twice in one."""

FEWEST_DOCUMENTS = 128 * DOCUMENTS_A_PAIR
"""At least: batches of fewer than 128 pairs annotate alike, and no small corpus in part."""

FEWEST = 4
"""Shards of a lane that are annotated at least, where it has as many: a batch takes from different documents."""


def share_of_iteration(settings: Settings, store: TokenStore, splits: Sequence[str], iteration: int) -> Share | None:
    """What an iteration annotates, by `annotate.share`; None: everything.

    Args:
        settings: of the run.
        store: whose shards are annotated.
        splits: of the training documents.
        iteration: from 1.
    """
    there, lanes = store.shards // store.summary["lanes"], store.summary["lanes"]
    training = TrainingDocuments(store, list(splits))
    share = asked = settings.annotate.share
    read, batch = pairs_read(settings, store), settings.train.batch_size
    different = max(FEWEST_DOCUMENTS, DOCUMENTS_A_PAIR * batch)
    if share == "auto":
        share = MARGIN * read / max(pairs_in(settings.annotate, training.count, training.sentences), 1.0)
    fewest = min(lanes * most_open(math.ceil(batch / lanes)), max(read / PAIRS_A_DOCUMENT, different))
    share = min(1.0, max(share, fewest / max(training.count, 1)))
    # What is a whole number but for rounding is that number.
    a_lane = min(there, max(FEWEST, math.ceil(share * there - 1e-9)))
    documents = min(1.0, share * there / a_lane) if a_lane <= FEWEST else 1.0
    if asked == "auto":
        documents = 2.0 ** math.ceil(math.log2(documents))
    return None if a_lane == there and documents == 1.0 else Share(a_lane, settings.seed, iteration, documents)


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
