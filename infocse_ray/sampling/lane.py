"""A lane: one of the independent streams that a batch's examples come from.

Its shards, their row groups and their documents are visited in a seeded order, once a pass; those that give examples
are opened a row group at a time and handed on a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from infocse_ray.methods.chance import mix, mixed, permutation
from infocse_ray.methods.method import Method
from infocse_ray.methods.opened import Opened
from infocse_ray.sampling.order import orders
from infocse_ray.sampling.shards import OpenShard, Shards


class Entering(NamedTuple):
    """Documents of a lane, opened to deal their examples."""

    opened: Opened
    doc_ids: np.ndarray
    """object [n], of str."""
    keys: np.ndarray
    """int64 [n], hashes of the ids."""
    places: np.ndarray
    """int64 [n, 3]: shard, row group, row."""
    chance: np.ndarray
    """uint64 [n], what tells the documents' draws in this pass apart."""
    steps: np.ndarray
    """int64 [n], with `shifts` the order of each document's examples."""
    shifts: np.ndarray
    """int64 [n]."""

    def take(self, rows: np.ndarray) -> Entering:
        """These, copied."""
        return Entering(self.opened.take(rows), *(column[rows] for column in self[1:]))


class Lane:
    """Visits the documents of one lane, pass after pass.

    Attributes:
        passes: whole ones before this.
        draws: batches that were drawn from in this pass.
        visited: documents that were visited in this pass, those without examples too.
    """

    def __init__(self, source: Shards, method: Method, shards: Sequence[int], number: int, seed: int) -> None:
        self._source, self._method, self._shards, self.number = source, method, np.array(shards), number
        self._seed = mix(seed, number)
        self._files: dict[int, OpenShard] = {}
        self.begin(0)

    def begin(self, passes: int, draws: int = 0, visited: int = 0) -> None:
        """Start a pass, or go on in it where so many batches were drawn from and so many documents visited."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self.passes, self.draws, self.visited = passes, draws, visited
        self._groups = self._in_order(visited)
        self._waiting: Entering | None = None
        self._first_waiting, self._visited_with = 0, np.zeros(0, np.int64)

    def take(self, count: int) -> list[Entering]:
        """The next `count` documents that give examples; fewer where the pass ends."""
        taken: list[Entering] = []
        while count:
            if self._waiting is None:
                if (group := next(self._groups, None)) is None:
                    break
                shard, number, rows, visited = group
                opened = self.open(shard, number, rows)
                giving = np.flatnonzero(opened.opened.examples)
                self._visited_with, self._first_waiting = visited + 1 + giving, 0
                self._waiting = opened if len(giving) == len(rows) else opened.take(giving)
            begin, end = self._first_waiting, min(self._first_waiting + count, len(self._visited_with))
            if end > begin:
                taken.append(self._waiting.take(np.arange(begin, end)))
                self.visited = int(self._visited_with[end - 1])
            count -= end - begin
            self._first_waiting = end
            if end == len(self._visited_with):
                self._waiting = None
        return taken

    def _in_order(self, skip: int) -> Iterator[tuple[int, int, np.ndarray, int]]:
        """Shard, row group, its rows in their order, and the documents of the pass before these.

        Args:
            skip: documents of the pass to leave out.
        """
        before = 0
        for shard in self._shards[self._order(len(self._shards), 1)].tolist():
            file = self._file(shard)
            groups = np.array(file.groups(), np.int64)
            for group in groups[self._order(len(groups), 2, shard)].tolist():
                count = file.documents(group)
                if (left_out := max(0, skip - before)) < count:
                    yield shard, group, self._order(count, 3, shard, group)[left_out:], before + left_out
                before += count
            self._files.pop(shard).close()

    def _order(self, count: int, *purpose: int) -> np.ndarray:
        return permutation(mix(self._seed, self.passes, *purpose), count)

    def _file(self, shard: int) -> OpenShard:
        if shard not in self._files:
            self._files[shard] = self._source.open(shard)
        return self._files[shard]

    def open(self, shard: int, group: int, rows: np.ndarray) -> Entering:
        """Documents of a row group (int64 rows), in that order."""
        documents = self._file(shard).read(group)
        opened, keys = self._method.open(documents).take(rows), documents.keys[rows]
        doc_ids = np.array(documents.doc_ids.take(pa.array(rows)).to_pylist(), object)
        places = np.stack([np.full(len(rows), shard), np.full(len(rows), group), rows], axis=1)
        chance = mixed(self._seed, self.passes, *places.T)
        steps, shifts = orders(np.maximum(opened.examples, 1), mix(self._seed, self.passes), keys)
        return Entering(opened, doc_ids, keys, places, chance, steps, shifts)

    def fewer(self) -> RuntimeError:
        """That the lane has not what it was said to have."""
        read = self._source.annotations or self._source.folder
        return RuntimeError(
            f"{read}: lane {self.number} has fewer examples than were counted; files were changed: "
            "delete the folder and run again"
        )
