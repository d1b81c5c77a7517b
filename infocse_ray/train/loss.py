"""The contrastive loss of Eq. 1 over the negatives of every worker.

1. Rows are this worker's anchors, columns the sentences of the whole global batch: positives and anchors.
2. A column is no negative if it is the anchor, of its document, or has the text of the anchor or its positive.
3. The loss is the cross entropy of the own positive among what is left (Eq. 1 sums over all n != a).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.utils.checkpoint import checkpoint

from infocse_ray.collective import gather, gather_rows, rank, workers

_BLOCK_ELEMENTS = 2**24


class Ids(NamedTuple):
    """What the masks compare: never embeddings, which differ under dropout."""

    document: torch.Tensor
    """int64 [n], equal for pairs of one document."""
    anchor: torch.Tensor
    """int64 [n], equal for equal texts."""
    positive: torch.Tensor
    """int64 [n]."""


def contrastive_loss(
    anchors: torch.Tensor, positives: torch.Tensor, ids: Ids, temperature: float, counts: list[int]
) -> torch.Tensor:
    """This worker's part of the loss of the global batch.

    Args:
        anchors: [n, d] vectors of this worker's anchors, with gradient.
        positives: [n, d] vectors of their positives.
        ids: of these n pairs.
        temperature: similarities are divided by it.
        counts: pairs of every worker; counts[rank] = n.

    Returns:
        A scalar. Averaged over workers (as DDP averages gradients) it is the mean of Eq. 1's negative logarithm
        over the whole batch. With equal counts it is the mean over the local rows.
    """
    total = sum(counts)
    columns = torch.cat([gather(positives, counts), gather(anchors, counts)])
    document, anchor, positive = (gather_rows(column, counts) for column in ids)
    start = sum(counts[: rank()])
    own = torch.arange(start, start + len(anchors), device=anchors.device)
    column_documents = torch.cat([document, document])
    column_texts = torch.cat([positive, anchor])

    def block(first: int, last: int) -> torch.Tensor:
        scores = anchors[first:last] @ columns.mT / temperature
        masked = ids.document[first:last, None] == column_documents
        masked |= ids.positive[first:last, None] == column_texts
        masked |= ids.anchor[first:last, None] == column_texts
        masked[torch.arange(last - first, device=own.device), own[first:last]] = False
        scores = scores.masked_fill(masked, -torch.inf)
        return torch.nn.functional.cross_entropy(scores, own[first:last], reduction="sum")

    step = max(1, _BLOCK_ELEMENTS // max(1, len(columns)))
    loss = anchors.new_zeros(())
    for first in range(0, len(anchors), step):
        last = min(first + step, len(anchors))
        if step >= len(anchors):
            loss = loss + block(first, last)
        else:  # recomputed in backward: the score matrix is never there as a whole
            loss = loss + checkpoint(block, first, last, use_reentrant=False)
    if not len(anchors):  # the collectives above have a backward that the other workers wait for
        loss = loss + 0.0 * columns.sum()
    return loss * (workers() / total)
