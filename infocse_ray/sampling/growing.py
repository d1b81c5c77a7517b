"""Opened documents in one place that others are added to and that those which are done leave: a stream's open ones."""

from __future__ import annotations

import numpy as np

from infocse_ray.corpus.tokens import Tokens
from infocse_ray.methods.opened import Opened


class Column:
    """An array that grows at its end; room grows by half, so that a row is copied a few times."""

    def __init__(self, rows: np.ndarray) -> None:
        """Begin with these rows, which are not copied."""
        self._room, self._size = rows, len(rows)

    @property
    def rows(self) -> np.ndarray:
        """All of them; until more are added."""
        return self._room[: self._size]

    def add(self, rows: np.ndarray) -> None:
        """Add rows at the end."""
        size, kind = self._size + len(rows), np.result_type(self._room, rows)
        if size > len(self._room) or (kind != self._room.dtype and kind.itemsize > self._room.itemsize):
            room = np.empty((size + size // 2, *self._room.shape[1:]), kind)
            room[: self._size] = self.rows
            self._room = room
        self._room[self._size : size] = rows
        self._size = size


class OpenedColumns:
    """Opened documents that grow at their end."""

    def __init__(self, opened: Opened) -> None:
        """Begin with these documents."""
        (values, ends), offsets, examples, notes = opened
        self._values, self._ends, self._offsets = Column(values), Column(ends), Column(offsets)
        self._examples, self._notes = Column(examples), Column(notes)

    @property
    def opened(self) -> Opened:
        """All documents; until more are added."""
        texts = Tokens(self._values.rows, self._ends.rows)
        return Opened(texts, self._offsets.rows, self._examples.rows, self._notes.rows)

    def add(self, more: Opened) -> None:
        """Add documents at the end."""
        for ends, added in ((self._ends, more.texts.offsets), (self._offsets, more.offsets)):
            ends.add(added[1:] + ends.rows[-1])
        self._values.add(more.texts.values)
        self._examples.add(more.examples)
        self._notes.add(more.notes)
