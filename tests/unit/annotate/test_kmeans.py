"""K-means over the corpus: against distances one by one, and the same however its work is dealt out."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.cluster.vq import vq

from infocse_ray.annotate import stage
from infocse_ray.annotate.documents import TrainingDocuments, joined
from infocse_ray.annotate.kmeans import GlobalClusters, fit_centroids, load_array, save_array, share_of
from infocse_ray.corpus.store import documents_of, drawn_sentences
from infocse_ray.settings import Annotate
from infocse_ray.storage.folder import Storage
from tests.unit.passes import (
    SPLITS,
    Crash,
    document_vectors,
    numbered,
    pieces,
    small_store,
    written_clusters,
)


def settings(sample: int = 10_000, clusters: int = 4) -> Annotate:
    return Annotate(clustering="kmeans", kmeans_clusters=clusters, kmeans_sample=sample)


def test_fit_finds_the_means_of_what_is_far_apart_and_is_fixed_by_its_seed():
    draw = np.random.default_rng(0)
    middles = draw.normal(size=(5, 8)) * 100
    points = (np.repeat(middles, 40, axis=0) + draw.normal(size=(200, 8))).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fit_centroids(points[draw.permutation(200)], 5, 3)
    means = points.reshape(5, 40, 8).mean(1)
    order = vq(means, found)[0]
    assert sorted(order) == list(range(5))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[order], means, rtol=1e-5, atol=1e-4)
    noise = draw.normal(size=(300, 8)).astype(np.float32)
    assert fit_centroids(noise, 6, 1).tobytes() == fit_centroids(noise, 6, 1).tobytes()
    assert fit_centroids(noise, 6, 1).tobytes() != fit_centroids(noise, 6, 2).tobytes()


def test_few_distinct_vectors_are_the_centroids():
    points = np.array([[1, 0], [0, 0], [-0.0, 0], [1, 0], [2, 5]], np.float32)
    for clusters in (3, 10):
        assert fit_centroids(points, clusters, 0).tolist() == [[0, 0], [1, 0], [2, 5]]
    assert len(fit_centroids(points, 2, 0)) == 2


def test_clusters_are_the_nearest_centroids_of_each_document(tmp_path):
    draw = np.random.default_rng(2)
    vectors, centroids = draw.normal(size=(30, 6)).astype(np.float32), draw.normal(size=(5, 6)).astype(np.float32)
    offsets = np.array([0, 1, 1, 12, 30])
    save_array(Storage.open(str(tmp_path / "c.npy")), centroids)
    clusters = GlobalClusters(Storage.open(str(tmp_path / "c.npy")))
    found = clusters(torch.from_numpy(vectors), offsets)
    nearest = [min(range(5), key=lambda c: float(((v - centroids[c]) ** 2).sum())) for v in vectors]
    assert nearest == vq(vectors, centroids)[0].tolist()
    expected = [numbered(nearest[a:b]) for a, b in pairwise(offsets.tolist())]
    assert found.dtype == np.int32
    assert found.tolist() == [cluster for document in expected for cluster in document]
    with pytest.raises(ValueError, match="vectors are not finite"):
        clusters(torch.full((30, 6), float("inf")), offsets)


def test_what_is_drawn_depends_on_the_sentence_and_the_seed_only(tmp_path):
    store = small_store(tmp_path, count=400)
    parts = [documents_of(table) for shard in range(6) for table in store.read(shard, SPLITS)]
    apart, start = [], 0
    for part in parts:
        apart += (drawn_sentences(part, 0.3, 1) + start).tolist()
        start += len(part.sentences)
    together = joined(parts)
    assert drawn_sentences(together, 0.3, 1).tolist() == apart
    assert abs(len(apart) / start - 0.3) < 4 * (0.3 * 0.7 / start) ** 0.5
    assert set(drawn_sentences(together, 0.1, 1)) < set(apart)
    other = set(drawn_sentences(together, 0.3, 2))
    assert abs(len(other & set(apart)) / len(other) - 0.3) < 0.1
    assert len(drawn_sentences(together, 1.0, 1)) == start


def test_share_makes_the_sample_out_of_the_training_splits(tmp_path):
    store = small_store(tmp_path, count=400)
    sentences = store.summary["sentences"]
    assert share_of(TrainingDocuments(store, SPLITS), sentences) == 1.0
    assert share_of(TrainingDocuments(store, ["train", "valid", "test"]), 100) == 100 / sentences
    documents = TrainingDocuments(store, ["test"])
    there = sum(len(part.sentences) for shard in range(6) for part in documents.own(shard))
    assert share_of(documents, 100) == pytest.approx(100 / there, rel=0.15)


def test_small_corpora_are_fitted_whole(passes, tmp_path):
    store = small_store(tmp_path / "store")
    summary = passes.annotate(store, tmp_path / "out", settings())
    vectors = document_vectors(store, passes.encoder)
    centroids = load_array(Storage.open(str(tmp_path / "out" / "centroids.npy")))
    np.testing.assert_allclose(
        centroids, fit_centroids(np.concatenate([v for _, v in vectors]), 4, 7), rtol=1e-3, atol=1e-3
    )
    expected = {key: numbered(np.argmin(((v[:, None] - centroids) ** 2).sum(2), 1).tolist()) for key, v in vectors}
    assert written_clusters(store, tmp_path / "out") == expected
    assert summary["clusters"] == sum(max(c) + 1 for c in expected.values())
    assert summary["documents"] == len(expected)
    assert not (tmp_path / "out" / "sample").exists()


def test_actors_and_crashes_change_nothing(passes, tmp_path):
    store = small_store(tmp_path / "store")
    few = settings(sample=60)
    one = passes.annotate(store, tmp_path / "one", few)
    assert passes.annotate(store, tmp_path / "two", few, workers=2) == one
    assert pieces(tmp_path / "two") == pieces(tmp_path / "one")
    assert passes.annotate(store, tmp_path / "seed", few, seed=8) != one
    whole = passes.annotate(store, tmp_path / "whole", settings())
    assert whole["sentences"] == one["sentences"]
    assert pieces(tmp_path / "whole")["centroids.npy"] != pieces(tmp_path / "one")["centroids.npy"]
    passes.crash_before = "AnnotateShards"
    with pytest.raises(Crash):
        passes.annotate(store, tmp_path / "crashed", few)
    passes.crash_before, passes.works = "SampleSentences", []
    assert passes.annotate(store, tmp_path / "crashed", few) == one
    assert passes.works == ["AnnotateShards"]
    assert pieces(tmp_path / "crashed") == pieces(tmp_path / "one")


def test_vectors_that_a_crash_left_are_not_made_again(passes, tmp_path, monkeypatch):
    store, few = small_store(tmp_path / "store"), settings(sample=60)
    one = passes.annotate(store, tmp_path / "one", few)

    def crash(*_: object) -> None:
        raise Crash

    times: dict[Path, int] = {}
    for lost in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(stage, "in_one_task", crash)
            with pytest.raises(Crash):
                passes.annotate(store, tmp_path / "out", few)
        there = sorted((tmp_path / "out" / "sample").iterdir())
        assert len(there) == store.shards
        if not lost:
            there[2].unlink()
            times = {file: file.stat().st_mtime_ns for file in there[:2] + there[3:]}
    assert {file: file.stat().st_mtime_ns for file in times} == times, "embedded again"
    assert passes.annotate(store, tmp_path / "out", few) == one
    assert pieces(tmp_path / "out") == pieces(tmp_path / "one")


def test_a_sample_of_nothing_is_refused(passes, tmp_path):
    store = small_store(tmp_path / "store")
    store.summary["sentences"] = 10**12
    with pytest.raises(ValueError, match=r"annotate\.kmeans_sample = 4: no sentence was drawn; raise it"):
        passes.annotate(store, tmp_path / "out", settings(sample=4))
