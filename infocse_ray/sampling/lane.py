"""A lane: one of the independent streams that a batch's examples come from.

1. Its shards, their row groups and their documents are visited in a seeded order, once a pass.
2. A pool of documents is open at a time; a draw takes examples from different documents, the likelier the more
   examples a document has left.
3. A document whose examples are dealt out leaves, and the next one enters: a pass deals every example once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from infocse_ray.corpus.store import Documents
from infocse_ray.methods.method import Document, Method
from infocse_ray.sampling.document import Dealt, mix
from infocse_ray.sampling.shards import OpenShard, Shards

_POOL = 256
_DRAWS_IN_POOL = 4


class Place(NamedTuple):
    """Where a document is in a lane."""

    shard: int
    group: int
    row: int


class Lane:
    """Deals out the examples of one lane, pass after pass."""

    def __init__(self, source: Shards, method: Method, shards: Sequence[int], number: int, seed: int) -> None:
        self._source, self._method, self._shards, self._number = source, method, list(shards), number
        self._seed = mix(seed, number)
        self._files: dict[int, OpenShard] = {}
        self._begin(0)

    def _begin(self, passes: int) -> None:
        self.passes, self.draws, self._visited = passes, 0, 0
        self._pool: list[tuple[Place, Dealt]] = []
        self._queue = self._documents()

    def _random(self, purpose: int, number: int) -> np.random.Generator:
        """A generator that depends on seed, lane, pass, purpose and number only."""
        key = np.array([self._seed, mix(self.passes, purpose)], dtype=np.uint64)
        counter = np.array([0, number, 0, 0], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))

    def _documents(self, skip: int = 0) -> Iterator[tuple[Place, Dealt]]:
        """The documents of the pass in its order, without the first `skip` of them."""
        visited = 0
        for shard in self._random(1, 0).permutation(self._shards).tolist():
            file = self._file(shard)
            for group in self._random(2, shard).permutation(file.groups()).tolist():
                rows = file.documents(group)
                if visited + rows <= skip:
                    visited += rows
                    continue
                documents = self._read(shard, group)
                for row in self._random(3, mix(shard, group)).permutation(rows).tolist():
                    visited += 1
                    if visited > skip:
                        yield Place(shard, group, row), self._document(documents, row)
            self._files.pop(shard).close()

    def _file(self, shard: int) -> OpenShard:
        if shard not in self._files:
            self._files[shard] = self._source.open(shard)
        return self._files[shard]

    def _read(self, shard: int, group: int) -> Documents:
        return self._file(shard).read(group)

    def _document(self, documents: Documents, row: int, used: int = 0) -> Dealt:
        begin, end = documents.offsets[row], documents.offsets[row + 1]
        doc_id, key = documents.doc_ids[row].as_py(), int(documents.keys[row])
        # A copy: the pool must not keep whole row groups alive.
        sentences = documents.sentences.take(np.arange(begin, end))
        clusters = None if documents.clusters is None else documents.clusters[begin:end].copy()
        labels = None if documents.counterparts is None else documents.counterparts.of(row)
        opened = self._method.open(Document(doc_id, key, sentences, clusters, labels))
        return Dealt(doc_id, key, opened, mix(self._seed, self.passes), used)

    def draw(self, count: int, batches: int, avoid: set[int]) -> list[tuple[Dealt, int, int]]:
        """The lane's examples for one batch, as (document, number of the example, its seed).

        Args:
            count: examples wanted, at most those the lane has left in this pass.
            batches: full ones that what is left of this pass makes.
            avoid: keys of documents not to use while others will do.
        """
        if not count:
            return []
        self._fill(max(_POOL, _DRAWS_IN_POOL * count))
        random = self._random(4, self.draws)
        self.draws += 1
        drawn: list[tuple[Dealt, int, int]] = []
        while len(drawn) < count:  # once, unless the pass ends with fewer documents than examples wanted
            if not self._pool:
                read = self._source.annotations or self._source.folder
                raise RuntimeError(
                    f"{read}: lane {self._number} has fewer examples than were counted; files "
                    "were changed: delete the folder and run again"
                )
            remaining = np.array([d.left for _, d in self._pool])
            # Weighted sampling without replacement (Efraimidis and Spirakis 2006).
            score = np.log(random.random(len(remaining))) / remaining
            # A document with as many examples left as there are batches must be in each, or it would be twice in one.
            must = remaining >= batches
            score[must] = remaining[must]
            score[[d.key in avoid for _, d in self._pool]] = -np.inf
            wanted = min(count - len(drawn), len(remaining))
            for place in np.sort(np.argsort(-score, kind="stable")[:wanted]):
                document = self._pool[place][1]
                drawn.append((document, *document.deal()))
            self._pool = [entry for entry in self._pool if entry[1].left]
            if len(drawn) < count:
                self._fill(count)
        return drawn

    def _fill(self, size: int) -> None:
        while len(self._pool) < size and (entry := next(self._queue, None)) is not None:
            self._visited += 1
            if entry[1].left:
                self._pool.append(entry)

    def next_pass(self) -> None:
        """Start over, in another order."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._begin(self.passes + 1)

    def state(self) -> np.ndarray:
        """int64 [1 + pool, 4]: (pass, draws, documents visited, 0), then (shard, group, row, used) of the pool."""
        pool = [(*place, document.used) for place, document in self._pool]
        return np.array([(self.passes, self.draws, self._visited, 0), *pool], dtype=np.int64)

    def restore(self, state: np.ndarray) -> None:
        """Continue from `state()`."""
        passes, draws, visited, _ = state[0].tolist()
        self.next_pass()
        self._begin(passes)
        self.draws, self._visited = draws, visited
        self._queue = self._documents(skip=visited)
        groups: dict[tuple[int, int], Documents] = {}
        for shard, group, row, used in state[1:].tolist():
            if (shard, group) not in groups:
                groups[shard, group] = self._read(shard, group)
            self._pool.append((Place(shard, group, row), self._document(groups[shard, group], row, used)))
