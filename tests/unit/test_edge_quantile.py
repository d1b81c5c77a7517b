"""Only the most similar edges: against nested loops, numpy's quantile, and itself however its work is dealt out."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from infocse_ray.annotate import actor, documents, kmeans, stage
from infocse_ray.annotate.quantile import EdgeSample, pack, unpack
from infocse_ray.corpus.tokens import sample_hashes
from infocse_ray.errors import DamagedFile
from infocse_ray.settings import Annotate
from infocse_ray.storage.folder import Storage
from tests.unit.passes import (
    Crash,
    document_vectors,
    numbered,
    pieces,
    small_store,
    written_clusters,
)
from tests.unit.stores import Written, write_store


def brute_force(vectors, k, mutual):
    """Undirected edges (i, j) -> weight of one document."""
    product = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    top = [[j for j in np.argsort(-p, kind="stable").tolist() if j != i][:k] for i, p in enumerate(product)]
    return {
        (i, j): product[i, j]
        for i in range(len(product))
        for j in range(i + 1, len(product))
        if ((i in top[j]) and (j in top[i])) or (not mutual and ((i in top[j]) or (j in top[i])))
    }


def components(count, edges):
    label = list(range(count))
    for i, j in edges:
        label = [label[i] if x == label[j] else x for x in label]
    return numbered(label)


@pytest.mark.parametrize(("k", "mutual", "share"), [(1, False, 0.75), (2, False, 0.5), (3, True, 0.9), (2, True, 0.01)])
def test_clusters_are_those_of_the_most_similar_edges(passes, tmp_path, k, mutual, share):
    store = small_store(tmp_path / "store")
    summary = passes.annotate(store, tmp_path / "out", Annotate(k=k, mutual=mutual, min_edge_quantile=share))
    vectors = dict(document_vectors(store, passes.encoder))
    edges = {key: brute_force(v, k, mutual) for key, v in vectors.items()}
    weights = [w for found in edges.values() for w in found.values()]
    threshold = np.quantile(weights, share)
    # Rounding must not decide.
    assert np.abs(np.array(weights) - threshold).min() > 1e-5
    kept = {key: [edge for edge, w in found.items() if w >= threshold] for key, found in edges.items()}
    assert summary["edge_threshold"] == pytest.approx(threshold, rel=1e-5)
    assert summary["edges_kept"] == sum(map(len, kept.values()))
    assert summary["edges_kept"] + summary["edges_dropped"] == len(weights)
    assert written_clusters(store, tmp_path / "out") == {
        key: components(len(v), kept[key]) for key, v in vectors.items()
    }


def test_edges_as_similar_as_the_threshold_stay(passes, tmp_path):
    # All documents are one, so there are two weights, as nearly all are the same in a corpus full of boilerplate.
    texts = [[7, 8], [9, 30], [10, 11]]
    same = write_store(Storage.open(str(tmp_path / "store")), [Written(f"d{i}", texts) for i in range(9)], 3)
    summary = passes.annotate(same, tmp_path / "out", Annotate(min_edge_quantile=0.9))
    assert (summary["edges_kept"], summary["edges_dropped"], summary["clusters"]) == (9, 9, 18)


def test_summary_is_that_of_one_pass_where_no_edge_is_dropped(passes, tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "_SENTENCES_TOGETHER", 10_000)
    store = small_store(tmp_path / "store")
    one = passes.annotate(store, tmp_path / "one", Annotate(k=2))
    # Below the second smallest weight is only the smallest edge, or none.
    two = passes.annotate(store, tmp_path / "two", Annotate(k=2, min_edge_quantile=1e-9))
    assert two["edges_dropped"] == 1
    assert {name: two[name] for name in one if name not in ("clusters", "pairs", "cluster_sizes")} == {
        name: one[name] for name in one if name not in ("clusters", "pairs", "cluster_sizes")
    }
    assert two.keys() - one.keys() == {"edge_threshold", "edges_kept", "edges_dropped"}
    assert set(pieces(tmp_path / "two")) == set(pieces(tmp_path / "one")) | {"threshold.json"}


def test_quantile_of_a_sample_is_near_that_of_all_and_does_not_depend_on_the_order():
    draw = np.random.default_rng(5)
    weights = draw.normal(size=200_000).astype(np.float32) ** 3
    hashes = sample_hashes(3, np.arange(200_000))
    one, two = EdgeSample(), EdgeSample()
    one.add(hashes, weights)
    for part in np.array_split(draw.permutation(200_000), 37):
        two.add(hashes[part], weights[part])
        two.add(hashes[part[:50]], weights[part[:50]])  # again, as Ray does where a result was lost
    assert len(one.weights) == 16_384
    assert set(one.hashes) == set(np.sort(hashes)[:16_384])
    for share in (0.1, 0.5, 0.75, 0.99):
        assert one.quantile(share) == two.quantile(share)
        assert abs((weights < one.quantile(share)).mean() - share) < 4 * (share * (1 - share) / 16_384) ** 0.5
    other = EdgeSample()
    other.add(sample_hashes(4, np.arange(200_000)), weights)
    assert other.quantile(0.5) != one.quantile(0.5)


def test_quantile_is_exact_where_all_edges_fit():
    draw = np.random.default_rng(6)
    weights = draw.normal(size=1_000).astype(np.float32)
    sample = EdgeSample(1_000)
    for part in np.array_split(np.arange(1_000), 7):
        sample.add(sample_hashes(0, part), weights[part])
    for share in (0.0, 0.333, 0.75):
        assert sample.quantile(share) == np.quantile(weights.astype(np.float64), share)
    assert EdgeSample().quantile(0.5) == 0.0


def test_packed_arrays_come_back():
    hashes = np.array([-1, 0, 256, 2**62], np.int64)
    np.testing.assert_array_equal(unpack(pack(hashes), np.int64), hashes)
    assert len(unpack(pack(np.empty(0, np.float32)), np.float32)) == 0


def test_actors_change_nothing_even_where_edges_are_sampled(passes, tmp_path, monkeypatch):
    store = small_store(tmp_path / "store")
    kinds = Annotate(k=2, min_edge_quantile=0.5)
    exact = passes.annotate(store, tmp_path / "exact", kinds)
    monkeypatch.setattr(stage, "EdgeSample", functools.partial(EdgeSample, 40))
    one = passes.annotate(store, tmp_path / "one", kinds)
    assert one["edge_threshold"] != exact["edge_threshold"]
    assert one["edge_threshold"] != passes.annotate(store, tmp_path / "seed", kinds, seed=8)["edge_threshold"]
    for workers in (2, 3):
        assert passes.annotate(store, tmp_path / str(workers), kinds, workers=workers) == one
        assert pieces(tmp_path / str(workers)) == pieces(tmp_path / "one")
    # The sample's 40 edges are those with the smallest hashes of all.
    edges = [
        (key, i, j, weight)
        for key, vectors in document_vectors(store, passes.encoder)
        for (i, j), weight in brute_force(vectors, 2, False).items()
    ]
    key, i, j, weight = (np.array(column) for column in zip(*edges, strict=True))
    smallest = np.argsort(sample_hashes(7, key, i, j))[:40]
    assert one["edge_threshold"] == pytest.approx(np.quantile(weight[smallest], 0.5), rel=1e-5)


@pytest.mark.parametrize("section", [{"k": 2, "min_edge_quantile": 0.5}, {"k": 2}, {"clustering": "kmeans"}], ids=str)
def test_what_is_embedded_at_once_and_together_changes_no_cluster(passes, tmp_path, monkeypatch, section):
    store = small_store(tmp_path / "store")
    kind = Annotate.model_validate(section)
    one = passes.annotate(store, tmp_path / "one", kind)
    monkeypatch.setattr(documents, "_SENTENCES_TOGETHER", 10_000)
    monkeypatch.setattr(actor, "SENTENCES_AT_ONCE", 20)
    monkeypatch.setattr(kmeans, "SENTENCES_AT_ONCE", 20)
    two = passes.annotate(store, tmp_path / "two", kind)
    assert written_clusters(store, tmp_path / "two") == written_clusters(store, tmp_path / "one")
    assert two["padded_tokens"] != one["padded_tokens"], "nothing was dealt otherwise"
    assert two["pairs"] == one["pairs"]


def test_a_crash_between_and_within_the_passes_resumes(passes, tmp_path):
    store = small_store(tmp_path / "store")
    kinds = Annotate(k=1, min_edge_quantile=0.6)
    one = passes.annotate(store, tmp_path / "one", kinds)
    passes.crash_before = "DropEdges"
    with pytest.raises(Crash):
        passes.annotate(store, tmp_path / "out", kinds)
    (tmp_path / "out" / "threshold.json").unlink()
    (tmp_path / "out" / "edges" / "shard-000002.parquet").unlink()  # as if the first pass had not got there
    before = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in pieces(tmp_path / "out")}
    with pytest.raises(Crash):
        passes.annotate(store, tmp_path / "out", kinds, workers=2)
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in before} == before, "made again"
    passes.crash_before, passes.works = "FindEdges", []
    third = tmp_path / "out" / "edges" / "shard-000003.parquet"
    edges = third.read_bytes()
    third.write_bytes(b"damaged")
    with pytest.raises(DamagedFile, match=r"shard-000003\.parquet is damaged"):
        passes.annotate(store, tmp_path / "out", kinds)
    assert "shard-000004.parquet" in pieces(tmp_path / "out")
    third.write_bytes(edges)
    assert passes.annotate(store, tmp_path / "out", kinds) == one
    assert pieces(tmp_path / "out") == pieces(tmp_path / "one")
    assert set(passes.works) == {"DropEdges"}
    # A crash after the edges were removed and before the stage was committed.
    assert passes.annotate(store, tmp_path / "out", kinds) == one


def test_edges_are_found_again_for_a_shard_that_was_damaged_after_the_stage_was_finished(passes, tmp_path):
    store = small_store(tmp_path / "store")
    kinds = Annotate(k=1, min_edge_quantile=0.6)
    one = passes.annotate(store, tmp_path / "out", kinds)
    whole = pieces(tmp_path / "out")
    (tmp_path / "out" / "shard-000003.parquet").unlink()
    assert passes.annotate(store, tmp_path / "out", kinds) == one
    assert pieces(tmp_path / "out") == whole
