"""Two example streams in one: of every global batch so many examples come from the second.

Both deal by lanes, so that what is dealt depends on no number of workers and either goes on where it was.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from infocse_ray.corpus.tokens import concatenate
from infocse_ray.methods.chance import mix
from infocse_ray.methods.mixed import FIRST_LABEL, Mixed
from infocse_ray.sampling.examples import Examples
from infocse_ray.sampling.stream import Batch, ExampleStream

_LABELS = "labels-"
"""Before the names of the second's state."""

_PURPOSE = 0x1ABE1
"""Sets the order of labels apart from that of pairs."""


class Stream(Protocol):
    """What training takes its batches from."""

    def next_batch(self) -> Batch:
        """This worker's rows of the next global batch."""
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to go on."""
        ...

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from the states of all workers merged, whatever their number was."""
        ...


class MixedStream:
    """Deals InfoCSE's pairs and, behind them in each batch, labelled examples."""

    def __init__(
        self,
        pairs: Examples,
        labels: Examples,
        method: Mixed,
        batch_size: int,
        seed: int,
        rank: int = 0,
        workers: int = 1,
    ) -> None:
        """Open both at their beginning.

        Args:
            pairs: where they are, and how many each lane has.
            labels: the same of labelled examples.
            method: makes them, and says how many of a batch are labelled ones.
            batch_size: examples in a global batch.
            seed: of the order of everything.
            rank: this worker, 0 <= rank < workers.
            workers: at most the number of lanes.

        Raises:
            ValueError: no room for pairs in a batch, or as for `ExampleStream`.
        """
        if not 0 < method.quota < batch_size:
            raise ValueError(f"{method.quota} of a batch's {batch_size} examples can't be labelled ones among pairs")
        self._pairs = ExampleStream(pairs, method.pairs, batch_size - method.quota, seed, rank, workers)
        self._labels = ExampleStream(labels, method.labels, method.quota, mix(seed, _PURPOSE), rank, workers)

    def next_batch(self) -> Batch:
        """This worker's rows of the next global batch."""
        pairs, labels = self._pairs.next_batch(), self._labels.next_batch()
        labels = labels._replace(owner=labels.owner + len(pairs.doc_ids), labels=labels.labels + FIRST_LABEL)
        arrays = {
            name: np.concatenate([getattr(pairs, name), getattr(labels, name)])
            for name in ("keys", "owner", "labels", "text_ids", "seeds")
        }
        return Batch(doc_ids=pairs.doc_ids + labels.doc_ids, texts=concatenate([pairs.texts, labels.texts]), **arrays)

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to go on."""
        return self._pairs.state() | {f"{_LABELS}{name}": value for name, value in self._labels.state().items()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from the states of all workers merged, whatever their number was."""
        of_labels = {name: value for name, value in state.items() if name.startswith(_LABELS)}
        self._pairs.restore({name: value for name, value in state.items() if name not in of_labels})
        self._labels.restore({name.removeprefix(_LABELS): value for name, value in of_labels.items()})
