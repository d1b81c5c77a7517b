"""The documents that are open in a worker's lanes, and draws of examples from them.

1. Of each lane so many documents are open; a draw takes examples from different ones, the likelier the more examples
   a document has left. One with more left than there are batches gives several at a time from the beginning: held back,
   they would fill the last batches of a pass, which then had few documents, and so few negatives.
2. A document whose examples are dealt out leaves, and others enter: a pass deals every example once.
3. What is drawn follows from the documents that are open, whatever the order they lie in, and of a lane from its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from infocse_ray.annotate.open_documents import AHEAD as _AHEAD
from infocse_ray.annotate.open_documents import DRAWS_IN_POOL as _DRAWS_IN_POOL
from infocse_ray.annotate.open_documents import POOL as _POOL
from infocse_ray.methods.chance import mix, mixed, to_unit
from infocse_ray.methods.opened import Opened
from infocse_ray.sampling.growing import Column, OpenedColumns
from infocse_ray.sampling.lane import Entering, Lane
from infocse_ray.sampling.order import numbers

_AVOIDED = -1e3
"""Added to the score of a document that another will do for; others' are above -40, the logarithm of a draw."""

_DOC_IDS, _KEYS, _PLACES, _CHANCE, _STEPS, _SHIFTS, _LEFT, _LANE = range(8)
"""Columns: those of `Entering`, the examples not dealt yet, and whose they are, of the lanes here."""


class Drawn(NamedTuple):
    """Examples of a batch."""

    documents: np.ndarray
    """int64 [n], rows of the pool."""
    numbers: np.ndarray
    """int64 [n], which of the document's."""


