"""A sink's own thread: what is shown waits there, never the run.

1. Calls are made in their order. While the sink is out of reach one is tried for as long as the run lasts, and the
   others wait; one that keeps failing for another reason is left out.
2. Until the sink has opened its run nothing else is called, and that is tried for as long as the run lasts.
3. The first failure is a warning in the log; those after it are silent.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from infocse_ray.runtime.failures import one_line
from infocse_ray.runtime.progress import say
from infocse_ray.tracking.sink import Sink, Status, TrackedRun

_TRIES = 3
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 60.0
_LONGEST_WARNING = 300
"""Characters of a reason; servers answer with whole pages."""


class Lane:
    """Takes calls to a sink, and makes them in a thread."""

    def __init__(self, sink: Sink, run: TrackedRun) -> None:
        """Begin to open the run."""
        self._sink, self._run = sink, run
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ending, self._warned = threading.Event(), False
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"tracking: {sink.name}")
        self._thread.start()

    def put(self, call: Callable[[], None]) -> None:
        """Have a call made; returns at once."""
        self._calls.put(call)

    def end(self, status: Status) -> None:
        """Have the calls that are left made, once each, and the sink closed; returns at once."""
        self._calls.put(lambda: self._sink.close(status))
        self._calls.put(None)
        self._ending.set()  # no more waiting between tries

    def wait(self, until: float) -> None:
        """Wait for what `end` asked for, to a time by `time.monotonic`; what takes longer is given up."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._warn("hasn't taken everything in time")

    def _work(self) -> None:
        if not self._tried(lambda: self._sink.open(self._run), None):
            return
        while (call := self._calls.get()) is not None:
            self._tried(call, _TRIES)

    def _tried(self, call: Callable[[], None], most: int | None) -> bool:
        """Whether a call went well in so many tries; None: any number, until the run ends."""
        wait, tries = _FIRST_WAIT_SECONDS, 0
        while True:
            last = self._ending.is_set()
            try:
                call()
            except Exception as error:  # whatever a sink raises, the run goes on
                self._warn(one_line(error))
                tries += not self._sink.is_away(error)
                if last or tries == most:
                    return False
                self._ending.wait(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
            else:
                return True

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            say(f"warning: tracking: {self._sink.name}: {reason[:_LONGEST_WARNING]}; the run goes on all the same")
