"""Exact ranks against sorting, and the scores made of them."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infocse_ray.retrieval import ranks
from infocse_ray.retrieval.documents import halves, mean_vectors
from infocse_ray.retrieval.intervals import wilson
from infocse_ray.retrieval.ranks import LeftOut, metrics_of, rank_among


def sorted_ranks(queries, candidates, true):
    """The true candidate sorted behind all that score the same."""
    found = []
    for i, scores in enumerate(queries.double().numpy() @ candidates.double().numpy().T):
        others = np.delete(np.arange(len(candidates)), true[i])
        order = np.concatenate([others, [true[i]]])
        order = order[np.argsort(-scores[order], kind="stable")]
        found.append(int(np.flatnonzero(order == true[i])[0]) + 1)
    return found


def blocks_of(candidates, keys, cuts):
    edges = [0, *sorted(min(c, len(keys)) for c in cuts), len(keys)]
    return [(candidates[a:b], keys[a:b]) for a, b in pairwise(edges)]


@settings(max_examples=60)
@given(st.data())
def test_ranks_equal_sorting(data):
    n = data.draw(st.integers(1, 25))
    q = data.draw(st.integers(0, 12))
    d = data.draw(st.integers(1, 6))
    draw = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    spread = data.draw(st.sampled_from([1, 3, 50]))
    candidates = torch.from_numpy(draw.integers(-spread, spread + 1, (n, d))).float()
    queries = torch.from_numpy(draw.integers(-spread, spread + 1, (q, d))).float()
    true = draw.integers(0, n, q)
    keys = torch.from_numpy(draw.permutation(10 * n)[:n])
    cuts = data.draw(st.lists(st.integers(0, n), max_size=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "_BLOCK_ELEMENTS", data.draw(st.sampled_from([1, 7, 50, 2**24])))
        found = rank_among(queries, candidates[true], keys[true], blocks_of(candidates, keys, cuts))
    assert found.ranks.tolist() == sorted_ranks(queries, candidates, true)
    best = (queries @ candidates.mT).amax(1)
    position = {key: i for i, key in enumerate(keys.tolist())}
    top = [position[key] for (key,) in found.top_keys.tolist()]
    assert (queries * candidates[top]).sum(1).tolist() == best.tolist()


@settings(max_examples=60)
@given(st.data())
def test_a_query_is_not_ranked_among_what_is_left_out(data):
    n = data.draw(st.integers(1, 20))
    q = data.draw(st.integers(1, 10))
    draw = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    candidates = torch.from_numpy(draw.integers(-3, 4, (n, 3))).float()
    queries = torch.from_numpy(draw.integers(-3, 4, (q, 3))).float()
    true = draw.integers(0, n, q)
    keys = torch.from_numpy(draw.permutation(10 * n)[:n])
    asker = draw.integers(0, 4, q)
    told = draw.random((4, n)) < data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    told[np.setdiff1d(np.arange(4), asker)] = False
    documents, columns = draw.permutation(np.argwhere(told)).T
    out = told[asker]
    out[np.arange(q), true] = False
    # Keys that no block has, as those of candidates that were never there.
    documents, left_keys = np.append(documents, [asker[0], asker[0]]), np.append(keys[columns], [-1, 10**9])
    left_out = LeftOut.of(asker, documents, left_keys)
    cuts = data.draw(st.lists(st.integers(0, n), max_size=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "_BLOCK_ELEMENTS", data.draw(st.sampled_from([1, 7, 50, 2**24])))
        found = rank_among(queries, candidates[true], keys[true], blocks_of(candidates, keys, cuts), left_out)
    for i in range(q):
        kept = np.flatnonzero(~out[i])
        mine = np.flatnonzero(kept == true[i])
        assert found.ranks[i].item() == sorted_ranks(queries[i : i + 1], candidates[kept], mine)[0]
        (top,) = np.flatnonzero(keys.numpy() == found.top_keys[i, 0].item())
        assert top in kept
        assert (queries[i] @ candidates[top]).item() == (candidates[kept] @ queries[i]).max().item()


@pytest.mark.parametrize("block", [1, 7, 2**24])
def test_the_best_three_are_told_best_first_and_nothing_that_is_left_out(block, monkeypatch):
    monkeypatch.setattr(ranks, "_BLOCK_ELEMENTS", block)
    draw = torch.Generator().manual_seed(1)
    queries, candidates = torch.randn(6, 4, generator=draw), torch.randn(9, 4, generator=draw)
    keys = torch.arange(100, 109)
    left_out = LeftOut.of(np.arange(6), np.array([0, 0, 5]), np.array([103, 104, 100]))
    found = rank_among(queries, candidates[:6], keys[:6], blocks_of(candidates, keys, [2, 5]), left_out, top=3)
    scores = queries @ candidates.mT
    scores[[0, 0, 5], [3, 4, 0]] = -torch.inf
    assert found.top_keys.tolist() == keys[scores.argsort(1, descending=True)[:, :3]].tolist()
    few = rank_among(queries[:1], candidates[:1], keys[:1], [(candidates[:2], keys[:2])], top=3)
    assert few.top_keys[0, :2].sort().values.tolist() == [100, 101]
    assert few.top_keys[0, 2] == 0


@pytest.mark.parametrize("positive", [False, True])
def test_equal_vectors_tie_whatever_the_rounding(positive):
    torch.manual_seed(0)
    queries, true = 3 * torch.randn(100, 384), 3 * torch.randn(100, 384)
    # True scores near 0: a sum of large terms that cancel, whose rounding is large beside it.
    true -= 0.9999 * (queries * true).sum(1, keepdim=True) / (queries * queries).sum(1, keepdim=True) * queries
    if positive:
        queries, true = queries.abs(), true.abs()
    keys = torch.arange(100)
    alone = rank_among(queries, true, keys, [(true, keys)]).ranks
    # Copies under other keys, in blocks of other shapes.
    copies = [(true[i : i + 7], keys[i : i + 7] + 1000) for i in range(0, 100, 7)]
    assert (rank_among(queries, true, keys, [(true, keys), *copies]).ranks == 2 * alone).all()


def test_a_rank_is_not_changed_by_what_scores_clearly_less():
    queries = torch.tensor([[1.0, 0.0]])
    candidates = torch.tensor([[1.0, 0.0], [1.0 - 1e-4, 0.0], [1.0 + 1e-4, 0.0]])
    assert rank_among(queries, candidates[:1], torch.tensor([0]), [(candidates, torch.arange(3))]).ranks.tolist() == [2]


def test_an_encoder_of_nan_is_last_not_first():
    nan = torch.full((3, 4), torch.nan)
    keys = torch.arange(3)
    assert rank_among(nan, nan, keys, [(nan, keys)]).ranks.tolist() == [3, 3, 3]


def test_metrics():
    found = metrics_of(np.array([1, 5, 6, 10, 11, 20, 21, 100]), 500)
    assert found["recall@5"] == 2 / 8
    assert found["recall@10"] == 4 / 8
    assert found["recall@20"] == 6 / 8
    assert found["mrr"] == pytest.approx((1 + 1 / 5 + 1 / 6 + 1 / 10 + 1 / 11 + 1 / 20 + 1 / 21 + 1 / 100) / 8)
    assert (found["recall@5_low"], found["recall@5_high"]) == pytest.approx(wilson(0.25, 8))
    assert (found["queries"], found["candidates"]) == (8, 500)


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(SIZES, st.booleans())
@settings(max_examples=25)
def test_mean_vectors_equal_a_loop(sizes, normalize):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    vectors = torch.from_numpy(np.random.default_rng(len(sizes)).normal(size=(offsets[-1], 5))).float()
    expected = torch.stack([vectors[a:b].mean(0) for a, b in pairwise(offsets)])
    if normalize:
        expected = expected / expected.norm(dim=1, keepdim=True)
    torch.testing.assert_close(mean_vectors(vectors, offsets, normalize), expected)


@given(st.lists(st.integers(2, 9), min_size=1, max_size=12))
@settings(max_examples=25)
def test_halves_alternate(sizes):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    spans = list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    even, odd = halves(offsets)
    assert even.tolist() == [row for a, b in spans for row in range(a, b, 2)]
    assert odd.tolist() == [row for a, b in spans for row in range(a + 1, b, 2)]
