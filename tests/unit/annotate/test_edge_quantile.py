"""Only the most similar edges: against nested loops, numpy's quantile, and itself however its work is dealt out."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from infocse_ray.annotate import annotator, documents, kmeans
from infocse_ray.annotate.quantile import count_weights, weight_quantile
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
    threshold = summary["edge_threshold"]
    exact = min(w for w in weights if w >= np.quantile(weights, share))
    # Of what is not below the quantile the smallest is in the threshold's bin; rounding must not decide.
    assert exact - abs(exact) / 1024 < threshold < exact
    assert np.abs(np.array(weights) - threshold).min() > 1e-5
    kept = {key: [edge for edge, w in found.items() if w >= threshold] for key, found in edges.items()}
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


def test_the_threshold_is_within_a_bin_of_the_quantile_whatever_the_weights_range():
    draw = np.random.default_rng(5)
    largest = np.float32(np.finfo(np.float32).max)
    for weights in (
        draw.normal(size=20_000) ** 3 * 1e4,
        np.tanh(draw.normal(size=999)),
        np.array([-largest, -1e-45, -0.0, 0.0, 1e-45, 1e-38, largest]),
        np.array([-2.5]),
    ):
        weights = weights.astype(np.float32)
        for share in (0.0, 0.1, 0.333, 0.75, 0.99):
            threshold = weight_quantile(count_weights(weights), share)
            assert np.float32(threshold) == threshold
            exact = np.quantile(weights.astype(np.float64), share, method="higher")
            # Of a negative weight the bin's lower edge is the larger magnitude; tiny ones share a bin with zero.
            assert exact - abs(exact) / 2048 - 1e-41 <= threshold <= exact
            kept, wide = weights >= np.float32(threshold), weights.astype(np.float64)
            assert kept[wide >= exact].all()
            assert not kept[wide < exact - abs(exact) / 1024 - 1e-41].any()
    assert weight_quantile({}, 0.5) == 0.0


def test_histograms_of_parts_add_up_to_that_of_the_whole_in_any_order():
    draw = np.random.default_rng(6)
    weights = draw.normal(size=30_000).astype(np.float32)
    added = Counter()
    for part in np.array_split(draw.permutation(30_000), 37):
        added.update(count_weights(weights[part]))
    assert added == count_weights(weights)
    assert sum(added.values()) == 30_000
    cosines = np.linspace(0.01, 1, 500_000, dtype=np.float32)
    assert len(count_weights(cosines)) < 16_000


def test_actors_and_seeds_change_nothing(passes, tmp_path):
    store = small_store(tmp_path / "store")
    kinds = Annotate(k=2, min_edge_quantile=0.5)
    one = passes.annotate(store, tmp_path / "one", kinds)
    for workers in (2, 3):
        assert passes.annotate(store, tmp_path / str(workers), kinds, workers=workers, seed=workers) == one
        assert pieces(tmp_path / str(workers)) == pieces(tmp_path / "one")


@pytest.mark.parametrize("section", [{"k": 2, "min_edge_quantile": 0.5}, {"k": 2}, {"clustering": "kmeans"}], ids=str)
def test_what_is_embedded_at_once_and_together_changes_no_cluster(passes, tmp_path, monkeypatch, section):
    store = small_store(tmp_path / "store")
    kind = Annotate.model_validate(section)
    one = passes.annotate(store, tmp_path / "one", kind)
    monkeypatch.setattr(documents, "_SENTENCES_TOGETHER", 10_000)
    monkeypatch.setattr(annotator, "SENTENCES_AT_ONCE", 20)
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
