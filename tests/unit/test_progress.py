"""The driver's log: lines where it is kept, a bar where somebody watches."""

from __future__ import annotations

import sys

import pytest

from infocse_ray.runtime import progress
from infocse_ray.runtime.progress import Bar, say


def work(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute's work in 600 updates, with an event in the middle."""
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    bar = Bar("training", 600, "steps")
    for step in range(1, 601):
        clock[0] += 0.1
        bar.to(step, f"loss {step}")
        if step == 300:
            say("    step 300: validation recall@5 0.5")
    bar.close()


def test_a_log_has_a_line_an_event_and_few_of_progress(capsys, monkeypatch):
    work([0.0], monkeypatch)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "\r" not in printed.out
    assert "\x1b" not in printed.out
    lines = printed.out.splitlines()
    assert len(lines) == 4
    assert lines[0] == "  training: 151 of 600 steps, 15 s, loss 151"
    assert "    step 300: validation recall@5 0.5" in lines


def test_a_terminal_has_a_bar_and_the_same_events(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    work([0.0], monkeypatch)
    printed = capsys.readouterr()
    assert printed.out.splitlines() == ["    step 300: validation recall@5 0.5"]
    assert "training" in printed.err
    assert "\r" in printed.err
