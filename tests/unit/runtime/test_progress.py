"""The driver's log: lines where it is kept, a bar where somebody watches."""

from __future__ import annotations

import sys
import threading
import types

import pytest
import ray
from ray.exceptions import GetTimeoutError

from infocse_ray.runtime import progress
from infocse_ray.runtime.progress import Bar, Board, say, warnings_kept


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
    assert lines[0] == "  training: 151 of 600 steps, 15 s, about 45 s left, loss 151"
    assert "    step 300: validation recall@5 0.5" in lines


def test_a_terminal_has_a_bar_and_the_same_events(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    work([0.0], monkeypatch)
    printed = capsys.readouterr()
    assert printed.out.splitlines() == ["    step 300: validation recall@5 0.5"]
    assert "training" in printed.err
    assert "\r" in printed.err


def line_of(bar: Bar, capsys: pytest.CaptureFixture[str]) -> str:
    bar._line()
    return capsys.readouterr().out.splitlines()[-1]


def test_what_is_left_is_told_by_the_rate_of_this_process(capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    bar = Bar("training", 1000, "steps")
    assert "left" not in line_of(bar, capsys), "nothing is done yet"
    clock[0] += 30  # workers start
    bar.to(500)  # a resumed training
    assert "left" not in line_of(bar, capsys), "what it had done took another process"
    clock[0] += 100
    bar.to(510)
    assert line_of(bar, capsys) == "  training: 510 of 1,000 steps, 2 min, about 82 min left"
    bar.to(1000)
    assert line_of(bar, capsys) == "  training: 1,000 of 1,000 steps, 2 min"
    bar.to(1000, "validating step 1000")
    assert line_of(bar, capsys) == "  training: 1,000 of 1,000 steps, 2 min, validating step 1000"


def test_without_a_total_nothing_is_said_to_be_left(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    bar = Bar("counting", None, "documents")
    for _ in range(3):
        clock[0] += 20
        bar.add(10)
    assert capsys.readouterr().out.splitlines()[-1] == "  counting: 30 documents, 60 s"


def test_a_notebook_has_a_widget(monkeypatch):
    made: list[tuple[str, int]] = []

    class Widget:
        def __init__(self, total: int, desc: str, **_: object) -> None:
            made.append((desc, total))

        def set_postfix_str(self, text: str, refresh: bool) -> None:
            pass

        def update(self, step: int) -> None:
            made.append(("update", step))

    kernel = types.SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setitem(sys.modules, "ipywidgets", types.ModuleType("ipywidgets"))
    monkeypatch.setitem(sys.modules, "tqdm.notebook", types.SimpleNamespace(tqdm_notebook=Widget))
    Bar("annotating", 5, "documents").to(2)
    assert made == [("annotating", 5), ("update", 2)]
    made.clear()
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "ipywidgets", None)  # isn't installed
        Bar("annotating", 5, "documents").to(2)
    assert made == []
    kernel.config.clear()  # IPython's own terminal
    made.clear()
    Bar("annotating", 5, "documents").to(2)
    assert made == []


def test_a_board_is_on_the_drivers_node_which_no_autoscaler_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    actor = types.SimpleNamespace(remote=lambda: None)
    monkeypatch.setattr(ray, "remote", lambda **options: asked.append(options) or (lambda _: actor))
    monkeypatch.setattr(ray, "get_runtime_context", lambda: types.SimpleNamespace(get_node_id=lambda: "f00"))
    Board("training", "steps")
    assert asked == [{"num_cpus": 0, "max_restarts": -1, "label_selector": {"ray.io/node-id": "f00"}}]


def test_a_look_at_the_board_that_takes_too_long_loses_nothing(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    told = progress._BoardActor()
    handle = types.SimpleNamespace(look=types.SimpleNamespace(remote=told.look))
    slow = [True, False, True, False, False]

    def get(taken: object, timeout: float) -> object:
        if slow.pop(0):
            raise GetTimeoutError("the node is busy")
        return taken

    actor = types.SimpleNamespace(remote=lambda: handle)
    monkeypatch.setattr(ray, "remote", lambda **_: lambda _: actor)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: types.SimpleNamespace(get_node_id=lambda: "f00"))
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "kill", lambda _: None)
    monkeypatch.setattr(Board, "_watch", lambda _: None)
    points: list[object] = []
    with Board("training", "steps", points=points.append) as board:
        told.line("step 0")
        told.points([0])
        assert board.say_lines() is None
        told.line("step 3")
        assert board.say_lines() is not None
        told.points([3])
        assert board.say_lines() is None
        told.line("step 6")
        told.points([6])
    assert points == [0, 3, 6]
    assert [line for line in capsys.readouterr().out.splitlines() if "step" in line] == ["step 0", "step 3", "step 6"]


def test_warnings_are_kept_once_whoever_says_them(capsys):
    say("warning: before")
    with warnings_kept() as outer, warnings_kept() as inner:
        thread = threading.Thread(target=say, args=("  warning: a worker's of s3://u:swordfish@b/c",))
        thread.start()
        thread.join()
        say("no warning: this")
        say("warning: twice")
        say("warning: twice")
        assert inner == ["a worker's of s3://***@b/c", "twice"]
    say("warning: after")
    assert outer == inner
    assert capsys.readouterr().out.count("warning: twice") == 2
