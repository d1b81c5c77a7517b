"""A sink out of reach stops nothing: one warning, then silence; what it missed is sent when it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.storage.folder import Storage
from infocse_ray.tracking import lane
from infocse_ray.tracking.lane import Lane
from infocse_ray.tracking.sink import Sink, Status, TrackedRun


class Recorder(Sink):
    """A sink whose calls fail as often as they are told to."""

    name = "mlflow"

    def __init__(self, failures: int = 0, blocks: threading.Event | None = None) -> None:
        self.calls: list[str] = []
        self.failures, self.blocks = failures, blocks

    def call(self, name: str) -> None:
        self.calls.append(name)
        if self.blocks is not None:
            self.blocks.wait(30)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("https://user:secret@server refused\nand why, on a page of its own")

    def open(self, run: TrackedRun) -> None:
        self.call("open")

    def close(self, status: Status) -> None:
        self.call(status)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "_FIRST_WAIT_SECONDS", 0.001)


def laned(sink: Recorder, tmp_path: Path) -> tuple[Lane, Callable[[str], None]]:
    one = Lane(sink, TrackedRun("news", "pretrain", Storage(str(tmp_path)), {}, None))
    return one, lambda name: one.put(lambda: sink.call(name))


def ended(one: Lane, status: Status, seconds: float) -> None:
    one.end(status)
    one.wait(time.monotonic() + seconds)


def warnings(capsys: Any) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if "tracking" in line]


def test_calls_are_made_in_their_order(tmp_path, capsys):
    sink = Recorder()
    one, put = laned(sink, tmp_path)
    for name in "abc":
        put(name)
    ended(one, "finished", 30)
    assert sink.calls == ["open", "a", "b", "c", "finished"]
    assert not warnings(capsys)


def test_a_sink_that_is_back_gets_everything(tmp_path, capsys):
    sink = Recorder(failures=5)
    one, put = laned(sink, tmp_path)
    for name in "ab":
        put(name)
    while "b" not in sink.calls:
        pass
    ended(one, "finished", 30)
    assert sink.calls == ["open"] * 6 + ["a", "b", "finished"]
    said = warnings(capsys)
    assert said == [
        "warning: tracking: mlflow: ConnectionError: https://***@server refused; the run goes on all the same"
    ]


def test_a_call_that_keeps_failing_is_left_out(tmp_path, capsys):
    sink = Recorder()
    one, put = laned(sink, tmp_path)

    def refused() -> None:
        sink.calls.append("refused")
        raise ValueError("no such parameter")

    one.put(refused)
    put("b")
    while "b" not in sink.calls:
        pass
    ended(one, "failed", 30)
    assert sink.calls == ["open", *["refused"] * 3, "b", "failed"]
    assert len(warnings(capsys)) == 1


def test_what_an_open_sink_missed_is_sent_when_it_is_back(tmp_path):
    sink = Recorder()
    one, put = laned(sink, tmp_path)
    put("a")
    while "a" not in sink.calls:
        pass
    sink.failures = 7
    put("b")
    put("c")
    while "c" not in sink.calls:
        pass
    ended(one, "finished", 30)
    assert sink.calls == ["open", "a", *["b"] * 8, "c", "finished"]


def test_the_end_doesnt_wait_for_a_sink_that_is_out_of_reach(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(lane, "_FIRST_WAIT_SECONDS", 1000.0)
    sink = Recorder(failures=10**9)
    one, put = laned(sink, tmp_path)
    put("a")
    ended(one, "finished", 30)
    assert set(sink.calls) == {"open"}
    assert len(warnings(capsys)) == 1


def test_a_reason_that_is_a_whole_page_is_cut(tmp_path, capsys):
    one, _ = laned(Recorder(), tmp_path)

    def refused() -> None:
        raise ConnectionError("x" * 5000)

    one.put(refused)
    ended(one, "finished", 30)
    [line] = warnings(capsys)
    assert len(line) < 400
    assert line.endswith("; the run goes on all the same")


def test_the_end_doesnt_wait_for_a_sink_that_hangs(tmp_path, capsys):
    answers = threading.Event()
    one, put = laned(Recorder(blocks=answers), tmp_path)
    put("a")
    ended(one, "finished", 0.01)
    assert warnings(capsys) == [
        "warning: tracking: mlflow: hasn't taken everything in time; the run goes on all the same"
    ]
    answers.set()
