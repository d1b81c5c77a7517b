"""Deal the next batch while the current one trains: on a GPU, dealing thousands of pairs takes as long as a forward."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from infocse_ray.positives.stream import Pairs, PairStream


class Ahead:
    """A pair stream that is one batch ahead, in a thread of its own."""

    def __init__(self, stream: PairStream) -> None:
        self._stream = stream
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pairs")
        self._next = self._pool.submit(stream.next_batch)
        self._state: dict[str, np.ndarray] | None = None

    def next_batch(self, last: bool, keep_state: bool) -> Pairs:
        """The next global batch's rows of this worker.

        Args:
            last: none will be asked for after it.
            keep_state: remember the stream's state after this batch, for `state`.
        """
        batch = self._next.result()
        self._state = self._stream.state() if keep_state else None
        if not last:
            self._next = self._pool.submit(self._stream.next_batch)
        return batch

    def state(self) -> dict[str, np.ndarray]:
        """The stream's state after the batch that was taken last.

        Raises:
            RuntimeError: it was not kept.
        """
        if self._state is None:
            raise RuntimeError("take the batch with keep_state=True before asking for the state after it")
        return self._state

    def close(self) -> None:
        """Wait for what is being dealt and end the thread."""
        self._pool.shutdown(cancel_futures=True)
