"""The example stream: global batches of examples, the same for any number of workers, exactly resumable.

1. The corpus is cut into lanes that share no document; a worker owns every W-th lane.
2. At any time all lanes have dealt the same part of their examples, to within one each, so they end a pass together.
3. What is left of a pass starts the batch that the next pass fills up: every batch is full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infocse_ray.corpus.tokens import Tokens, concatenate, places
from infocse_ray.methods.chance import mix, mixed, to_unit
from infocse_ray.methods.method import Method
from infocse_ray.methods.opened import NO_VIEWS, Opened
from infocse_ray.sampling.lane import Lane
from infocse_ray.sampling.pool import Drawn, Pool
from infocse_ray.sampling.texts import different_texts

if TYPE_CHECKING:
    from infocse_ray.sampling.examples import Examples


class Batch(NamedTuple):
    """A worker's part of a global batch: examples, each of a few texts that stand together."""

    doc_ids: list[str]
    """[examples], the document of each."""
    keys: np.ndarray
    """int64 [examples], hashes of the ids: examples of one document have one key."""
    owner: np.ndarray
    """int64 [texts], the example each text is of, from 0."""
    labels: np.ndarray
    """int64 [texts], which view each text is, numbered by the method."""
    texts: Tokens
    """The views, augmented as the method has it."""
    text_ids: np.ndarray
    """int64 [texts], equal for texts that were equal before that."""
    seeds: np.ndarray
    """uint64 [texts], what chance in each text may come from."""

    @classmethod
    def of_pairs(cls, doc_ids: list[str], keys: np.ndarray, anchors: Tokens, positives: Tokens) -> Batch:
        """A single worker's batch of pairs, labelled 0 and 1, as `Idc` makes them.

        Args:
            doc_ids: [n].
            keys: int64 [n].
            anchors: n texts.
            positives: n texts; row i belongs to row i of the anchors.
        """
        count = len(doc_ids)
        turns = np.arange(2 * count).reshape(2, count).T.reshape(-1)
        texts = concatenate([anchors, positives]).take(turns)
        owner, labels = np.repeat(np.arange(count), 2), np.tile([0, 1], count)
        return cls(doc_ids, keys, owner, labels, texts, texts.hashes(), np.zeros(2 * count, np.uint64))

    @classmethod
    def of_examples(
        cls,
        method: Method,
        opened: Opened | None,
        documents: np.ndarray,
        numbers: np.ndarray,
        seeds: np.ndarray,
        doc_ids: list[str],
        keys: np.ndarray,
    ) -> Batch:
        """Of n examples as their method makes them.

        Args:
            method: makes them.
            opened: by it; None where there is no example.
            documents: int64 [n], rows of `opened`.
            numbers: int64 [n], which of the document's.
            seeds: uint64 [n], all that chance in each may come from.
            doc_ids: [n], of the documents.
            keys: int64 [n], their hashes.
        """
        owner, labels, texts = NO_VIEWS
        if opened is not None:
            owner, labels, texts = method.views(opened, documents, numbers, seeds)
        begins = np.searchsorted(owner, np.arange(len(documents)))
        text_seeds = mixed(seeds[owner], np.arange(len(owner)) - begins[owner])
        augmented = method.augment(texts, labels, text_seeds)
        return cls(doc_ids, keys, owner, labels, augmented, texts.hashes(), text_seeds)


