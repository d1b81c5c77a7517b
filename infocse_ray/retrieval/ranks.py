"""Exact ranks of the true counterpart among all candidates, block by block, and the scores made of them.

1. A candidate counts against a query if it scores at least as much as the true one: ties count against.
2. rank = 1 + the number of such candidates; the true one is told apart by its key, not by its score, and so are the
   query's other true counterparts, which are no mistake to find and are left out (the field's filtered ranking).
3. Recall@k is the share of queries of rank <= k, MRR the mean of 1 / rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from infocse_ray.retrieval.intervals import interval, mean_of

CUTOFFS = (5, 10, 20)
_BLOCK_ELEMENTS = 2**24


def metrics_of(ranks: np.ndarray, candidates: int, documents: np.ndarray | None = None) -> dict[str, float]:
    """Recall@5/10/20 and MRR, each with its 95 % interval under `<name>_low` and `<name>_high`.

    Args:
        ranks: int64 [q], from 1.
        candidates: how many each query was ranked among.
        documents: int64 [q], the same number for queries of the same document; None: each has its own.
    """
    metrics: dict[str, float] = {}
    by_query = {f"recall@{k}": ranks <= k for k in CUTOFFS} | {"mrr": 1.0 / ranks}
    for name, scores in by_query.items():
        low, high = interval(scores, np.arange(len(ranks)) if documents is None else documents)
        metrics |= {name: mean_of(scores), f"{name}_low": low, f"{name}_high": high}
    return metrics | {"queries": len(ranks), "candidates": candidates}


def scores_in(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What `metrics_of` gave, of an entry that has more beside it."""
    names = {f"{name}{end}" for name in (*(f"recall@{k}" for k in CUTOFFS), "mrr") for end in ("", "_low", "_high")}
    return {name: value for name, value in entry.items() if name in names or name in ("queries", "candidates")}


def shown(scores: Mapping[str, float], metric: str) -> str:
    """A score for people, with its 95 % interval if it has one: 0.8204 (0.76 to 0.87)."""
    score = f"{scores[metric]:.4f}"
    if f"{metric}_low" not in scores:  # found by a version that kept none
        return score
    return f"{score} ({scores[f'{metric}_low']:.2f} to {scores[f'{metric}_high']:.2f})"


class Ranking(NamedTuple):
    """What each query found."""

    ranks: torch.Tensor
    """int64 [q], from 1."""
    top_keys: torch.Tensor
    """int64 [q, top], the keys of the candidates that scored highest, the highest first, left out those that a query is
    not ranked among; 0 where there are no more."""


class LeftOut(NamedTuple):
    """Pairs of a query and a candidate that it is not ranked among; a candidate is told by its key."""

    queries: torch.Tensor
    """int64 [pairs], row numbers of queries."""
    keys: torch.Tensor
    """int64 [pairs]."""

    def places_in(self, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows and columns (int64 [found] each) of the pairs in a matrix of all queries by candidates of `keys`."""
        keys, order = keys.sort()
        place = torch.searchsorted(keys, self.keys).clamp(max=len(keys) - 1)
        present = keys[place] == self.keys
        return self.queries[present], order[place[present]]


def rank_among(
    queries: torch.Tensor,
    true: torch.Tensor,
    true_keys: torch.Tensor,
    blocks: Iterable[tuple[torch.Tensor, torch.Tensor]],
    left_out: LeftOut | None = None,
    top: int = 1,
) -> Ranking:
    """Rank each query's true counterpart among the candidates of all blocks.

    Args:
        queries: float [q, d].
        true: float [q, d], the vector of each query's counterpart.
        true_keys: int64 [q], its key.
        blocks: candidates (float [c, d]) and their keys (int64 [c]); a key occurs once over all blocks.
        left_out: what a query is not ranked among; never its true counterpart.
        top: how many of what scored highest to tell.
    """
    true_scores = torch.einsum("qd,qd->q", queries, true)
    # Equal vectors may score a rounding error apart in a block product and in a row product: still a tie. The
    # error grows with the terms of the sum, not with the sum, which may be near 0.
    terms = torch.linalg.vector_norm(queries, dim=1) * torch.linalg.vector_norm(true, dim=1)
    bar = (true_scores - 16 * torch.finfo(queries.dtype).eps * terms)[:, None]
    ranks = torch.ones_like(true_keys)
    top_scores = true_scores.new_full((len(queries), top), -torch.inf)
    top_keys = true_keys.new_zeros((len(queries), top))
    step = max(1, _BLOCK_ELEMENTS // max(1, len(queries)))
    for candidates, keys in blocks:
        for start in range(0, len(candidates), step):
            block_keys = keys[start : start + step]
            scores = queries @ candidates[start : start + step].mT
            # Not `>=`: a score that is no number must count against the query, or a broken encoder is perfect.
            counted = ~(scores < bar) & (block_keys != true_keys[:, None])
            if left_out is not None:
                places = left_out.places_in(block_keys)
                counted[places] = False
                scores[places] = -torch.inf
            ranks += counted.sum(1)
            best, place = scores.topk(min(top, scores.shape[1]), dim=1)
            best, keys_there = torch.cat([top_scores, best], 1), torch.cat([top_keys, block_keys[place]], 1)
            # Stable: what is left out scores no more than there being nothing, which stands before it.
            top_scores, order = (part[:, :top] for part in best.sort(dim=1, descending=True, stable=True))
            top_keys = keys_there.gather(1, order)
    return Ranking(ranks, top_keys)
