"""What people see of a training under way: lines of its log, and a bar with its speed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from infocse_ray.distributed.collectives import rank
from infocse_ray.train.step import StepReport

_SHOWN_SECONDS = 1.0
"""Between two updates of the bar."""


class Reporter:
    """Worker 0's way to the driver's progress board; the other workers say nothing."""

    def __init__(self, board: Any, batch_size: int) -> None:
        """Report to `board`, the handle of a progress board, or to nobody."""
        self.board = board if rank() == 0 else None
        self._batch_size = batch_size
        self._begun, self._steps, self._tokens = time.monotonic(), 0, 0
        self._shown = 0.0

    def start(self) -> None:
        """Begin to measure the speed."""
        self._begun = time.monotonic()

    def tell(self, line: str) -> None:
        """Add a line to the run's log."""
        if self.board is not None:
            self.board.line.remote(f"    {line}")

    @contextmanager
    def instead(self, what: str) -> Iterator[None]:
        """Show beside the bar, instead of the last step's figures, what is done meanwhile; the speed is without it."""
        if self.board is not None:
            self.board.tell.remote(what)
        begun = time.monotonic()
        try:
            yield
        finally:
            self._begun += time.monotonic() - begun

    def count(self, report: StepReport) -> None:
        """Count a step for the speed."""
        self._steps += 1
        self._tokens += report.padded

    def show(self, done: int, report: StepReport, now: bool) -> None:
        """Move the bar, once a second at most unless `now`.

        Args:
            done: steps, or tokens, whichever the budget is of.
            report: of the last step.
            now: however little time has passed.
        """
        at = time.monotonic()
        if self.board is None or (at - self._shown <= _SHOWN_SECONDS and not now):
            return
        self._shown = at
        seconds = at - self._begun
        note = (
            f"loss {report.loss:.4f}, gradient {report.gradient_norm:.3g}, embedding spread {report.spread:.2f}, "
            f"{self._steps * self._batch_size / seconds:,.0f} examples/s, {self._tokens / seconds:,.0f} tokens/s, "
            f"padding {100 * (1 - report.tokens / max(report.padded, 1)):.1f} %"
        )
        self.board.set.remote(done, note)
