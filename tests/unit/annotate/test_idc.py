"""IDC against nested loops and union-find, with inner products that are exact or exactly rounded."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infocse_ray.annotate import blocks, idc
from infocse_ray.annotate.clusters import cluster_sizes, count_pairs


def spans(offsets):
    return list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))


def batch(sizes):
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def reference_edges(vectors, offsets, k):
    rows = vectors.double().numpy()
    edges = []
    for begin, end in spans(offsets):
        for i in range(begin, end):
            # A product of two float32 is exact in float64 and fsum rounds once, so equal vectors tie.
            others = [(-math.fsum(rows[i] * rows[j]), j) for j in range(begin, end) if j != i]
            edges += [(i, j, -negated) for negated, j in sorted(others)[:k]]
    return edges


def reference_components(pairs, offsets):
    parent = list(range(int(offsets[-1])))

    def find(i):
        while parent[i] != i:
            i = parent[i]
        return i

    for i, j in pairs:
        parent[find(j)] = find(i)
    clusters = []
    for begin, end in spans(offsets):
        ids = {}
        clusters += [ids.setdefault(find(i), len(ids)) for i in range(begin, end)]
    return clusters


def assert_matches_reference(vectors, offsets, k, **bound):
    expected = reference_edges(vectors, offsets, k)
    edges = idc.top_k_edges(vectors, offsets, k, **bound)
    assert [a.dtype for a in edges] == [np.int64, np.int64, np.float32]
    found = zip(edges.source.tolist(), edges.target.tolist(), strict=True)
    assert list(found) == [(i, j) for i, j, _ in expected]
    np.testing.assert_allclose(edges.weight, [w for _, _, w in expected], rtol=1e-5, atol=1e-6)
    clusters = idc.cluster(vectors, offsets, k, **bound)
    assert clusters.dtype == np.int32
    assert clusters.tolist() == reference_components([(i, j) for i, j, _ in expected], offsets)


def unit_vectors(n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(n, d, generator=generator), dim=1)


def integer_vectors(kind, n, d, seed):
    rng = np.random.default_rng(seed)
    if kind == "zero":
        rows = np.zeros((n, d))
    elif kind == "identical":
        rows = np.tile(rng.integers(-2, 3, d), (n, 1))
    elif kind == "repeated":
        rows = rng.integers(-2, 3, (3, d))[rng.integers(0, 3, n)]
    elif kind == "negative":  # off the diagonal -n(i + 1)(j + 1) for all i, j
        rows = (n * np.eye(n) - 1) * np.arange(1, n + 1)[:, None]
    else:
        rows = rng.integers(-2, 3, (n, d))
    return torch.from_numpy(np.asarray(rows, np.float32))


@settings(max_examples=100)
@given(
    sizes=st.lists(st.integers(0, 14), max_size=7),
    k=st.integers(1, 15),
    kind=st.sampled_from(["zero", "identical", "repeated", "negative", "ties"]),
    d=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    bound=st.integers(1, 400),
    double=st.booleans(),
)
def test_matches_reference_on_adversarial_vectors(sizes, k, kind, d, seed, bound, double):
    vectors = integer_vectors(kind, sum(sizes), d, seed)
    vectors = vectors.double() if double else vectors
    bound = max([bound, *sizes])
    assert_matches_reference(vectors, batch(sizes), k, max_block_elements=bound)


@pytest.mark.parametrize("k", [1, 2, 3, 8, 9, 50])
def test_matches_reference_on_random_vectors(k):
    sizes = [0, 1, 2, 30, 1, 29, 28, 2, 0, 9, 10]
    assert_matches_reference(unit_vectors(sum(sizes), 48, seed=k), batch(sizes), k)
    assert_matches_reference(unit_vectors(60, 48, seed=k), batch([20, 20, 20]), k)


@pytest.mark.parametrize("k", [25, 26, 70])
def test_many_neighbours_of_long_documents_match_the_reference(k):
    """By maxima one after the other, and by sorting rows; equal similarities go to the lower index either way."""
    assert_matches_reference(integer_vectors("ties", 130, 3, k), batch([100, 30]), k)


@pytest.mark.parametrize("k", [1, 3, 12])
@pytest.mark.parametrize("bound", [37, 37 * 5, 2**24])
def test_duplicates_tie_exactly_whatever_the_rounding_of_the_product(k, bound):
    rng = np.random.default_rng(k + bound)
    sizes = [37, 37, 19, 33, 35, 5]
    vectors = unit_vectors(sum(sizes), 384, seed=k + bound)
    for begin, end in spans(batch(sizes)):
        chosen = rng.integers(begin, begin + (end - begin) // 2, end - begin)
        keep = rng.random(end - begin) < 0.4
        vectors[begin:end] = vectors[np.where(keep, np.arange(begin, end), chosen)]
    assert_matches_reference(vectors, batch(sizes), k, max_block_elements=bound)


def test_duplicates_are_found_within_a_document_and_with_either_sign_of_zero():
    vectors = torch.tensor([[0.0, 1, 2], [0, 1, 2], [-0.0, 1, 2], [0, 3, 2], [0, 1, 2], [0, 1, 2]])
    offsets = np.array([0, 1, 4, 6])
    found = blocks.duplicates_of(vectors, offsets, np.array([1, 2]))
    assert [a.tolist() for a in found] == [[0, 1], [1, 1], [0, 0]]


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 9), max_size=6),
    k=st.integers(1, 10),
    kind=st.sampled_from(["zero", "repeated", "negative", "ties"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_undirected_edges_are_those_of_sets(sizes, k, kind, seed):
    vectors, offsets = integer_vectors(kind, sum(sizes), 4, seed), batch(sizes)
    weight = {(i, j): w for i, j, w in reference_edges(vectors, offsets, k)}
    once = idc.undirected_edges(idc.top_k_edges(vectors, offsets, k))
    expected = sorted({(min(edge), max(edge)) for edge in weight})
    assert list(zip(once.source.tolist(), once.target.tolist(), strict=True)) == expected
    assert once.weight.tolist() == [weight.get((i, j), weight.get((j, i))) for i, j in expected]


def test_an_edge_of_both_ends_has_the_weight_of_the_one_from_the_lower_row():
    edges = idc.Edges(np.array([0, 1, 2]), np.array([1, 0, 1]), np.array([0.1, 0.2, 0.3], np.float32))
    once = idc.undirected_edges(edges)
    assert [column.tolist() for column in once[:2]] == [[0, 1], [1, 2]]
    np.testing.assert_array_equal(once.weight, np.array([0.1, 0.3], np.float32))


def test_titles_of_the_papers_appendix():
    early = torch.tensor(
        [
            [1.0, 0.0, 0.0, 0.0],
            [0.9, 0.1, 0.0, 0.0],
            [0.0, 0.9, 0.2, 0.0],
            [0.0, 0.8, 0.6, 0.0],
            [0.0, 0.6, 0.8, 0.0],
            [0.0, 0.2, 0.9, 0.0],
            [0.0, 0.0, 0.1, 0.9],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )
    late = early.clone()
    late[3], late[4] = torch.tensor([0, 0.95, 0.2, 0]), torch.tensor([0, 0.2, 0.95, 0])
    offsets = np.array([0, 8])
    # Sentence 4 prefers 5 to 3, which stays with it because 3 prefers 4: one direction is enough.
    assert idc.cluster(early, offsets, 1).tolist() == [0, 0, 1, 1, 1, 1, 2, 2]
    assert idc.cluster(late, offsets, 1).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_long_document_is_done_in_bounded_blocks(monkeypatch):
    n, bound, bmm, blocks = 10_000, 2**20, torch.bmm, []

    def recorded(a, b):
        blocks.append(a.shape[0] * a.shape[1] * b.shape[2])
        return bmm(a, b)

    monkeypatch.setattr(torch, "bmm", recorded)
    rows = np.random.default_rng(0).integers(-3, 4, (n, 16)).astype(np.float32)
    edges = idc.top_k_edges(torch.from_numpy(rows), batch([n]), 1, max_block_elements=bound)
    assert max(blocks) <= bound
    assert sum(blocks) == n * n

    full = rows @ rows.T
    np.fill_diagonal(full, -np.inf)
    nearest = full.argmax(axis=1)
    np.testing.assert_array_equal(edges.source, np.arange(n))
    np.testing.assert_array_equal(edges.target, nearest)
    np.testing.assert_array_equal(edges.weight, full[np.arange(n), nearest])


@pytest.mark.parametrize(("bound", "gather"), [(2**16, 2**24), (2**24, 2**16), (2**24, 2**24)])
def test_few_products_little_padding_and_bounded_gathers(monkeypatch, bound, gather):
    sizes = np.random.default_rng(0).integers(2, 61, 2000)
    bmm, calls = torch.bmm, []

    def recorded(a, b):
        calls.append((a.shape[0] * a.shape[1] * b.shape[2], a.numel()))
        return bmm(a, b)

    monkeypatch.setattr(torch, "bmm", recorded)
    monkeypatch.setattr(blocks, "_GATHER_ELEMENTS", {"cpu": gather})
    idc.top_k_edges(unit_vectors(int(sizes.sum()), 64, seed=0), batch(sizes), 1, max_block_elements=bound)
    products, gathers = np.array(calls).T
    assert products.max() <= bound
    assert gathers.max() <= gather
    assert len(calls) < len(sizes) / 10
    assert products.sum() < 1.25 * (sizes**2).sum()


@settings(max_examples=25)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_a_document_does_not_depend_on_its_batch(sizes, k, seed):
    offsets = batch(sizes)
    vectors = integer_vectors("ties", sum(sizes), 4, seed)
    alone = [idc.cluster(vectors[i:j], np.array([0, j - i]), k) for i, j in spans(offsets)]
    np.testing.assert_array_equal(idc.cluster(vectors, offsets, k), np.concatenate(alone))


def test_accepts_views_and_parameters():
    vectors = integer_vectors("ties", 24, 6, seed=0)
    offsets = batch([10, 14])
    expected = idc.cluster(vectors, offsets, 2)
    strided = torch.empty(6, 24).T.copy_(vectors).requires_grad_()
    np.testing.assert_array_equal(idc.cluster(strided, offsets, 2), expected)
    assert idc.cluster(vectors[:0], np.array([0]), 1).tolist() == []


@settings(max_examples=100)
@given(st.lists(st.integers(0, 8), max_size=6), st.integers(0, 2**32 - 1))
def test_components_and_their_counts(sizes, seed):
    rng, offsets = np.random.default_rng(seed), batch(sizes)
    pairs = np.array(
        [rng.integers(i, j, 2) for i, j in spans(offsets) if i < j for _ in range(rng.integers(j - i + 1))],
        dtype=np.int64,
    ).reshape(-1, 2)
    rng.shuffle(pairs)
    clusters = idc.connected_clusters(pairs[:, 0], pairs[:, 1], offsets)
    assert clusters.dtype == np.int32
    assert clusters.tolist() == reference_components(pairs.tolist(), offsets)

    documents = [clusters[i:j].tolist() for i, j in spans(offsets)]
    pairs_expected = [sum(a == b for i, a in enumerate(ids) for b in ids[:i]) for ids in documents]
    sizes_expected = [ids.count(c) for ids in documents for c in sorted(set(ids))]
    counted, sized = count_pairs(clusters, offsets), cluster_sizes(clusters, offsets)
    assert counted.dtype == sized.dtype == np.int64
    assert counted.tolist() == pairs_expected
    assert sized.tolist() == sizes_expected


BAD_OFFSETS = [([1, 4], "starts at 0"), ([], "starts at 0"), ([0, 3, 2, 4], "decrease after document 1")]


@pytest.mark.parametrize(("offsets", "message"), BAD_OFFSETS)
def test_refuses_bad_offsets(offsets, message):
    offsets, none, clusters = np.array(offsets), np.zeros(0, np.int64), np.zeros(4, np.int32)
    for call in (
        lambda: idc.cluster(torch.ones(4, 2), offsets, 1),
        lambda: idc.connected_clusters(none, none, offsets),
        lambda: count_pairs(clusters, offsets),
        lambda: cluster_sizes(clusters, offsets),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("end", [3, 5])
def test_refuses_offsets_that_do_not_end_at_the_last_sentence(end):
    offsets, clusters = np.array([0, 2, end]), np.zeros(4, np.int32)
    for call in (
        lambda: idc.cluster(torch.ones(4, 2), offsets, 1),
        lambda: count_pairs(clusters, offsets),
        lambda: cluster_sizes(clusters, offsets),
    ):
        with pytest.raises(ValueError, match="number of sentences 4"):
            call()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
def test_refuses_vectors_without_finite_products_and_names_the_document(value):
    vectors = torch.ones(6, 3)
    vectors[4, 1] = value
    with pytest.raises(ValueError, match="document 2 "):
        idc.cluster(vectors, np.array([0, 3, 3, 5, 6]), 1)


def test_accepts_large_vectors_whose_own_products_are_finite():
    vectors = torch.tensor([[1e19, 0], [1e19, 0], [0, 1e19], [0, 1e19]] * 3)
    assert not torch.isfinite(torch.linalg.vector_norm(vectors).square())
    assert idc.cluster(vectors, batch([4, 4, 4]), 1).tolist() == [0, 0, 1, 1] * 3


def test_refuses_other_bad_arguments():
    vectors, offsets = torch.ones(4, 2), np.array([0, 4])
    with pytest.raises(ValueError, match="k must be at least 1"):
        idc.cluster(vectors, offsets, 0)
    with pytest.raises(ValueError, match="matrix"):
        idc.cluster(vectors[0], np.array([0, 2]), 1)
    with pytest.raises(ValueError, match="one row of 4 sentences"):
        idc.cluster(vectors, offsets, 1, max_block_elements=3)
    with pytest.raises(TypeError, match="float16"):
        idc.cluster(vectors.half(), offsets, 1)
    for n in (0, 2):
        with pytest.raises(ValueError, match="exceeds matrix"):
            idc.connected_clusters(np.array([0]), np.array([2]), np.array([0, n]))
