"""Rank the questions of all workers among the candidates of all workers, and make scores of the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from infocse_ray.distributed.collectives import each_worker, gather_rows, rank, row_counts, workers
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE
from infocse_ray.retrieval.ranks import LeftOut, metrics_of, rank_among


class Scores(NamedTuple):
    """The scores of a validation."""

    metrics: dict[str, float]
    """Of all workers' questions; the same on every worker."""
    ranks: np.ndarray
    """int64 [questions], of this worker's."""
    top_keys: np.ndarray
    """int64 [questions, top], the keys of what each of them found first, 0 where there was no more."""


def score_among_all(
    queries: torch.Tensor,
    true: torch.Tensor,
    true_keys: np.ndarray,
    asker: np.ndarray,
    candidates: Callable[[int, int], torch.Tensor],
    candidate_keys: np.ndarray,
    left_out: LeftOut,
    top: int = 1,
) -> Scores:
    """Rank this worker's questions; candidates go round a block at a time, then are gone.

    Args:
        queries: float32 [questions, d].
        true: float32 [questions, d], what each must find.
        true_keys: int64 [questions].
        asker: int64 [questions], this worker's document that asks.
        candidates: the vectors (float32 [end - begin, d]) of this worker's candidates begin:end.
        candidate_keys: int64 [candidates]; a key is on one worker only.
        left_out: what a question is not ranked among.
        top: how many of what a question found first to tell.

    Every worker of the process group must call.

    Raises:
        ValueError: no worker has a question.
    """
    device = queries.device
    keys = torch.from_numpy(candidate_keys).to(device)
    counts = row_counts(keys)

    def blocks() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for begin in range(0, max(counts), SENTENCES_AT_ONCE):
            end = begin + SENTENCES_AT_ONCE
            vectors = candidates(*np.minimum((begin, end), len(keys)).tolist())
            here = [min(max(count - begin, 0), SENTENCES_AT_ONCE) for count in counts]
            yield from zip(each_worker(vectors, here), each_worker(keys[begin:end], here), strict=True)

    pairs = LeftOut(*(column.to(device) for column in left_out))
    ranking = rank_among(
        queries, true, torch.from_numpy(true_keys).to(device), blocks(), pairs if len(pairs.keys) else None, top
    )
    # Documents are told by worker and number.
    asked = torch.stack([ranking.ranks, torch.from_numpy(asker).to(device) * workers() + rank()], dim=1)
    everyone, documents = gather_rows(asked, row_counts(asked)).cpu().numpy().T
    if not len(everyone):
        raise ValueError(
            "corpus: the split has no document to validate on; name a column of counterparts or add documents"
        )
    return Scores(
        metrics_of(everyone, sum(counts), documents), ranking.ranks.cpu().numpy(), ranking.top_keys.cpu().numpy()
    )
