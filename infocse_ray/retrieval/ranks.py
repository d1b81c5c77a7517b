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

from infocse_ray.corpus.tokens import offsets_of
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


def scores_by(metric: str, ranks: np.ndarray) -> np.ndarray:
    """What each of the ranks (int, from 1) scores: 1 / rank, or whether it is among the first; float64, as many."""
    return 1.0 / ranks if metric == "mrr" else (ranks <= int(metric.removeprefix("recall@"))).astype(float)


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
    """What the queries of a document are not ranked among: all that is told for it, but for what a query is to find.

    It is told once a document, and scattered to the document's queries where a block of candidates has it: a document
    with thousands of counterparts would have millions of pairs of a query and a counterpart.
    """

    documents: torch.Tensor
    """int64 [n], row numbers in `offsets`."""
    keys: torch.Tensor
    """int64 [n], of the candidate that the document's queries are not ranked among."""
    offsets: torch.Tensor
    """int64 [documents + 1]: the queries of document i are queries[offsets[i]:offsets[i + 1]]."""
    queries: torch.Tensor
    """int64 [q], row numbers of queries."""

    @classmethod
    def of(cls, asker: np.ndarray, documents: np.ndarray, keys: np.ndarray) -> LeftOut:
        """Make it.

        Args:
            asker: int64 [q], the document of each query.
            documents: int64 [n], each of which is the document of some query.
            keys: int64 [n], the candidates that they are not ranked among.
        """
        columns = documents, keys, offsets_of(np.bincount(asker)), np.argsort(asker, kind="stable")
        return cls(*map(torch.from_numpy, columns))

    def places_in(self, keys: torch.Tensor, true_keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Where they are in a matrix of all queries by candidates.

        Args:
            keys: int64 [c], of the candidates.
            true_keys: int64 [q], of what each query is to find.

        Returns:
            Rows and columns, int64 [found] each.
        """
        keys, order = keys.sort()
        place = torch.searchsorted(keys, self.keys).clamp(max=len(keys) - 1)
        present = keys[place] == self.keys
        documents, columns = self.documents[present], order[place[present]]
        begin = self.offsets[documents]
        sizes = self.offsets[documents + 1] - begin
        within = torch.arange(int(sizes.sum()), device=keys.device) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        rows, columns = self.queries[begin.repeat_interleave(sizes) + within], columns.repeat_interleave(sizes)
        others = self.keys[present].repeat_interleave(sizes) != true_keys[rows]
        return rows[others], columns[others]


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
        left_out: what a query is not ranked among, but for its true counterpart.
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
                places = left_out.places_in(block_keys, true_keys)
                counted[places] = False
                scores[places] = -torch.inf
            ranks += counted.sum(1)
            best, place = scores.topk(min(top, scores.shape[1]), dim=1)
            best, keys_there = torch.cat([top_scores, best], 1), torch.cat([top_keys, block_keys[place]], 1)
            # Stable: what is left out scores no more than there being nothing, which stands before it.
            top_scores, order = (part[:, :top] for part in best.sort(dim=1, descending=True, stable=True))
            top_keys = keys_there.gather(1, order)
    return Ranking(ranks, top_keys)
