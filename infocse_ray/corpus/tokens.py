"""Ragged arrays of token ids: one flat array of values and one of offsets, as Arrow keeps them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_MIX = np.uint64(0x9E3779B97F4A7C15)


class Tokens(NamedTuple):
    """n rows of token ids without special tokens."""

    values: np.ndarray
    """Unsigned integers [sum of lengths]."""
    offsets: np.ndarray
    """int64 [n + 1]; row i is values[offsets[i]:offsets[i + 1]]."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], dtype: npt.DTypeLike) -> Tokens:
        """Rows of token ids, of an integer type."""
        values = np.fromiter(itertools.chain.from_iterable(rows), dtype)
        return cls(values, offsets_of(np.array([len(row) for row in rows], np.int64)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """int64 [n]."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> Tokens:
        """The given rows, in that order, as a new array."""
        return spans(self.values, self.offsets[:-1][rows], self.lengths[rows])

    def cut(self, length: int) -> Tokens:
        """Every row's first `length` ids."""
        return self.shortened(np.minimum(self.lengths, length))

    def shortened(self, lengths: np.ndarray) -> Tokens:
        """Every row's first ids, as many as int64 [n] `lengths` says, none more than the row has."""
        return spans(self.values, self.offsets[:-1], lengths)

    def hashes(self) -> np.ndarray:
        """int64 [n]: equal rows have equal hashes; others differ but for a chance of about 2^-64 a pair."""
        lengths = self.lengths
        position = (np.arange(len(self.values)) - np.repeat(self.offsets[:-1], lengths)).astype(np.uint64)
        with np.errstate(over="ignore"):
            mixed = _scramble(self.values.astype(np.uint64) + _scramble(position * _MIX + _MIX))
            total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
            sums = total[self.offsets[1:]] - total[self.offsets[:-1]]
            return _scramble(sums + lengths.astype(np.uint64) * _MIX).view(np.int64)


NO_TOKENS = Tokens(np.zeros(0, np.uint8), np.zeros(1, np.int64))
"""No row, of a type that gives way to any other where rows are put together."""


def spans(values: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> Tokens:
    """Spans of a stream of token ids as rows, copied: int64 [n] where each begins, int64 [n] its length."""
    return Tokens(values[places(begins, lengths)], offsets_of(lengths))


def places(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """int64 [sum of lengths]: begins[0], begins[0] + 1, ..., for each of n ranges one after the other."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - ends + lengths, lengths)


def concatenate(parts: list[Tokens]) -> Tokens:
    """Rows of all parts, one after the other."""
    lengths = np.concatenate([p.lengths for p in parts])
    return Tokens(np.concatenate([p.values for p in parts]), offsets_of(lengths))


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """int64 [n + 1] running total of `lengths`, from 0."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def owners(offsets: np.ndarray) -> np.ndarray:
    """int64 [offsets[-1] - offsets[0]]: i, for each of those from offsets[i] to before offsets[i + 1]."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def bounded_ranges(offsets: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of documents that together have at most `most` sentences, or are one larger document."""
    first = 0
    while first < len(offsets) - 1:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1)
        yield first, last
        first = last


def flat(column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The values of a list column and its int64 offsets [rows + 1], copying nothing but the offsets."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    offsets = array.offsets.to_numpy().astype(np.int64)
    return array.values.slice(offsets[0], offsets[-1] - offsets[0]), offsets - offsets[0]


def tokens_of(column: pa.ChunkedArray | pa.Array) -> Tokens:
    """A list column of token ids."""
    values, offsets = flat(column)
    return Tokens(values.to_numpy(), offsets)


def sample_hashes(seed: int, *columns: np.ndarray) -> np.ndarray:
    """Hashes that draw a sample: as if at random, yet whoever computes them gets the same.

    Args:
        seed: another one gives other hashes.
        columns: int [n] each, that tell n things apart, such as a document's key and a sentence's number.

    Returns:
        int64 [n], evenly spread over all values.
    """
    rows = np.stack([np.full(len(columns[0]), seed, np.int64), *(c.astype(np.int64) for c in columns)], axis=1)
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    return Tokens(rows.view(np.uint64).ravel(), offsets).hashes()


def drawn(hashes: np.ndarray, share: float) -> np.ndarray:
    """Bool [n]: what is drawn by its hash, where about `share` of all is; a larger share has that of a smaller one."""
    return (hashes.view(np.uint64) >> np.uint64(11)) * 2.0**-53 < share


def _scramble(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele et al. 2014): every input bit changes half of the output bits."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
