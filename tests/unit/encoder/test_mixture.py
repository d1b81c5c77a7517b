"""Moments of sentences and whole texts together are those of vectors that weigh as their kind says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infocse_ray.encoder.mixture import Mixture
from infocse_ray.encoder.moments import Moments
from infocse_ray.encoder.whitening_fit import fit_whitening, shrinkage, spectrum


def unit(count: int, shift: float, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, 8)) + shift
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize(("texts", "share"), [(40, 0.5), (8, 0.5), (4, 0.25)])
def test_mean_and_covariance_are_weighted(texts: int, share: float) -> None:
    sentences, whole = unit(60, 0.5, 0), unit(texts, -0.5, 1)
    found = Mixture(Moments.of(torch.from_numpy(sentences)), Moments.of(torch.from_numpy(whole)))
    assert (found.share, found.count, found.dimension) == (share, 60 + texts, 8)
    every = np.concatenate([sentences, whole])
    weights = np.repeat([(1 - share) / 60, share / texts], [60, texts])
    np.testing.assert_allclose(found.mean(), weights @ every, atol=1e-6)
    np.testing.assert_allclose(found.covariance(), np.cov(every.T, aweights=weights, bias=True), atol=1e-6)
    assert found.effective_count == pytest.approx(1 / (weights**2).sum())


def test_the_covariance_is_shrunk_as_that_of_so_many_vectors_of_equal_weight() -> None:
    sentences, whole = (Moments.of(torch.from_numpy(unit(count, 0.5, count))) for count in (400, 8))
    mixture = Mixture(sentences, whole)
    values = np.linalg.eigvalsh(mixture.covariance())[::-1]
    share = shrinkage(values, mixture.effective_count)
    assert share > 1.2 * shrinkage(values, mixture.count)
    expected = (1 - share) * values + share * values.mean()
    np.testing.assert_allclose(spectrum(mixture), expected)
    lengths = fit_whitening(mixture, 1.0).matrix.norm(dim=0).numpy()
    np.testing.assert_allclose((lengths / lengths[0]) ** -2, expected / expected[0], rtol=1e-5)


def test_of_equal_weights_all_count() -> None:
    moments = [Moments.of(torch.from_numpy(unit(20, 0.0, seed))) for seed in (0, 1)]
    assert Mixture(*moments).effective_count == pytest.approx(40)
