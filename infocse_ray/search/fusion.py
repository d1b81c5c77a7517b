"""Vectors and words in one ranking: a convex combination of both scores (Bruch, Gai & Ingber 2023, TOIS 42(1)).

Similarities are scaled from the least to the greatest among the candidates to 0 to 1, BM25 from 0 to the greatest:
no shared word is 0 whatever the others share. Beside it, to be compared with, what others take: ranks, which need no
weight.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from scipy.stats import rankdata

_K = 60.0
"""The constant of reciprocal rank fusion, as its authors have it."""


def similarity_with(candidates: pa.Table, best_sentence: float) -> np.ndarray:
    """Similarities of documents, of which a part is their best sentence's: float [n].

    Args:
        candidates: n, with `similarity`, and `best_sentence` where that counts: NaN where there is none, and the
            document's stands for it.
        best_sentence: what it counts, from 0 to 1.
    """
    similarity = candidates["similarity"].to_numpy()
    if not best_sentence:
        return similarity
    best = candidates["best_sentence"].to_numpy()
    return (1.0 - best_sentence) * similarity + best_sentence * np.where(np.isnan(best), similarity, best)


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


def reciprocal_ranks_fused(scores: np.ndarray) -> np.ndarray:
    """Scores of candidates for one query by their ranks alone (Cormack, Clarke & Buettcher 2009, SIGIR).

    Args:
        scores: float [rankings, n]; NaN where a ranking doesn't have a candidate, which then gets nothing by it.

    Returns:
        float64 [n]: 1 / (60 + rank), of all rankings added up; of equal candidates all have the best rank.
    """
    fused = np.zeros(scores.shape[1])
    for one in scores:
        there = ~np.isnan(one)
        fused[there] += 1.0 / (_K + rankdata(-one[there], method="min"))
    return fused
