"""Documents whose examples are dealt, many at once, as arrays; and the texts that such examples are made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import NO_TOKENS, Tokens, offsets_of, places


class Opened(NamedTuple):
    """A few documents, with what a method keeps of them to deal their examples."""

    texts: Tokens
    """Of all documents, one after the other."""
    offsets: np.ndarray
    """int64 [documents + 1]; document i owns the texts offsets[i]:offsets[i + 1]."""
    examples: np.ndarray
    """int64 [documents]: a document's are numbered from 0."""
    notes: np.ndarray
    """int64 [texts, c], what a method notes about each text, counted within the document."""

    @classmethod
    def of(cls, documents: Documents, examples: np.ndarray, longest: int | None = None) -> Opened:
        """Documents' sentences as they are, or cut to `longest` tokens."""
        texts = documents.sentences if longest is None else documents.sentences.cut(longest)
        return cls(texts, documents.offsets, examples, np.zeros((len(texts), 0), np.int64))

    @property
    def sizes(self) -> np.ndarray:
        """int64 [documents]: texts of each."""
        return np.diff(self.offsets)

    def take(self, documents: np.ndarray) -> Opened:
        """These documents (int64), in that order, copied."""
        sizes = self.sizes[documents]
        rows = places(self.offsets[documents], sizes)
        return Opened(self.texts.take(rows), offsets_of(sizes), self.examples[documents], self.notes[rows])


class Views(NamedTuple):
    """The texts of n examples; those of one stand together, examples in order."""

    owner: np.ndarray
    """int64 [texts], the example each is of, from 0."""
    labels: np.ndarray
    """int64 [texts], which view of its example each is, numbered by the method."""
    texts: Tokens
    """Without special tokens."""

    @classmethod
    def alike(cls, labels: list[int], texts: Tokens) -> Views:
        """Of examples that all have views with these labels."""
        count = len(texts) // len(labels)
        return cls(np.repeat(np.arange(count), len(labels)), np.tile(np.array(labels, np.int64), count), texts)

    @classmethod
    def some(cls, opened: Opened, rows: np.ndarray, labels: np.ndarray, there: np.ndarray) -> Views:
        """Of whole texts, where examples differ in how many they have.

        Args:
            opened: has the texts.
            rows: int64 [n, most], which.
            labels: int64, broadcast to that.
            there: bool [n, most], the texts that exist.
        """
        labels = np.broadcast_to(labels, rows.shape)
        return cls(np.nonzero(there)[0], labels[there], opened.texts.take(rows[there]))


NO_VIEWS = Views(np.zeros(0, np.int64), np.zeros(0, np.int64), NO_TOKENS)
"""Of no example."""
