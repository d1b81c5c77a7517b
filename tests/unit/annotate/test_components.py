"""Components by labels that spread, against SciPy's: random graphs, long chains, stars, nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infocse_ray.annotate import idc
from infocse_ray.annotate.components import clusters_by_component, first_of_component
from infocse_ray.annotate.idc import cluster, connected_clusters
from infocse_ray.corpus.tokens import offsets_of


def check(source, target, offsets):
    source, target = (np.ascontiguousarray(column, np.int64) for column in (source, target))
    found = clusters_by_component(torch.from_numpy(source), torch.from_numpy(target), offsets)
    assert found.dtype == np.int32
    assert found.tolist() == connected_clusters(source, target, offsets).tolist()


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs(seed):
    draw = np.random.default_rng(seed)
    offsets = offsets_of(draw.integers(0, draw.integers(2, 60), draw.integers(1, 40)))
    sizes = np.diff(offsets)
    document = np.repeat(np.arange(len(sizes)), sizes)
    some = draw.integers(0, max(1, len(document)), draw.integers(0, 2 * len(document) + 1))
    source = some if len(document) else some[:0]
    target = offsets[document[source]] + draw.integers(0, 2**31, len(source)) % sizes[document[source]]
    check(source, target, offsets)


@pytest.mark.parametrize("order", ["up", "down", "shuffled", "alternating"])
def test_chains_of_thousands(order):
    n, draw = 5_000, np.random.default_rng(4)
    half = n // 2
    rows = {
        "up": np.arange(n),
        "down": np.arange(n)[::-1],
        "shuffled": draw.permutation(n),
        "alternating": np.stack([np.arange(half), np.arange(half, n)], 1).ravel(),
    }[order]
    offsets = np.array([0, n])
    check(rows[:-1], rows[1:], offsets)
    cut = draw.random(n - 1) < 0.99
    check(rows[:-1][cut], rows[1:][cut], offsets)


def test_a_shuffled_chain_takes_few_rounds(monkeypatch):
    """Labels hook onto labels' rows, not onto the ends of edges alone: that would take a thousand rounds."""
    looks, equal, n = [], torch.equal, 1 << 14
    monkeypatch.setattr(torch, "equal", lambda a, b: looks.append(1) or equal(a, b))
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    assert not first_of_component(rows[:-1], rows[1:], n).any()
    assert len(looks) < 14  # rounds are four times as many; log2(n) is 14


def test_nothing_single_rows_and_loops():
    check([], [], np.array([0]))
    check([], [], np.array([0, 0, 3, 3, 4]))
    check([0, 2, 2], [0, 2, 1], np.array([0, 4]))
    check([9] * 9, list(range(9)), np.array([0, 10]))


def test_clusters_where_the_vectors_are_on_a_gpu():
    """The way of a GPU, on this device."""
    draw = np.random.default_rng(1)
    offsets = offsets_of(draw.integers(0, 30, 60))
    vectors = torch.from_numpy(draw.normal(size=(int(offsets[-1]), 8)).astype(np.float32))
    for k in (1, 2, 5):
        expected = cluster(vectors, offsets, k)
        table = idc._edge_table(vectors, offsets, k, 2**24)
        assert clusters_by_component(*table.ends(), offsets).tolist() == expected.tolist()
