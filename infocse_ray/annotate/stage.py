"""The annotate stage: a cluster for every training sentence, by the encoder there is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from infocse_ray.annotate.actor import in_actors, told
from infocse_ray.annotate.annotations import Summary
from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.annotate.engine import TORCH, Engine
from infocse_ray.annotate.idc import cluster
from infocse_ray.annotate.kmeans import GlobalClusters, SampleSentences, fit_sample, share_of
from infocse_ray.annotate.pipeline import Work
from infocse_ray.annotate.shards import AnnotateShards
from infocse_ray.annotate.share import Share
from infocse_ray.corpus.store import TokenStore, shard_name
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import Precision
from infocse_ray.runtime.cluster import Placement, quiet_data
from infocse_ray.runtime.progress import Bar
from infocse_ray.runtime.tasks import in_one_task
from infocse_ray.settings import Annotate
from infocse_ray.stages.metrics import count_annotated
from infocse_ray.stages.shared import check_shared
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage

Embedding = Callable[[Work], Iterable[dict[str, Any]]]
"""Gives a work all groups of shards, in actors with the encoder, and returns what it counts."""


def annotate(
    stage: Stage,
    store: TokenStore,
    splits: list[str],
    encoder: EncoderFolder,
    settings: Annotate,
    seed: int,
    precision: Precision,
    placement: Placement,
    title: str,
    encoder_store: TokenStore | None = None,
    engine: Engine = TORCH,
    share: Share | None = None,
) -> dict[str, Any]:
    """Annotate the documents of `splits` into the stage's folder.

    Args:
        stage: where the pieces go.
        store: whose rows are annotated.
        splits: of the training documents.
        encoder: what embeds them.
        settings: how sentences are clustered.
        seed: of what is drawn: k-means' sample and first centroids.
        precision: of embedding.
        placement: of the actors.
        title: of the progress bar.
        encoder_store: the same corpus, tokenised for `encoder`, if `store` isn't.
        engine: what computes the backbone.
        share: draws the documents that are annotated; None: all.

    Returns:
        The stage's summary: documents, sentences, `copies` (sentences with the text, as the encoder reads it, of an
        earlier one of their document), clusters, pairs of different texts, the histogram `cluster_sizes` (upper bound
        of each power-of-two bin of different texts -> clusters), tokens and padding; with a share `shards_a_lane` and,
        where it draws some of their documents, `part_of_documents`.

    Raises:
        ValueError: `encoder_store` is of another corpus, or k-means' sample is empty.
    """
    quiet_data()
    documents = TrainingDocuments(store, splits, encoder_store, () if share is None else (share,))
    documents.check()
    said = {} if share is None else share.summary()
    tokens = told(documents.tokens, settings.num_workers)
    embedding = functools.partial(
        in_actors, documents.groups(), encoder, precision, placement, engine=engine, tokens=tokens
    )
    if settings.clustering == "kmeans":
        clustering = GlobalClusters(_centroids(stage, documents, embedding, settings, seed, title))
    else:
        clustering = functools.partial(cluster, k=settings.k)
    counts = embedding(AnnotateShards(documents, stage.folder, clustering))
    return _added(counts, documents, stage.folder, title) | said


def _added(
    counts: Iterable[dict[str, Any]], documents: TrainingDocuments, folder: Storage, title: str
) -> dict[str, Any]:
    """The stage's summary, from the counts of its shards; the examples that they have go into a file."""
    summary = Summary(documents.store.summary["lanes"])
    bar = Bar(title, documents.count, "documents")
    for one in counts:
        summary.add(one)
        count_annotated(folder, one)
        bar.to(summary.documents)
    bar.close()
    check_shared(folder, map(shard_name, documents.shards))
    summary.write_examples(folder)
    return summary.content()


def _centroids(
    stage: Stage, documents: TrainingDocuments, embedding: Embedding, settings: Annotate, seed: int, title: str
) -> Storage:
    """The file with the centroids of k-means, fitted unless it is there."""
    folder, target = stage.folder / "sample", stage.folder / "centroids.npy"
    if not target.exists():
        share = share_of(documents, settings.kmeans_sample)
        bar = Bar(f"{title}: sample", len(documents.shards), "shards")
        drawn = 0
        for row in embedding(SampleSentences(documents, folder, share, seed)):
            drawn += row["sentences"]
            bar.add(row["shards"])
        bar.close()
        if not drawn:
            raise ValueError(f"annotate.kmeans_sample = {settings.kmeans_sample}: no sentence was drawn; raise it")
        in_one_task(fit_sample, folder, target, settings.kmeans_clusters, seed)
    folder.delete()
    return target
