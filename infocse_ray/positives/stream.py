"""The pair stream: global batches of positive pairs, the same for any number of workers, exactly resumable.

1. The corpus is cut into lanes that share no document; a worker owns every W-th lane.
2. Every batch takes from each lane in proportion to the pairs it has left, so all lanes end their pass together.
3. What is left of a pass starts the batch that the next pass fills up: every batch is full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from infocse_ray.annotate.annotations import Annotations
from infocse_ray.corpus.tokens import Tokens, concatenate
from infocse_ray.positives.lane import Lane


class Pairs(NamedTuple):
    """A worker's part of a global batch."""

    doc_ids: list[str]
    """[n], the document of each pair."""
    keys: np.ndarray
    """int64 [n], hashes of the ids: pairs of one document have one key."""
    anchors: Tokens
    """n sentences."""
    positives: Tokens
    """n sentences; row i belongs to row i of the anchors."""
    counts: list[int]
    """[workers], how many pairs each worker has of this global batch."""


class PairStream:
    """Deals out global batches; this object only the rows of one worker."""

    def __init__(
        self,
        annotations: Annotations,
        shards: int,
        batch_size: int,
        seed: int,
        rank: int = 0,
        workers: int = 1,
    ) -> None:
        """Open the stream at its beginning.

        Args:
            annotations: where the pairs are.
            shards: of the annotations, a multiple of the number of lanes.
            batch_size: pairs in a global batch.
            seed: of the order of everything.
            rank: this worker, 0 <= rank < workers.
            workers: at most the number of lanes.

        Raises:
            ValueError: more workers than lanes, or not a pair to train on.
        """
        self._pairs = annotations.pairs_by_lane
        lanes = len(self._pairs)
        if workers > lanes:
            raise ValueError(
                f"train.num_workers = {workers}: the corpus was prepared with corpus.lanes = {lanes}; ask for at most "
                "as many workers or prepare it with more lanes"
            )
        if not self._pairs.sum():
            raise ValueError(
                "corpus.source: no document has two sentences in one cluster; there is nothing to train on"
            )
        self.batch_size, self._rank, self._workers = batch_size, rank, workers
        self._left = self._pairs.copy()
        self.passes = 0
        self._lanes = {
            lane: Lane(annotations, range(lane, shards, lanes), lane, seed) for lane in range(rank, lanes, workers)
        }

    def next_batch(self) -> Pairs:
        """This worker's rows of the next global batch."""
        owner = np.arange(len(self._pairs)) % self._workers
        counts = np.zeros(self._workers, dtype=np.int64)
        doc_ids: list[str] = []
        keys: list[int] = []
        anchors: list[Tokens] = []
        positives: list[Tokens] = []
        missing = self.batch_size
        avoid: set[int] = set()
        while missing:
            if not self._left.any():
                self.passes += 1
                self._left = self._pairs.copy()
                for lane in self._lanes.values():
                    lane.next_pass()
            left = int(self._left.sum())
            taken = min(missing, left)
            quota = apportion(self._left, taken)
            batches = left // self.batch_size
            for number, lane in self._lanes.items():
                for document, anchor, positive in lane.draw(int(quota[number]), batches, avoid):
                    doc_ids.append(document.doc_id)
                    keys.append(document.key)
                    anchors.append(document.sentences.take(np.array([anchor])))
                    positives.append(document.sentences.take(np.array([positive])))
            avoid = set(keys)
            self._left -= quota
            missing -= taken
            counts += np.bincount(owner, weights=quota, minlength=self._workers).astype(np.int64)
        empty = Tokens(np.zeros(0, np.uint16), np.zeros(1, np.int64))
        return Pairs(
            doc_ids,
            np.array(keys, dtype=np.int64),
            concatenate(anchors or [empty]),
            concatenate(positives or [empty]),
            counts.tolist(),
        )

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to go on: this worker's lanes and the plan's position."""
        return {"left": self._left.copy(), "passes": np.array(self.passes)} | {
            f"lane-{number}": lane.state() for number, lane in self._lanes.items()
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from the states of all workers merged, whatever their number was."""
        self._left = state["left"].copy()
        self.passes = int(state["passes"])
        for number, lane in self._lanes.items():
            lane.restore(state[f"lane-{number}"])


def apportion(left: np.ndarray, count: int) -> np.ndarray:
    """Share `count` out in proportion to `left`: whole parts, then one each to the largest remainders.

    Args:
        left: int64 [lanes], not all zero.
        count: at most the sum of `left`.

    Returns:
        int64 [lanes] that sums to `count`, nowhere more than `left`.
    """
    total = int(left.sum())
    # Python's integers: pairs times batch size may pass 64 bits.
    shares = [divmod(lane * count, total) for lane in left.tolist()]
    out = np.array([whole for whole, _ in shares], dtype=np.int64)
    largest = sorted(range(len(shares)), key=lambda lane: (-shares[lane][1], lane))
    out[largest[: count - int(out.sum())]] += 1
    return out
