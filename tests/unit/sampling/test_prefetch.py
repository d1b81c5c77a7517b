"""The prefetcher: what a batch is made ready with is what was known when it was asked for."""

from __future__ import annotations

import threading
from typing import Any

from infocse_ray.sampling.prefetch import Prefetcher


class SlowStream:
    """Deals 0, 1, 2, ..., the second only when it may."""

    def __init__(self) -> None:
        self.may, self.dealt = threading.Event(), -1

    def next_batch(self) -> Any:
        self.dealt += 1
        if self.dealt == 1:
            self.may.wait(30)
        return self.dealt

    def state(self) -> dict[str, Any]:
        return {"dealt": self.dealt}  # pyright: ignore


def test_what_changes_while_a_thread_deals_is_for_the_next_batch():
    stream: Any = SlowStream()
    known = 256
    batches = Prefetcher(stream, lambda batch, tokens: (batch, tokens), lambda: known)
    assert batches.next_batch() == (0, 256)
    batches.deal_next(keep_state=True)
    known = 128  # as where a step has run out of memory: on a quick worker the batch is ready by then
    stream.may.set()
    assert batches.next_batch() == (1, 256)
    batches.deal_next(keep_state=False)
    assert batches.next_batch() == (2, 128)
    batches.close()
