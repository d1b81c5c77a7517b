"""Two example streams in one: of every global batch so many examples come from the second.

Both deal by lanes, so that what is dealt depends on no number of workers and either goes on where it was.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from infocse_ray.corpus.tokens import Tokens, concatenate
from infocse_ray.methods.mixed import FIRST_LABEL
from infocse_ray.sampling.stream import Batch, ExampleStream

_LABELS = "labels-"
"""Before the names of the second's state."""


class Stream(Protocol):
    """What training takes its batches from."""

    def next_batch(self) -> Batch:
        """This worker's rows of the next global batch."""
        ...

    def texts(self, most: int) -> Tokens | None:
        """The different texts that the examples without labels of this worker's lanes are made of.

        None: more than `most`, or none.
        """
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to go on."""
        ...

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from the states of all workers merged, whatever their number was."""
        ...


class MixedStream:
    """Deals InfoCSE's pairs and, behind them in each batch, labelled examples."""

    def __init__(self, pairs: ExampleStream, labels: ExampleStream) -> None:
        """Take of both, from where they are.

        Args:
            pairs: by `Idc`.
            labels: by `Labelled`, of the same worker; its seed is another, or labels of a corpus that is labelled
                throughout would meet the pairs of their own documents.
        """
        self._pairs, self._labels = pairs, labels

    def next_batch(self) -> Batch:
        """This worker's rows of the next global batch."""
        pairs, labels = self._pairs.next_batch(), self._labels.next_batch()
        labels = labels._replace(owner=labels.owner + len(pairs.doc_ids), labels=labels.labels + FIRST_LABEL)
        arrays = {
            name: np.concatenate([getattr(pairs, name), getattr(labels, name)])
            for name in ("keys", "owner", "labels", "text_ids", "seeds")
        }
        return Batch(doc_ids=pairs.doc_ids + labels.doc_ids, texts=concatenate([pairs.texts, labels.texts]), **arrays)

    def texts(self, most: int) -> Tokens | None:
        """Those of the pairs."""
        return self._pairs.texts(most)

    def state(self) -> dict[str, np.ndarray]:
        """Everything needed to go on."""
        return self._pairs.state() | {f"{_LABELS}{name}": value for name, value in self._labels.state().items()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from the states of all workers merged, whatever their number was."""
        of_labels = {name: value for name, value in state.items() if name.startswith(_LABELS)}
        self._pairs.restore({name: value for name, value in state.items() if name not in of_labels})
        self._labels.restore({name.removeprefix(_LABELS): value for name, value in of_labels.items()})