class Pool:
    """The open documents of some lanes."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = list(lanes)
        self.clear()

    def clear(self) -> None:
        """Close all documents."""
        self._documents: OpenedColumns | None = None
        self._columns = [Column(np.zeros(0, kind)) for kind in (object, np.int64, np.int64, np.uint64)]
        self._columns += [Column(np.zeros(0, kind)) for kind in (np.int64, np.int64, np.int64, np.uint16)]
        self._columns[_PLACES] = Column(np.zeros((0, 3), np.int64))

    @property
    def opened(self) -> Opened:
        """The documents, with some that are done; until more enter."""
        assert self._documents is not None
        return self._documents.opened

    @property
    def doc_ids(self) -> np.ndarray:
        """Object [documents], of str."""
        return self._columns[_DOC_IDS].rows

    @property
    def keys(self) -> np.ndarray:
        """int64 [documents], hashes of the ids."""
        return self._columns[_KEYS].rows

    @property
    def chance(self) -> np.ndarray:
        """uint64 [documents], what tells their draws in this pass apart."""
        return self._columns[_CHANCE].rows

    @property
    def _left(self) -> np.ndarray:
        return self._columns[_LEFT].rows

    @property
    def _lane(self) -> np.ndarray:
        return self._columns[_LANE].rows

    def enter(self, lane: int, entering: Sequence[Entering], used: np.ndarray | None = None) -> None:
        """Documents of a lane enter.

        Args:
            lane: its place among the lanes here.
            entering: the documents.
            used: int64, examples of each that have been dealt; None: none has.
        """
        for one in entering:
            if self._documents is None:
                self._documents = OpenedColumns(one.opened)
            else:
                self._documents.add(one.opened)
            left = one.opened.examples - (0 if used is None else used)
            for column, rows in zip(self._columns, [*one[1:], left, np.full(len(left), lane, np.uint16)], strict=True):
                column.add(rows)

    def draw(self, quota: np.ndarray, batches: int, avoid: np.ndarray) -> Drawn:
        """The examples of one batch.

        Args:
            quota: int64 [lanes], examples wanted of each, at most those it has left in this pass.
            batches: full ones that what is left of this pass makes.
            avoid: int64, keys of documents not to use while others will do.

        Raises:
            RuntimeError: a lane has fewer examples than were counted.
        """
        seeds = np.zeros(len(self._lanes), np.uint64)
        for place in np.flatnonzero(quota).tolist():
            lane = self._lanes[place]
            seeds[place] = mix(lane.draws)
            lane.draws += 1
        drawn, missing, size = [], quota, np.maximum(_POOL, _DRAWS_IN_POOL * quota)
        while missing.any():  # once, unless the pass ends with fewer documents than examples wanted
            self._fill(np.where(missing, size, 0))
            drawn.append(self._once(missing, batches, avoid, mixed(seeds, len(drawn))))
            missing = missing - np.bincount(self._lane[drawn[-1].documents], minlength=len(missing))
            size = quota
        if not drawn:
            return Drawn(np.zeros(0, np.int64), np.zeros(0, np.int64))
        return Drawn(*(np.concatenate(column) for column in zip(*drawn, strict=True)))

    def _fill(self, size: np.ndarray) -> None:
        """Open documents of the lanes that have fewer open than `size` (int64 [lanes]) says."""
        there = self._open_of_each()
        for lane in np.flatnonzero(there < size).tolist():
            self.enter(lane, self._lanes[lane].take(int(size[lane] + size[lane] // _AHEAD - there[lane])))
        there = self._open_of_each()
        for lane in np.flatnonzero((there == 0) & (size > 0)).tolist():
            raise self._lanes[lane].fewer()

    def _open_of_each(self) -> np.ndarray:
        """int64 [lanes]: open documents."""
        return np.bincount(self._lane[self._left > 0], minlength=len(self._lanes))

    def _once(self, missing: np.ndarray, batches: int, avoid: np.ndarray, seeds: np.ndarray) -> Drawn:
        """As many as `missing`, a document once, or as often as it must be in every batch from now on."""
        wanted = missing > 0
        rows = np.flatnonzero((self._left > 0) & wanted[self._lane])
        rows = rows.repeat(np.maximum(1, self._left[rows] // (batches + 1)))  # and a last one that isn't full
        lane, left, chance = self._lane[rows], self._left[rows], self.chance[rows]
        # Weighted sampling without replacement (Efraimidis and Spirakis 2006).
        draw = to_unit(mixed(chance ^ seeds[lane]))
        score = np.log(draw) / left
        avoided = np.isin(self.keys[rows], avoid) if len(avoid) else np.zeros(len(rows), bool)
        # A document with as many examples left as there are batches must be in each, or it would be more often in one.
        must = (left >= batches) & ~avoided
        score[must] = (left + draw)[must]
        score[avoided] += _AVOIDED
        order = np.argsort(-score, kind="stable")
        order = order[np.argsort(lane[order], kind="stable")]
        offsets = np.searchsorted(lane[order], np.arange(len(missing)))
        chosen = rows[order[np.arange(len(order)) - offsets[lane[order]] < missing[lane[order]]]]
        examples = self.opened.examples[chosen]
        steps, shifts = (self._columns[column].rows[chosen] for column in (_STEPS, _SHIFTS))
        found = Drawn(chosen, numbers(examples, steps, shifts, examples - self._left[chosen] + _times_before(chosen)))
        np.subtract.at(self._left, chosen, 1)
        return found

    def leave(self) -> None:
        """Let the documents go that are done, if they are the most; rows of the pool are others then."""
        rows = np.flatnonzero(self._left > 0)
        if self._documents is not None and 2 * len(rows) <= len(self._left):
            self._documents = OpenedColumns(self.opened.take(rows))
            self._columns = [Column(column.rows[rows]) for column in self._columns]

    def state(self, lane: int) -> np.ndarray:
        """int64 [documents, 4]: shard, row group, row and examples dealt of a lane's open documents."""
        rows = np.flatnonzero((self._left > 0) & (self._lane == lane))
        used = self.opened.examples[rows] - self._left[rows] if len(rows) else rows
        return np.concatenate([self._columns[_PLACES].rows[rows], used[:, None]], axis=1)


def _times_before(rows: np.ndarray) -> np.ndarray:
    """int64 [n]: how often each of n numbers was there before."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    times = np.empty(len(rows), np.int64)
    times[order] = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
    return times
