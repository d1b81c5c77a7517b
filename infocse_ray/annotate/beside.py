"""What follows on a device's results, beside what the device computes next.

Clustering looks at vectors from the host again and again, and would have a GPU wait. So it is one step behind: when
vectors are to be clustered, the embedding of the next ones has been asked for already. It goes on in a stream of its
own, so that the host, when it waits for it, doesn't wait for them too.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch

Item = TypeVar("Item")
Mark = TypeVar("Mark")


def one_behind(asked: Iterator[Item], device: torch.device) -> Iterator[Item]:
    """What is asked of the device, each once the next has been asked for; on a CPU, at once.

    Whoever takes an item must have the host wait for what it makes of it (copy it back, say) before taking the next.
    """
    if device.type != "cuda":
        return asked
    main, beside = torch.cuda.current_stream(device), _stream(device)

    @contextlib.contextmanager
    def after(event: Any) -> Iterator[None]:
        beside.wait_event(event)
        with torch.cuda.stream(beside):
            yield

    return staggered(asked, main.record_event, after)


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """One for all calls: torch keeps what memory each stream has had, and cuBLAS a workspace for each."""
    return torch.cuda.Stream(device)


def staggered(
    asked: Iterator[Item], mark: Callable[[], Mark], after: Callable[[Mark], AbstractContextManager[None]]
) -> Iterator[Item]:
    """Items of `asked`, each once the next is there; while it is with the taker, in the context `after` of its mark."""
    behind: list[tuple[Item, Mark]] = []
    for item in asked:
        behind.append((item, mark()))
        if len(behind) > 1:
            earlier, marked = behind.pop(0)
            with after(marked):
                yield earlier
            del earlier
    for last, marked in behind:
        with after(marked):
            yield last