class ExampleStream:
    """Deals out global batches; this object only the rows of one worker."""

    def __init__(
        self,
        examples: Examples,
        method: Method,
        batch_size: int,
        seed: int,
        rank: int = 0,
        workers: int = 1,
    ) -> None:
        """Open the stream at its beginning.

        Args:
            examples: where they are, and how many each lane has.
            method: makes them.
            batch_size: examples in a global batch.
            seed: of the order of everything.
            rank: this worker, 0 <= rank < workers.
            workers: at most the number of lanes.

        Raises:
            ValueError: more workers than lanes, not an example to train on, or none in a batch.
        """
        if batch_size < 1:
            raise ValueError(f"a global batch of {batch_size} examples has none")
        self._examples = examples.by_lane
        lanes = len(self._examples)
        if workers > lanes:
            raise ValueError(
                f"train.num_workers = {workers}: the corpus was prepared with corpus.lanes = {lanes}; ask for at most "
                "as many workers or prepare it with more lanes"
            )
        if not self._examples.sum():
            raise ValueError("corpus.source: no document gives an example to train on")
        self._source, self._method = examples.source, method
        self.batch_size = batch_size
        self._left = self._examples.copy()
        self._seed = seed
        self.passes = 0
        self._lanes = [
            Lane(examples.source, method, examples.source.of_lane(lane), lane, seed)
            for lane in range(rank, lanes, workers)
        ]
        self._pool = Pool(self._lanes)

    def next_batch(self) -> Batch:
        """This worker's rows of the next global batch."""
        own = np.array([lane.number for lane in self._lanes], np.int64)
        drawn: list[Drawn] = []
        missing = self.batch_size
        avoid = np.zeros(0, np.int64)
        while missing:
            if not self._left.any():
                self.passes += 1
                self._left = self._examples.copy()
                for lane in self._lanes:
                    lane.begin(lane.passes + 1)
            left = int(self._left.sum())
            taken = min(missing, left)
            quota = due(self._examples, self._examples - self._left, taken, mix(self._seed, self.passes))
            drawn.append(self._pool.draw(quota[own], left // self.batch_size, avoid))
            if missing := missing - taken:
                avoid = self._pool.keys[np.concatenate([part.documents for part in drawn])]
            self._left -= quota
        batch = self._batch(*(np.concatenate(column) for column in zip(*drawn, strict=True)))
        self._pool.leave()
        return batch

    def _batch(self, documents: np.ndarray, numbers: np.ndarray) -> Batch:
        """These examples, int64 [n] each: rows of the pool, and which of the document's."""
        # Of the pass no less than of the document and the example.
        seeds = mixed(self._pool.chance[documents], numbers)
        ids, keys = self._pool.doc_ids[documents].tolist(), self._pool.keys[documents]
        opened = self._pool.opened if len(documents) else None
        return Batch.of_examples(self._method, opened, documents, numbers, seeds, ids, keys)

    def texts(self, most: int) -> Tokens | None:
        """The different texts of this worker's lanes; None: more than `most`, or none."""
        shards = (shard for lane in self._lanes for shard in self._source.of_lane(lane.number))
        return different_texts(self._source, self._method, shards, most)

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to go on: this worker's lanes and the plan's position.

        Of a lane, int64 [1 + open documents, 4]: (pass, draws, documents visited, 0), then (shard, row group, row,
        examples dealt) of its open documents.
        """
        lanes = {}
        for place, lane in enumerate(self._lanes):
            first = np.array([[lane.passes, lane.draws, lane.visited, 0]], np.int64)
            lanes[f"lane-{lane.number}"] = np.concatenate([first, self._pool.state(place)])
        return {"left": self._left.copy(), "passes": np.array(self.passes)} | lanes

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from the states of all workers merged, whatever their number was."""
        self._left = state["left"].copy()
        self.passes = int(state["passes"])
        self._pool.clear()
        for place, lane in enumerate(self._lanes):
            saved = state[f"lane-{lane.number}"]
            lane.begin(*saved[0, :3].tolist())
            for shard, group in np.unique(saved[1:, :2], axis=0).tolist():
                mine = saved[1:][(saved[1:, :2] == (shard, group)).all(1)]
                self._pool.enter(place, [lane.open(shard, group, mine[:, 2])], mine[:, 3])


def due(sizes: np.ndarray, dealt: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The next examples of a pass, in its one order over all lanes.

    Cut into as many equal parts as a lane has examples, the pass has one of the lane's in each part, at a place that is
    drawn. So at any time all lanes have dealt the same part of theirs, to within one example each, however small the
    batches; and lanes don't meet in batches by rule.

    Args:
        sizes: int64 [lanes], examples in a pass, not all zero.
        dealt: int64 [lanes], what earlier calls gave.
        count: how many, at most as many as are left.
        seed: of the pass.

    Returns:
        int64 [lanes], of each.
    """
    lanes = np.arange(len(sizes))
    # Both where it begins and where it ends, a lane is off by less than one example, and all together by one each.
    most = np.ceil((count + 2 * len(lanes)) * (sizes / sizes.sum())).astype(np.int64) + 2
    ahead = np.minimum(most, sizes - dealt)
    lane = lanes.repeat(ahead)
    number = places(dealt, ahead)
    place = (number + to_unit(mixed(mixed(seed, lane), number))) / sizes[lane]
    return np.bincount(lane[np.argsort(place, kind="stable")[:count]], minlength=len(lanes))
