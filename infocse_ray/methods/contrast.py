"""A method's contrast: rows, columns, and which column is each row's positive; the trainer computes the loss."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch

from infocse_ray.encoder.on_device import sent_up


class Side(NamedTuple):
    """Rows or columns of a contrast, with what the masks compare: never vectors, which differ under dropout."""

    vectors: torch.Tensor
    """float [n, d]."""
    documents: torch.Tensor
    """int64 [n], equal for views of one document."""
    texts: torch.Tensor
    """int64 [n], equal for equal texts."""

    def and_(self, other: Side) -> Side:
        """This side's entries, then the other's."""
        return Side(*(torch.cat(pair) for pair in zip(self, other, strict=True)))


class Contrast(NamedTuple):
    """Every row is to score its own positive above all other columns, those of all workers.

    A column is no negative of a row if it has the row's own text (so a row that is a column too is not compared
    with itself) or that of its positive, or, unless `same_document`, if it is of the row's document.
    """

    rows: Side
    columns: Side
    positive: torch.Tensor
    """int64 [rows], which of this worker's columns."""
    temperature: float
    """Inner products are divided by it."""
    same_document: bool = False
    """Whether columns of the row's document stay as negatives."""
    form: Literal["softmax", "margin"] = "softmax"
    """`softmax`: cross entropy of the positive. `margin`: mean over negatives of max(0, margin - (positive's score -
    negative's))."""
    margin: float = 0.0
    besides: tuple[torch.Tensor, torch.Tensor] | None = None
    """int64 [m] rows and int64 [m] texts: columns of these texts are no negatives of these rows either."""
    held: torch.Tensor | None = None
    """Bool [rows]: whose loss holds on to a reference, where there is one; None: every row's."""


class Encoded(NamedTuple):
    """A worker's part of a batch, its texts encoded."""

    vectors: torch.Tensor
    """float [texts, d], with gradient; texts of one example stand together, examples in order."""
    documents: torch.Tensor
    """int64 [texts]."""
    owner: torch.Tensor
    """int64 [texts], the example each text is of, from 0."""
    labels: torch.Tensor
    """int64 [texts], which view of its example each text is, numbered by the method."""
    texts: torch.Tensor
    """int64 [texts], equal for texts that were equal before they were augmented."""
    known: np.ndarray
    """`labels` on the host, which would wait for the device to say how many texts have which."""

    def where(self, *labels: int) -> torch.Tensor:
        """int64: the texts with these labels, in order."""
        return sent_up(np.flatnonzero(np.isin(self.known, labels)), self.labels.device)

    def only(self, first: int, end: int) -> Encoded:
        """Examples whose views are numbered from `first` to before `end`: views from 0, examples anew, in order.

        No example has other views beside these.
        """
        rows = self.where(*range(first, end))
        known = self.known[(self.known >= first) & (self.known < end)] - first
        owner = self.owner[rows]
        begins = owner.new_zeros(len(rows))
        begins[1:] = owner[1:] != owner[:-1]
        side = self.side(rows)
        return Encoded(side.vectors, side.documents, begins.cumsum(0), self.labels[rows] - first, side.texts, known)

    def side(self, rows: torch.Tensor) -> Side:
        """These texts as rows or columns."""
        return Side(self.vectors[rows], self.documents[rows], self.texts[rows])

    def means(self, rows: torch.Tensor, groups: torch.Tensor, count: int, normalize: bool) -> Side:
        """Means of groups of texts.

        Args:
            rows: int64 [m], texts; each group has at least one.
            groups: int64 [m], the group of each, 0 <= group < count; all of one document.
            count: groups.
            normalize: scale the means to length 1.

        Returns:
            `count` entries; those made of the same texts, in whatever order, have the same text.
        """
        zeros = self.vectors.new_zeros(count, self.vectors.shape[1])
        sizes = sizes_of(groups, count)
        means = zeros.index_add(0, groups, self.vectors[rows]) / sizes[:, None]
        if normalize:
            means = torch.nn.functional.normalize(means, dim=-1)
        documents = self.documents.new_zeros(count).scatter(0, groups, self.documents[rows])
        # A sum of hashes; the group's size keeps a mean of one text apart from nothing: it is that text.
        texts = self.texts.new_zeros(count).index_add(0, groups, self.texts[rows])
        return Side(means, documents, texts)


def sizes_of(groups: torch.Tensor, count: int) -> torch.Tensor:
    """int64 [count], how often each number is there. torch.bincount waits for a GPU to say which is the largest."""
    return groups.new_zeros(count).index_add(0, groups, torch.ones_like(groups))


def two_sided(first: Side, second: Side, temperature: float, same_document: bool = False) -> Contrast:
    """NT-Xent (Chen et al. 2020): each view is to find its other among the 2n - 1 other views of the batch.

    Args:
        first: n views.
        second: their others, in the same order.
        temperature: cosines are divided by it.
        same_document: as in `Contrast`.
    """
    both = unit(first).and_(unit(second))
    count = len(first.texts)
    place = torch.arange(2 * count, device=both.texts.device)
    return Contrast(both, both, (place + count) % max(2 * count, 1), temperature, same_document)


def unit(side: Side) -> Side:
    """The side with vectors of length 1, so that inner products are cosines."""
    return side._replace(vectors=torch.nn.functional.normalize(side.vectors, dim=-1))


def own(count: int, device: torch.device) -> torch.Tensor:
    """int64 [count]: row i's positive is column i."""
    return torch.arange(count, device=device)
