"""The vector of a document: the mean of its sentences' vectors."""

from __future__ import annotations

import numpy as np
import torch


def mean_vectors(vectors: torch.Tensor, offsets: np.ndarray, normalize: bool) -> torch.Tensor:
    """Mean of the sentence vectors of each document.

    Args:
        vectors: float32 [sentences, d].
        offsets: int64 [documents + 1]; no document is empty.
        normalize: whether to scale the means to length 1 (where similarity is the cosine).

    Returns:
        float32 [documents, d].
    """
    sizes = torch.from_numpy(np.diff(offsets)).to(vectors.device)
    owner = torch.repeat_interleave(torch.arange(len(sizes), device=vectors.device), sizes)
    sums = torch.zeros(len(sizes), vectors.shape[1], dtype=vectors.dtype, device=vectors.device)
    means = sums.index_add_(0, owner, vectors) / sizes[:, None]
    return torch.nn.functional.normalize(means, dim=-1) if normalize else means


def halves(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut each document's sentences in two by alternation.

    Args:
        offsets: int64 [documents + 1]; documents of at least two sentences.

    Returns:
        Row numbers of the even and of the odd sentences, int64, each document's together and in order. The
        even half of a document of m sentences has (m + 1) // 2, the odd one m // 2.
    """
    rows = np.arange(offsets[-1])
    place = rows - np.repeat(offsets[:-1], np.diff(offsets))
    return rows[place % 2 == 0], rows[place % 2 == 1]
