"""The whitening that is fitted: by the plain formula, of few sentences, of sentences that don't differ."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infocse_ray.encoder.moments import Moments
from infocse_ray.encoder.whitening_fit import POWERS, fit_whitening, fit_whitenings, shrinkage


def drawn(count: int, dimension: int = 12, seed: int = 0) -> torch.Tensor:
    """Vectors of unequal variances around a mean."""
    generator = torch.Generator().manual_seed(seed)
    scales = torch.logspace(0, -1.5, dimension)
    return torch.randn(count, dimension, generator=generator) * scales + 0.5


def plain(vectors: torch.Tensor, power: float) -> np.ndarray:
    """Unit vectors whitened by the formula, with the covariance as shrunk as ours."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1).numpy()
    mean, covariance = unit.mean(0), np.cov(unit.T, bias=True)
    share = shrinkage(np.linalg.eigvalsh(covariance), len(unit))
    d = len(mean)
    shrunk = (1 - share) * covariance + share * np.trace(covariance) / d * np.eye(d)
    values, axes = np.linalg.eigh(shrunk)
    whitened = (unit - mean) @ (axes * values ** (-power / 2)) @ axes.T
    return whitened / np.linalg.norm(whitened, axis=1, keepdims=True)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 1.25])
def test_cosines_are_those_of_the_plain_formula(power: float) -> None:
    vectors = drawn(400)
    ours = fit_whitening(Moments.of(vectors), power)(vectors).numpy()
    theirs = plain(vectors, power)
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=2e-4)


def test_maps_of_several_powers_take_one_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    moments, decomposed, plain_eigh = Moments.of(drawn(400)), [], np.linalg.eigh
    alone = [fit_whitening(moments, power, 5) for power in POWERS]

    def eigh(matrix: np.ndarray) -> object:
        decomposed.append(matrix)
        return plain_eigh(matrix)

    monkeypatch.setattr(np.linalg, "eigh", eigh)
    together = fit_whitenings(moments, POWERS, 5)
    assert len(decomposed) == 1
    assert [one.power for one in together] == list(POWERS)
    pairs = zip(alone, together, strict=True)
    assert all(torch.equal(a.matrix, b.matrix) and torch.equal(a.mean, b.mean) for a, b in pairs)


def test_power_1_makes_all_directions_vary_alike() -> None:
    vectors = torch.nn.functional.normalize(drawn(5_000), dim=-1)
    whitening = fit_whitening(Moments.of(vectors), 1.0)
    out = (vectors - whitening.mean) @ whitening.matrix
    variances = np.linalg.eigvalsh(np.cov(out.numpy().T))
    assert variances.max() / variances.min() < 1.2
    before = np.linalg.eigvalsh(np.cov(vectors.numpy().T))
    assert before.max() / before.min() > 10


def test_fewer_dimensions_are_those_of_most_variance() -> None:
    vectors = drawn(400)
    whole, cut = (fit_whitening(Moments.of(vectors), 0.5, d) for d in (None, 4))
    assert cut.dimension == 4
    ratio = cut.matrix / whole.matrix[:, :4]
    torch.testing.assert_close(ratio, ratio[:1, :1].expand_as(ratio))  # but for the scale, which doesn't matter
    unit = torch.nn.functional.normalize(vectors, dim=-1) - whole.mean
    axes = torch.nn.functional.normalize(whole.matrix, dim=0)
    variances = (unit @ axes).var(0)
    assert (variances.diff() <= 1e-6).all()


def test_fewer_sentences_than_dimensions_give_a_map_that_blows_up_no_noise() -> None:
    few, others = drawn(6, 40), drawn(300, 40, seed=1)
    whitening = fit_whitening(Moments.of(few), 1.0)
    gains = torch.linalg.svdvals(whitening.matrix)
    assert torch.isfinite(whitening(others)).all()
    assert gains.max() / gains.min() < 10  # the ridge of 1e-3 alone would give more than 30


def test_shrinkage_fades_with_the_number_of_sentences() -> None:
    values = np.logspace(0, -2, 50)
    shares = [shrinkage(values, count) for count in (5, 50, 500, 50_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.2
    assert shares[-1] == 1e-3


def test_one_sentence_repeated_is_refused_in_one_line() -> None:
    with pytest.raises(
        ValueError,
        match=r"encoder\.whiten: the 50 .* same vector, .* or encoder\.whiten to off",
    ):
        fit_whitening(Moments.of(drawn(1).repeat(50, 1)), 0.5)


def test_no_sentence_and_too_many_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"encoder\.whiten: there is no sentence"):
        fit_whitening(Moments.none(3), 0.5)
    with pytest.raises(ValueError, match=r"encoder\.dimensions = 13: .* have 12"):
        fit_whitening(Moments.of(drawn(30)), 0.5, 13)
