"""Checks that a corpus suits its run, before anything is trained."""

from __future__ import annotations

from infocse_ray.annotate.enough import tokens_a_pair
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.store import TokenStore
from infocse_ray.retrieval.intervals import wilson
from infocse_ray.retrieval.validation import On, candidate_bound
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Corpus, Settings

_FEW_DOCUMENTS = 100
_FEW_TO_TRAIN_ON = 50
_LONG_BEFORE = 1.5
"""Pairs are of sentences that aren't of average length."""


def validation_of(settings: Settings, store: TokenStore) -> On:
    """What validation documents must find.

    Raises:
        ValueError: counterparts are asked for and no validation document has one.
    """
    asked = settings.validate.on
    labelled = store.summary["labelled"]["valid"]
    if asked == "counterpart" and not labelled:
        raise ValueError(
            "validate.on = counterpart: no validation document has a counterpart; name the column with "
            "corpus.counterpart, raise corpus.valid_fraction, or set validate.on to sentence"
        )
    return asked if asked != "auto" else "counterpart" if labelled else "sentence"


def warn_of_no_counterparts(corpus: Corpus, store: TokenStore) -> None:
    """Say so where the column of counterparts is named, and no document has one: something else is asked for then."""
    if corpus.counterpart is not None and not sum(store.summary["labelled"].values()):
        say(
            f"warning: corpus.counterpart = {corpus.counterpart!r}: no document has a text there, or a list of texts; "
            "without counterparts documents look for sentences that were taken out of them"
        )


def training_splits(settings: Settings, on: On) -> list[str]:
    """The splits whose sentences are trained on; documents that validate without labels must stay unseen."""
    if settings.corpus.unlabelled == "train":
        return ["train"]
    return [split for split in SPLITS if on == "counterpart" or split != "valid"]


def check_sizes(settings: Settings, store: TokenStore, splits: list[str], on: On, workers: int, trains: bool) -> None:
    """Refuse, before any GPU time is spent, what the corpus is too small for; warn of a noisy validation.

    Args:
        settings: of the run.
        store: the corpus.
        splits: whose documents are trained on.
        on: what validation documents must find.
        workers: in training.
        trains: whether anything is trained.

    Raises:
        ValueError: too few training documents for negatives, or fewer than examples in a batch, fewer lanes than
            workers, no validation.
    """
    training = store.documents(splits)
    if trains and training < 2:
        raise ValueError(
            f"corpus.source: {training} documents to train on, and the negatives of an example are other documents'; "
            "give more, hundreds at least, or leave more to training (corpus.unlabelled, corpus.valid_fraction)"
        )
    if trains and settings.train.batch_size > training:
        raise ValueError(
            f"train.batch_size = {settings.train.batch_size}: the corpus has {training} training documents and a batch "
            f"takes one example from each; set it to {training} or less"
        )
    if trains and training < _FEW_TO_TRAIN_ON:
        say(
            f"warning: only {training} documents to train on: so few teach an encoder nothing that lasts; give hundreds"
        )
    _check_k(settings, store, trains)
    first = settings.annotate.first_encoder
    if trains and first is not None and settings.train.method != "idc":
        say(
            f"warning: annotate.first_encoder = {first!r}: train.method = {settings.train.method} annotates nothing "
            "and doesn't read it; leave it out"
        )
    rises, steps = settings.train.warmup_steps, settings.train.max_steps
    if trains and rises >= steps:
        say(
            f"warning: train.warmup_steps = {rises}: a training has {steps:,} steps at most (train.max_steps), and its "
            "learning rate would rise to its end; lower it"
        )
    _check_tokens(settings, store, trains)
    if workers > store.summary["lanes"]:
        raise ValueError(
            f"train.num_workers = {workers}: corpus.lanes (independent streams of training pairs) = "
            f"{store.summary['lanes']} is the most; raise corpus.lanes"
        )
    if bound := candidate_bound(store, on, settings.validate.max_candidates):
        there = sum(store.summary["labelled"].values())
        say(
            f"validation ranks among about {bound:,} of {there:,} counterparts, drawn by hash (validate.max_candidates)"
        )
    held_out = store.summary["labelled" if on == "counterpart" else "documents"]["valid"]
    if held_out < 2:
        raise ValueError(
            f"corpus.valid_fraction = {settings.corpus.valid_fraction}: {held_out} documents or counterparts to "
            "validate on; raise it or mark more documents valid in the split column"
        )
    if held_out < _FEW_DOCUMENTS:
        low, high = wilson(0.5, held_out)
        asking = "validation questions" if on == "counterpart" else "validation documents"
        say(f"warning: only {held_out} {asking}: recall is known to about ± {(high - low) / 2:.2f}")
    cut = settings.validate.metric.partition("@")[2]  # pyright: ignore[reportFunctionMemberAccess]
    if cut and held_out <= int(cut):
        say(
            f"warning: {settings.validate.metric} of {held_out} is near 1 whatever the encoder, and shows nothing: "
            "give more documents, raise corpus.valid_fraction, or set validate.metric to mrr"
        )


def _check_tokens(settings: Settings, store: TokenStore, trains: bool) -> None:
    """Warn of tokens that training won't reach, for its steps end it long before."""
    train = settings.train
    if not trains or train.method != "idc" or train.max_tokens is None:
        return
    tokens = train.max_steps * train.batch_size * tokens_a_pair(settings, store)
    if tokens * _LONG_BEFORE < train.max_tokens:
        say(
            f"warning: train.max_tokens = {train.max_tokens:,}: train.max_steps = {train.max_steps:,} ends a training "
            f"after some {tokens:,.0f} tokens; raise it, too, or leave train.max_tokens out"
        )


def _check_k(settings: Settings, store: TokenStore, trains: bool) -> None:
    """Warn of a K with which no document is divided."""
    k, longest = settings.annotate.k, store.summary.get("longest")  # stores of versions before this one don't say
    by_edges = settings.train.method == "idc" and settings.annotate.clustering == "partition"
    if trains and by_edges and longest is not None and k > 1 and k >= longest - 1:
        say(
            f"warning: annotate.k = {k}: the longest document has {longest:,} sentences, so that every document is one "
            f"cluster, whatever its sentences say; set it to less than {max(2, longest - 1)} (the paper's is 1)"
        )
