"""Pairs of sentences of a document by how alike they are, and by what the clustering made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

KINDS = ("kept", "chained", "dropped")
"""Joined by an edge of the graph; in one cluster without one; not in one cluster."""

BIN_EDGES = np.linspace(-1.0, 1.0, 41).round(2)


def count_pairs_by_cosine(vectors: torch.Tensor, clusters: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Count the pairs of a document's texts.

    Args:
        vectors: float32 [n, d], of different texts.
        clusters: int [n].
        edges: int [e, 2], numbers of texts, the first below the second.

    Returns:
        int64 [3, 40], a row for each of `KINDS`, a column for each bin of the cosine.
    """
    unit = torch.nn.functional.normalize(vectors.double(), dim=-1)
    cosines = (unit @ unit.T).clamp(-1.0, 1.0).cpu().numpy()
    low, high = np.triu_indices(len(clusters), 1)
    linked = np.zeros(cosines.shape, dtype=bool)
    linked[edges[:, 0], edges[:, 1]] = True
    kept, together = linked[low, high], clusters[low] == clusters[high]
    of_kinds = (kept, together & ~kept, ~together & ~kept)
    return np.stack([np.histogram(cosines[low, high][mask], BIN_EDGES)[0] for mask in of_kinds])


def histogram(counts: np.ndarray) -> dict[str, Any]:
    """int64 [3, 40] as `explorer.json` has it: `bin_edges`, and the counts of each of `KINDS`."""
    return {"bin_edges": BIN_EDGES.tolist(), **dict(zip(KINDS, counts.tolist(), strict=True))}
