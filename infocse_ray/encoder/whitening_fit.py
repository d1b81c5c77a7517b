"""The whitening of sentence vectors, from their moments, or of these and whole texts' together.

1. The covariance C of unit vectors is shrunk towards a multiple of the identity: C' = (1 - s) C + s mean(l) I, l its
   eigenvalues, s by oracle approximating shrinkage, at least 1e-3. A sample of fewer sentences than dimensions, too,
   then gives a map that is better than none.
2. C' = V diag(l') V', l' descending. x -> diag(l')^(-p/2) V' (x - mean) for a power p: 0 centres alone, 1 is
   BERT-whitening, between them directions of large variance keep a part of it.
3. The first d_out of these directions are those of most variance: fewer dimensions are a cut.

Su et al., Whitening Sentence Representations for Better Semantics and Faster Retrieval, 2021 (p = 1); Mu and
Viswanath, All-but-the-Top, 2018; Chen, Wiesel, Eldar and Hero, Shrinkage Algorithms for MMSE Covariance Estimation,
2010 (OAS, equation 23).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from infocse_ray.encoder.mixture import Mixture
from infocse_ray.encoder.moments import Moments
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.errors import ConstantVectors

POWERS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
"""What `encoder.whiten: auto` chooses from."""

SENTENCES_A_DIMENSION = 16
"""Sentences that a map is fitted on, for each dimension of the vectors; more don't make it better by what can be
measured (docs/results_by_sentences.md)."""

WHOLE_A_DIMENSION = 1
"""Whole texts likewise, where documents are read whole, too."""

_LEAST_SHRINKAGE = 1e-3
_CONSTANT = 1e-4
"""A sum of variances below this is rounding: that of unit vectors that differ is nearer to 1."""


def fit_whitening(moments: Moments | Mixture, power: float, dimensions: int | None = None) -> Whitening:
    """The map that whitens vectors of these moments; see `fit_whitenings`."""
    return fit_whitenings(moments, [power], dimensions)[0]


def fit_whitenings(
    moments: Moments | Mixture, powers: Sequence[float], dimensions: int | None = None
) -> list[Whitening]:
    """The maps that whiten vectors of these moments, one for each power.

    Args:
        moments: of d-dimensional vectors.
        powers: each from 0 (only centred) to 1 (all directions of equal variance) and beyond.
        dimensions: d_out, the directions of most variance that are kept; None: all d.

    Raises:
        ConstantVectors: all are the same.
        ValueError: there are no vectors; or `dimensions` are more than d.
    """
    d = moments.dimension
    if dimensions is not None and dimensions > d:
        raise ValueError(f"encoder.dimensions = {dimensions}: the encoder's vectors have {d}; set it to {d} or less")
    if not moments.count:
        raise ValueError("encoder.whiten: there is no sentence to fit the whitening on; set it to off or add documents")
    values, vectors = np.linalg.eigh(moments.covariance())
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    if values.sum() < _CONSTANT:
        raise ConstantVectors(
            f"encoder.whiten: the {moments.count:,} texts it is fitted on all have the same vector, or nearly; set "
            "encoder.pooling to another, such as mean, or encoder.whiten to off, or look into the corpus "
            "for what repeats"
        )
    values = _shrunk(values, moments.effective_count)
    mean = torch.from_numpy(moments.mean().astype(np.float32))
    maps = []
    for power in powers:
        matrix = (vectors * values ** (-power / 2.0))[:, :dimensions]
        # Lengths don't matter, for the map's output is normalised: near 1 they lose nothing in float32.
        matrix = np.ascontiguousarray(matrix / np.abs(matrix).max(), dtype=np.float32)
        maps.append(Whitening(mean, torch.from_numpy(matrix), power))
    return maps


def spectrum(moments: Moments | Mixture) -> np.ndarray:
    """The variances that a map of these moments levels: float64 [d], eigenvalues of the shrunk covariance, descending.

    Args:
        moments: of at least one vector.
    """
    values = np.linalg.eigvalsh(moments.covariance())
    return _shrunk(np.maximum(values[::-1], 0.0), moments.effective_count)


def _shrunk(values: np.ndarray, count: float) -> np.ndarray:
    share = shrinkage(values, count)
    return (1.0 - share) * values + share * values.mean()


def shrinkage(values: np.ndarray, count: float) -> float:
    """How much of the covariance's estimate is replaced by its mean eigenvalue, from 1e-3 to 1.

    Args:
        values: float [d], eigenvalues of the sample's covariance.
        count: vectors of equal weight in the sample.
    """
    d = len(values)
    total, squares = values.sum(), (values**2).sum()
    spread = squares - total**2 / d
    if spread <= 0.0:
        return 1.0
    estimate = ((1.0 - 2.0 / d) * squares + total**2) / ((count + 1.0 - 2.0 / d) * spread)
    return float(np.clip(estimate, _LEAST_SHRINKAGE, 1.0))
