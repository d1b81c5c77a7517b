"""Moments of sentence vectors: of any partition they are those of the whole, to the bit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infocse_ray.encoder.moments import Moments


def drawn(count: int, dimension: int = 6, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dimension, generator=torch.Generator().manual_seed(seed)) + 0.3


def same(a: Moments, b: Moments) -> bool:
    return a.count == b.count and bool((a.first == b.first).all() and (a.second == b.second).all())


@settings(max_examples=30)
@given(st.lists(st.integers(0, 200), max_size=5), st.randoms())
def test_moments_of_any_partition_in_any_order_are_those_of_the_whole(cuts: list[int], draw: object) -> None:
    vectors = drawn(200)
    edges = [0, *sorted(cuts), 200]
    parts = [Moments.of(vectors[a:b]) for a, b in pairwise(edges)]
    draw.shuffle(parts)  # pyright: ignore[reportAttributeAccessIssue]
    merged = Moments.none(6)
    for part in parts:
        merged = merged.merged(part)
    assert same(merged, Moments.of(vectors))


def test_they_are_exact_where_float32_sums_would_not_be() -> None:
    vectors = drawn(20_000, 4)
    shuffled = vectors[torch.randperm(len(vectors), generator=torch.Generator().manual_seed(1))]
    assert same(Moments.of(vectors), Moments.of(shuffled))


def test_mean_and_covariance_are_those_of_the_unit_vectors() -> None:
    vectors = drawn(500)
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1).numpy()
    moments = Moments.of(vectors)
    np.testing.assert_allclose(moments.mean(), unit.mean(0), atol=1e-6)
    np.testing.assert_allclose(moments.covariance(), np.cov(unit.T, bias=True), atol=1e-6)


def test_a_bf16_backbones_vectors_count_as_they_are() -> None:
    vectors = drawn(300).bfloat16()
    assert same(Moments.of(vectors), Moments.of(vectors.float()))


def test_bytes_bring_them_back() -> None:
    moments = Moments.of(drawn(10))
    assert same(Moments.from_bytes(moments.to_bytes()), moments)


def test_more_than_int64_adds_up_is_refused() -> None:
    many = Moments.none(2)._replace(count=2**22)
    with pytest.raises(ValueError, match="4,194,304"):
        many.merged(Moments.of(torch.ones(1, 2)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused(value: float) -> None:
    vectors = drawn(100)
    vectors[3, 2] = value
    with pytest.raises(ValueError, match=r"1 of 100 vectors that whitening is fitted on are not finite"):
        Moments.of(vectors)
