"""Kinds of pairs against loops over all of them."""

import itertools

import numpy as np
import pytest
import torch

from infocse_ray.annotate import pairs as module
from infocse_ray.annotate.idc import cluster, top_k_edges
from infocse_ray.annotate.pairs import KINDS, QUANTILES, look_at_pairs

OFFSETS = np.array([0, 7, 7, 8, 20, 29], dtype=np.int64)


def vectors(n=29):
    drawn = torch.randn(n, 6, generator=torch.Generator().manual_seed(3))
    return torch.nn.functional.normalize(drawn, dim=-1)


def by_loops(v, k):
    """Pairs of each kind, as sets of row numbers."""
    found = top_k_edges(v, OFFSETS, k)
    edges = {(min(pair), max(pair)) for pair in zip(found.source.tolist(), found.target.tolist(), strict=True)}
    kinds = {name: set() for name in KINDS}
    label = list(range(len(v)))
    for a, b in edges:
        label = [label[a] if x == label[b] else x for x in label]
    document = np.repeat(np.arange(5), np.diff(OFFSETS))
    for a, b in itertools.combinations(range(len(v)), 2):
        if document[a] != document[b]:
            kinds["other documents"].add((a, b))
        elif (a, b) in edges:
            kinds["edges"].add((a, b))
        else:
            kinds["chained" if label[a] == label[b] else "rest of the document"].add((a, b))
    return kinds


def test_kinds_of_pairs_are_those_of_a_loop():
    v = vectors()
    found = look_at_pairs(v, OFFSETS, 1, seed=1)
    expected = by_loops(v, 1)
    cosine = (v.double() @ v.double().T).numpy()
    bar = np.quantile([cosine[pair] for pair in expected["other documents"]], 0.95)
    for kind in found.kinds:
        pairs = expected[kind.name]
        assert kind.pairs == len(pairs) > 0
        values = [cosine[pair] for pair in pairs]
        # Pairs of different documents are drawn, the others are all there.
        close = 0.02 if kind.name == "other documents" else 1e-6
        np.testing.assert_allclose(kind.cosines, np.quantile(values, QUANTILES), atol=close)
        assert kind.unrelated == pytest.approx(np.mean(values < bar), abs=0.02)
    trained = expected["edges"] | expected["chained"]
    assert {tuple(map(int, pair)) for pair in found.shown} == trained
    assert list(found.cosines) == sorted(found.cosines)
    np.testing.assert_allclose(found.cosines, [cosine[tuple(pair)] for pair in found.shown], atol=1e-6)


def test_the_trained_pairs_are_those_that_annotating_gives():
    v = vectors()
    clusters = cluster(v, OFFSETS, 2)
    document = np.repeat(np.arange(5), np.diff(OFFSETS))
    pairs = itertools.combinations(range(len(v)), 2)
    expected = {(a, b) for a, b in pairs if document[a] == document[b] and clusters[a] == clusters[b]}
    found = look_at_pairs(v, OFFSETS, 2, seed=1)
    assert {tuple(map(int, pair)) for pair in found.shown} == expected


def test_many_pairs_are_drawn_and_counted_all_the_same(monkeypatch):
    v = vectors()
    whole = look_at_pairs(v, OFFSETS, 2, seed=1)
    monkeypatch.setattr(module, "_DRAWN", 30)
    monkeypatch.setattr(module, "_ALL_PAIRS", 8)
    part = look_at_pairs(v, OFFSETS, 2, seed=1)
    assert [kind.pairs for kind in part.kinds] == [kind.pairs for kind in whole.kinds]
    assert len(whole.shown) > 30
    assert len(part.shown) == 30
    known = {tuple(map(int, pair)) for pair in whole.shown}
    assert {tuple(map(int, pair)) for pair in part.shown} <= known


def test_documents_without_pairs():
    found = look_at_pairs(vectors(3), np.array([0, 1, 2, 3]), 1, seed=1)
    assert [kind.pairs for kind in found.kinds] == [0, 0, 0, 3]
    assert len(found.shown) == 0
    assert found.kinds[0].cosines == ()
