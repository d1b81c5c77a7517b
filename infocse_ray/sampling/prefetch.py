"""Deal the next batch while the current one trains: on a GPU, making thousands of views takes as long as a forward."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np

from infocse_ray.sampling.mixed_stream import Stream
from infocse_ray.sampling.stream import Batch

Ready = TypeVar("Ready")
Known = TypeVar("Known")


class Prefetcher(Generic[Ready, Known]):
    """An example stream that deals one batch ahead, and makes it ready, in a thread of its own."""

    def __init__(self, stream: Stream, prepare: Callable[[Batch, Known], Ready], known: Callable[[], Known]) -> None:
        """Begin with the first batch.

        Args:
            stream: deals the batches.
            prepare: makes of each what is asked for; called in the thread.
            known: what it has to know beside the batch, asked by whoever calls `deal_next`: what changes meanwhile
                changes nothing, however long the thread takes.
        """
        self._stream, self._prepare, self._known = stream, prepare, known
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="examples")
        self._next = self._pool.submit(self._deal, known())
        self._state: dict[str, np.ndarray] | None = None

    def _deal(self, known: Known) -> Ready:
        return self._prepare(self._stream.next_batch(), known)

    def next_batch(self) -> Ready:
        """The next global batch's rows of this worker; `deal_next` must follow, or it was the last."""
        return self._next.result()

    def deal_next(self, keep_state: bool) -> None:
        """Begin to deal the batch after the one that was taken last.

        Args:
            keep_state: remember the stream's state before it, for `state`.
        """
        self._state = self._stream.state() if keep_state else None
        self._next = self._pool.submit(self._deal, self._known())

    def state(self) -> dict[str, np.ndarray]:
        """The stream's state after the batch that was taken last.

        Raises:
            RuntimeError: it was not kept.
        """
        if self._state is None:
            raise RuntimeError("deal on with keep_state=True before asking for the state")
        return self._state

    def close(self) -> None:
        """Wait for what is being dealt and end the thread."""
        self._pool.shutdown(cancel_futures=True)
