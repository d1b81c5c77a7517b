"""Documents of many lengths as blocks that one matrix product serves: padding, and vectors that occur twice."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from infocse_ray.corpus.tokens import owners

_GATHER_ELEMENTS = {"cpu": 2**19, "cuda": 2**26}
"""One padded block of vectors, by kind of device: 2 MiB of float32, so that the product reads it from a CPU's cache;
256 MiB, so that a GPU has enough to do and its host little to ask for."""
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Duplicates(NamedTuple):
    """Sentences whose vector an earlier sentence of their document has."""

    slot: torch.Tensor
    """int64 [duplicates], the document's place in the order of the blocks, ascending."""
    column: torch.Tensor
    """int64 [duplicates], the sentence's index in its document."""
    first: torch.Tensor
    """int64 [duplicates], the index of the first sentence with the same vector."""


class Block(NamedTuple):
    """Some documents of similar length, each padded to the m sentences of the longest."""

    vectors: torch.Tensor
    """[documents, m, d]; padding repeats a document's last sentence."""
    begin: torch.Tensor
    """int64 [documents, 1, 1], a document's first row in the batch."""
    size: torch.Tensor
    """int64 [documents, 1, 1], number of sentences of each document."""
    slots: slice
    """The documents' places in the order of the blocks."""
    padded: bool
    """Whether any document has fewer than m sentences."""
    duplicates: Duplicates
    """Those of these documents; `slot` from 0."""
    rows_at_once: int

    def rows(self) -> Iterator[slice]:
        """The sentence indices 0 to m - 1, in pieces whose similarities fit the bound."""
        m = self.vectors.shape[1]
        for begin in range(0, m, self.rows_at_once):
            yield slice(begin, min(begin + self.rows_at_once, m))

    def share_weights(self, weight: torch.Tensor) -> None:
        """Give equal vectors equal weights in [documents, rows, m].

        The product may round equal columns differently, and a tie must not depend on that.
        """
        slot, column, first = self.duplicates
        if len(slot):
            weight[slot, :, column] = weight[slot, :, first]

    def exclude(self, weight: torch.Tensor, rows: slice) -> None:
        """Set to -inf what is no pair of two sentences of a document: a sentence with itself, and padding."""
        weight.diagonal(rows.start, 1, 2).fill_(-torch.inf)
        if self.padded:
            columns = torch.arange(weight.shape[2], device=weight.device)
            weight.masked_fill_(columns >= self.size, -torch.inf)


class Blocks:
    """The documents of at least two sentences, the longest first, cut into blocks.

    Attributes:
        order: int64 [documents], which documents these are.
    """

    def __init__(self, vectors: torch.Tensor, offsets: np.ndarray, max_elements: int) -> None:
        """Lay out a batch.

        Args:
            vectors: [n, d], contiguous.
            offsets: int64 [documents + 1]; document i owns the rows offsets[i]:offsets[i + 1].
            max_elements: of the similarities that are computed at once, at most; at least one row of every document.
        """
        sizes = np.diff(offsets)
        self.order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes > 1)]
        self._vectors, self._max_elements = vectors, max_elements
        self._begins, self._sizes = offsets[self.order], sizes[self.order]
        duplicates = duplicates_of(vectors, offsets, self.order)
        self._duplicate_slots = duplicates[0]
        self._duplicates = Duplicates(*(torch.from_numpy(column).to(vectors.device) for column in duplicates))

    def __iter__(self) -> Iterator[Block]:
        begin, size = (self.by_document(values) for values in (self._begins, self._sizes))
        for first, last in _ranges(self._sizes, self._vectors.shape[1], self._max_elements, self._vectors.device):
            m, slots = int(self._sizes[first]), slice(first, last)
            some = slice(*np.searchsorted(self._duplicate_slots, [first, last]).tolist())
            slot, column, original = (values[some] for values in self._duplicates)
            yield Block(
                self._padded(begin[slots], size[slots], slots),
                begin[slots],
                size[slots],
                slots,
                bool(self._sizes[last - 1] != m),
                Duplicates(slot - first, column, original),
                min(m, self._max_elements // ((last - first) * m)),
            )

    def by_document(self, values: np.ndarray) -> torch.Tensor:
        """[documents] in the order of the blocks as [documents, 1, 1] on the vectors' device."""
        return torch.from_numpy(values).to(self._vectors.device)[:, None, None]

    def _padded(self, begin: torch.Tensor, size: torch.Tensor, slots: slice) -> torch.Tensor:
        count, m, d = slots.stop - slots.start, int(self._sizes[slots.start]), self._vectors.shape[1]
        first, last = int(self._begins[slots.start]), int(self._begins[slots.stop - 1])
        if self._sizes[slots.stop - 1] == m and last - first == (count - 1) * m:
            return self._vectors[first : first + count * m].view(count, m, d)  # they lie there as they are needed
        index = torch.arange(m, device=self._vectors.device)
        rows = begin[:, 0] + torch.minimum(index, size[:, 0] - 1)
        return self._vectors.index_select(0, rows.view(-1)).view(count, m, d)


def _ranges(sizes: np.ndarray, d: int, max_elements: int, device: torch.device) -> Iterator[tuple[int, int]]:
    """Ranges of documents, sorted by size descending, to pad to their first and multiply at once."""
    first, ascending, at_once = 0, -sizes, _GATHER_ELEMENTS.get(device.type, _GATHER_ELEMENTS["cpu"])
    while first < len(sizes):
        m = int(sizes[first])
        # Within an eighth of the largest: at most a quarter of the product is padding.
        similar = int(np.searchsorted(ascending, -(m - m // 8), side="right"))
        fit = min(max_elements // (m * m), at_once // (m * max(d, 1)))
        last = min(similar, first + max(fit, 1))
        yield first, last
        first = last


def duplicates_of(
    vectors: torch.Tensor, offsets: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find sentences whose vector occurs earlier in their document.

    Args:
        vectors: [n, d].
        offsets: int64 [documents + 1].
        order: int64, the documents of at least two sentences.

    Returns:
        The columns of `Duplicates`, int64 each, with the document's place in `order` as its slot.
    """
    d = vectors.shape[1]
    document = owners(offsets)
    # Two components tell most vectors apart, so whole rows are read only for the few that agree on them.
    # Adding zero turns -0 into 0, which equals it but has other bytes.
    sample = (vectors[:, :: max(1, d // 2)].cpu() + 0.0).numpy()
    key = document.astype(np.uint64)
    for column in sample.view(np.dtype(f"u{sample.itemsize}")).T:
        key = key * _HASH_FACTOR + column
    ordered = np.sort(key)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    row = np.flatnonzero(np.isin(key, repeated)) if len(repeated) else np.zeros(0, np.int64)
    if len(row):
        whole = (vectors[torch.from_numpy(row).to(vectors.device)].cpu() + 0.0).numpy()
        whole = np.concatenate([document[row, None].view(np.uint8), whole.view(np.uint8)], axis=1)
        _, seen, inverse = np.unique(whole.view(f"V{whole.shape[1]}")[:, 0], return_index=True, return_inverse=True)
        kept = row[seen][inverse]
        row, kept = row[kept != row], kept[kept != row]
    else:
        kept = row
    rank = np.empty(len(offsets) - 1, np.int64)
    rank[order] = np.arange(len(order))
    slot, begin = rank[document[row]], offsets[document[row]]
    by_slot = np.argsort(slot, kind="stable")
    return slot[by_slot], (row - begin)[by_slot], (kept - begin)[by_slot]
