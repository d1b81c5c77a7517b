"""What is shown of a training under way."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from infocse_ray.train import reporter
from infocse_ray.train.reporter import Reporter
from infocse_ray.train.step import StepReport


class _Remote:
    """A method of the board, which keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[object, ...]] = []

    def remote(self, *arguments: object) -> None:
        self.given.append(arguments)


def test_seconds_of_validations_are_in_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(reporter.time, "monotonic", lambda: clock.now)
    board = SimpleNamespace(tell=_Remote(), set=_Remote())
    shown = Reporter(board, batch_size=30)
    shown.start()
    step = StepReport(loss=1.0, gradient_norm=1.0, spread=1.0, tokens=90, padded=100)
    clock.now += 2.0
    shown.count(step)
    with shown.instead("validating step 1"):
        clock.now += 7.0
    clock.now += 2.0
    shown.count(step)
    shown.show(2, step, now=True)
    assert board.tell.given == [("validating step 1",)]
    [(done, note)] = board.set.given
    assert done == 2
    assert "15 examples/s, 50 tokens/s" in str(note)  # 60 examples and 200 tokens in the 4 seconds of two steps
