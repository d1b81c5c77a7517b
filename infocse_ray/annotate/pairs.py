"""What the pairs of IDC are like: how alike, against pairs that are not trained on, and how many are no edge.

1. A cluster of c sentences gives c(c-1)/2 pairs (Eq. 4), but only c-1 edges are needed to hold it together: the other
   pairs are *chained*, a like b, b like c.
2. A positive that is no more alike than two sentences of different documents are now and then is hard to tell from a
   negative. `unrelated` is the share of pairs below the 95 % quantile of such.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch

from infocse_ray.annotate.clusters import count_pairs
from infocse_ray.annotate.idc import connected_clusters, graph_edges
from infocse_ray.corpus.tokens import owners

KINDS = ("edges", "chained", "rest of the document", "other documents")
QUANTILES = (0.25, 0.5, 0.75)

_DRAWN = 200_000  # pairs looked at of each kind at most
_ALL_PAIRS = 300  # sentences of a document up to which its pairs are listed; of a longer one as many are drawn
_RELATED = 0.95


class PairKind(NamedTuple):
    """Pairs of one kind."""

    name: str
    """One of `KINDS`; the first two are trained on."""
    pairs: int
    cosines: tuple[float, ...]
    """At `QUANTILES`; empty if there are no pairs."""
    unrelated: float
    """Share that is less alike than 1 in 20 pairs of different documents."""


class Pairs(NamedTuple):
    """Kinds of pairs, and the trained ones to show."""

    kinds: list[PairKind]
    shown: np.ndarray
    """int64 [m, 2], sentences of in-cluster pairs, by cosine ascending."""
    cosines: np.ndarray
    """float64 [m], of those."""


def look_at_pairs(vectors: torch.Tensor, offsets: np.ndarray, k: int, seed: int) -> Pairs:
    """Cluster documents and compare their pairs.

    Args:
        vectors: float32 [n, d], the sentences of all documents, as the encoder gives them.
        offsets: int64 [documents + 1]; document i owns the rows offsets[i]:offsets[i + 1].
        k: the K of Eq. 3.
        seed: of the pairs drawn where a kind has more than 200,000, or a document more than 300 sentences.

    Returns:
        Counts are exact; cosines are of pairs drawn.
    """
    edges = graph_edges(vectors, offsets, k)
    clusters = connected_clusters(edges.source, edges.target, offsets)

    n, sizes, random = len(vectors), np.diff(offsets), np.random.default_rng(seed)
    linked = np.stack([edges.source, edges.target], axis=1)
    inside = np.concatenate([_inside(int(a), int(b), random) for a, b in itertools.pairwise(offsets)])
    inside = _thinned(inside, len(KINDS) * _DRAWN, random)
    together = clusters[inside[:, 0]] == clusters[inside[:, 1]]
    is_edge = np.isin(inside @ (n, 1), linked @ (n, 1))
    owner = owners(offsets)
    across = random.integers(n, size=(_DRAWN, 2))
    across = across[owner[across[:, 0]] != owner[across[:, 1]]]

    trained = int(count_pairs(clusters, offsets).sum())
    every = int((sizes * (sizes - 1) // 2).sum())
    counts = [len(linked), trained - len(linked), every - trained, n * (n - 1) // 2 - every]
    drawn = [linked, inside[together & ~is_edge], inside[~together], across]
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1).cpu().numpy()
    cosines = [_cosines(unit, _thinned(pairs, _DRAWN, random)) for pairs in drawn]
    bar = float(np.quantile(cosines[-1], _RELATED)) if len(cosines[-1]) else -1.0
    shown = _thinned(inside[together], _DRAWN, random)
    alike = _cosines(unit, shown)
    order = np.argsort(alike, kind="stable")
    kinds = [_kind(*row, bar) for row in zip(KINDS, counts, cosines, strict=True)]
    return Pairs(kinds, shown[order], alike[order])


def _inside(start: int, end: int, random: np.random.Generator) -> np.ndarray:
    """int64 [m, 2], the first below the second: pairs of rows start..end-1, all of them if they are few."""
    size = end - start
    if size <= _ALL_PAIRS:
        return np.stack(np.triu_indices(size, 1), axis=1) + start
    drawn = np.sort(random.integers(start, end, size=(_ALL_PAIRS**2 // 2, 2)), axis=1)
    return np.unique(drawn[drawn[:, 0] < drawn[:, 1]], axis=0)


def _thinned(pairs: np.ndarray, most: int, random: np.random.Generator) -> np.ndarray:
    return pairs if len(pairs) <= most else pairs[np.sort(random.choice(len(pairs), most, replace=False))]


def _cosines(unit: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    cosines = np.empty(len(pairs))
    for start in range(0, len(pairs), 50_000):
        rows = pairs[start : start + 50_000]
        cosines[start : start + 50_000] = np.einsum("nd,nd->n", unit[rows[:, 0]], unit[rows[:, 1]])
    return cosines


def _kind(name: str, count: int, cosines: np.ndarray, bar: float) -> PairKind:
    if not len(cosines):
        return PairKind(name, count, (), 0.0)
    return PairKind(
        name, count, tuple(float(q) for q in np.quantile(cosines, QUANTILES)), float((cosines < bar).mean())
    )
