"""The contrastive losses over the columns of every worker: Eq. 1's form, and every other method's.

1. Rows are this worker's, columns those of the whole global batch.
2. A column is no negative if it has the text of the row or of its positive, or is of its document where that is asked.
3. The loss is the cross entropy of the own positive among what is left, or a margin to each of it.
4. With a reference, the same contrast by the encoder that training began with, a share of the loss is the cross entropy
   of its softmax over the same columns (Li & Hoiem, Learning without Forgetting, 2017; over the texts of a batch as in
   Fang et al., SEED, 2021).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.utils.checkpoint import checkpoint

from infocse_ray.distributed.collectives import exchanged, gather, rank, workers
from infocse_ray.methods.contrast import Contrast

_BLOCK_ELEMENTS = 2**24


class Reference(NamedTuple):
    """What a part of the loss holds on to."""

    contrast: Contrast
    """The same one, of other vectors, without gradient."""
    share: float
    """Of the loss, over 0 and under 1."""


def contrastive_loss(contrast: Contrast, reference: Reference | None = None) -> torch.Tensor:
    """This worker's part of the loss of the global batch.

    Args:
        contrast: of this worker's part of the batch; every worker must call, with or without rows.
        reference: held on to, where the form is softmax; on every worker, or on none.

    Returns:
        A scalar. Averaged over workers (as DDP averages gradients) it is the mean over all rows of the batch: for
        `Idc`, of Eq. 1's negative logarithm.
    """
    rows, local = contrast.rows, contrast.columns
    sizes = exchanged([len(rows.texts), len(local.texts)])
    all_rows, counts = sum(count for count, _ in sizes), [count for _, count in sizes]
    held = () if reference is None else (reference.contrast.columns.vectors,)
    columns, ids, *known = gather(counts, local.vectors, torch.stack([local.documents, local.texts], 1), *held)
    documents, texts = ids.unbind(1)
    own = contrast.positive + sum(counts[: rank()])
    positive_texts = local.texts[contrast.positive]

    def scores_of(rows: torch.Tensor, columns: torch.Tensor, first: int, last: int) -> torch.Tensor:
        return rows[first:last] @ columns.mT / contrast.temperature

    def block(first: int, last: int) -> torch.Tensor:
        scores = scores_of(rows.vectors, columns, first, last)
        masked = rows.texts[first:last, None] == texts
        masked |= positive_texts[first:last, None] == texts
        if not contrast.same_document:
            masked |= rows.documents[first:last, None] == documents
        if contrast.besides is not None:
            masked |= _besides(contrast.besides, first, last, count, texts)
        place = torch.arange(last - first, device=own.device)
        if contrast.form == "margin":
            masked[place, own[first:last]] = True
            behind = (contrast.margin + scores - scores[place, own[first:last], None]).clamp_min(0.0)
            return (behind.masked_fill(masked, 0.0).sum(1) / (~masked).sum(1).clamp_min(1)).sum()
        masked[place, own[first:last]] = False
        scores = scores.masked_fill(masked, -torch.inf)
        loss = torch.nn.functional.cross_entropy(scores, own[first:last], reduction="none")
        if reference is None:
            return loss.sum()
        target = scores_of(reference.contrast.rows.vectors, known[0], first, last).masked_fill(masked, -torch.inf)
        # Where a column is no negative the logarithm is -inf, and its share 0.
        logs = scores.log_softmax(1).masked_fill(masked, 0.0)
        share = loss.new_full((last - first,), reference.share)
        if contrast.held is not None:
            share = share * contrast.held[first:last]
        return ((1.0 - share) * loss - share * (target.softmax(1) * logs).sum(1)).sum()

    count = len(rows.texts)
    step = max(1, _BLOCK_ELEMENTS // max(1, len(columns)))
    loss = rows.vectors.new_zeros(())
    for first in range(0, count, step):
        last = min(first + step, count)
        if step >= count:
            loss = loss + block(first, last)
        else:  # recomputed in backward: the score matrix is never there as a whole
            loss = loss + checkpoint(block, first, last, use_reentrant=False)
    if not count:  # the collectives above have a backward that the other workers wait for
        loss = loss + 0.0 * columns.sum() + 0.0 * rows.vectors.sum()
    return loss * (workers() / all_rows)


def _besides(
    besides: tuple[torch.Tensor, torch.Tensor], first: int, last: int, count: int, texts: torch.Tensor
) -> torch.Tensor:
    """Bool [last - first, columns]: which columns have one of the texts that go with a row, of `count` rows."""
    rows, own = besides
    if last - first < count:  # of all rows these are all; how many they are of some, a GPU would be waited for
        here = ((rows >= first) & (rows < last)).nonzero()[:, 0]
        rows, own = rows[here] - first, own[here]
    found = torch.zeros(last - first, len(texts), dtype=torch.int32, device=texts.device)
    step = max(1, _BLOCK_ELEMENTS // max(1, len(texts)))
    for some, of_some in zip(rows.split(step), own.split(step), strict=True):
        found.index_add_(0, some, (of_some[:, None] == texts).int())
    return found > 0
