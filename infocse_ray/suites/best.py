"""The best documents of each query, exactly, as blocks of documents go by; memory is that of a block."""

from __future__ import annotations

import numpy as np
import torch

_ELEMENTS = 2**24
"""Of a block of scores."""


class Best:
    """The k best of all documents seen so far, for each query."""

    def __init__(self, queries: torch.Tensor, k: int) -> None:
        """Begin with none.

        Args:
            queries: float32 [q, d].
            k: documents to keep for each.
        """
        self.queries, self.k = queries, k
        self.scores = torch.empty(len(queries), 0, device=queries.device)
        self.rows = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
        self.seen = 0

    def add(self, documents: torch.Tensor) -> None:
        """Look at more of them, float32 [n, d], numbered on; similarity is the inner product."""
        rows = torch.arange(self.seen, self.seen + len(documents), device=documents.device)
        step = max(1, _ELEMENTS // max(1, len(documents)))
        parts = [
            self._merged(begin, self.queries[begin : begin + step] @ documents.T, rows)
            for begin in range(0, len(self.queries), step)
        ]
        if parts:
            self.scores, self.rows = (torch.cat(part) for part in zip(*parts, strict=True))
        self.seen += len(documents)

    def _merged(self, begin: int, scores: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = slice(begin, begin + len(scores))
        scores = torch.cat([self.scores[before], scores], dim=1)
        rows = torch.cat([self.rows[before], rows.expand(len(scores), -1)], dim=1)
        best, place = scores.topk(min(self.k, scores.shape[1]), dim=1)
        return best, rows.gather(1, place)


def merged(parts: list[tuple[np.ndarray, np.ndarray]], k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best of what several blocks found.

    Args:
        parts: of each the scores (float32 [q, n]) and what was found (object [q, n]).
        k: how many to keep.

    Returns:
        The same of all, best first.
    """
    scores = np.concatenate([scores for scores, _ in parts], axis=1)
    found = np.concatenate([found for _, found in parts], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(found, order, axis=1)
