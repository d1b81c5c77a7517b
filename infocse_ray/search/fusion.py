"""Vectors and words in one ranking: a convex combination of both scores (Bruch, Gai & Ingber 2023, TOIS 42(1)).

Similarities are scaled from the least to the greatest among the candidates to 0 to 1, BM25 from 0 to the greatest:
no shared word is 0 whatever the others share. Beside it, to be compared with, what others take: ranks, which need no
weight.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

_K = 60.0
"""The constant of reciprocal rank fusion, as its authors have it."""


def fused(similarity: np.ndarray, words: np.ndarray, weight: float) -> np.ndarray:
    """Scores of candidates for one query.

    Args:
        similarity: float [n], by vectors.
        words: float [n], BM25, not below 0.
        weight: of words, from 0 (vectors alone) to 1 (words alone).

    Returns:
        float64 [n], from 0 to 1.
    """
    least, most = similarity.min(initial=np.inf), similarity.max(initial=-np.inf)
    near = (similarity - least) / (most - least) if most > least else np.zeros(len(similarity))
    shared = words / max(words.max(initial=0.0), np.finfo(np.float64).tiny)
    return (1.0 - weight) * near + weight * shared


def reciprocal_ranks_fused(similarity: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Scores of candidates for one query by their two ranks alone (Cormack, Clarke & Buettcher 2009, SIGIR).

    Args:
        similarity: float [n], by vectors.
        words: float [n], BM25; 0, no shared word, has no rank and gives nothing.

    Returns:
        float64 [n]: 1 / (60 + rank), of both added up; of equal candidates all have the best rank.
    """
    by_vectors, by_words = (rankdata(-scores, method="min") for scores in (similarity, words))
    return 1.0 / (_K + by_vectors) + np.where(words > 0, 1.0 / (_K + by_words), 0.0)
