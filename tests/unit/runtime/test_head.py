"""The watch over Ray's head, with heads that are made up."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from infocse_ray.runtime import head

Looks = Callable[..., None]
LOST = 10
"""Looks without an answer after which it is told."""


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Watch a head that answers, or doesn't, at each look; then this process leaves Ray."""
    worker = SimpleNamespace(node="mine")
    monkeypatch.setattr(head, "global_worker", worker)

    def watch(*answers: bool, joins_another: bool = False) -> None:
        left = list(answers)

        def knock(address: str) -> None:
            assert address == "10.0.0.1:6379"
            if not left.pop(0):
                raise ConnectionError("refused")

        def sleep(_: float) -> None:
            if joins_another and not left:
                worker.node = "another"

        monkeypatch.setattr(head.ray, "is_initialized", lambda: bool(left) or joins_another)
        monkeypatch.setattr(head.time, "sleep", sleep)
        head._watch("10.0.0.1:6379", knock, 5.0)
        assert not left

    return watch


def test_a_lost_head_is_told_once(looks: Looks, capsys: pytest.CaptureFixture[str]):
    looks(True, *[False] * (LOST + 5), True)
    said = capsys.readouterr()
    assert said.err == (
        "infocse: error: Ray's head at 10.0.0.1:6379 doesn't answer any more (refused); unless it does again, Ray ends "
        "this process in a moment; what is finished is kept, and the same command goes on once a Ray is there\n"
    )
    assert said.out == "  Ray's head at 10.0.0.1:6379 answers again\n"


def test_a_head_that_is_slow_now_and_then_is_none_that_is_lost(looks: Looks, capsys: pytest.CaptureFixture[str]):
    looks(*[*[False] * (LOST - 1), True] * 3)
    assert capsys.readouterr() == ("", "")


def test_a_head_that_was_lost_twice_is_told_twice(looks: Looks, capsys: pytest.CaptureFixture[str]):
    looks(*[*[False] * LOST, True] * 2)
    said = capsys.readouterr()
    assert (said.err.count("any more"), said.out.count("again")) == (2, 2)


def test_a_ray_that_this_process_has_left_is_watched_no_more(looks: Looks, capsys: pytest.CaptureFixture[str]):
    looks(*[False] * LOST)  # it leaves while it is looked at
    looks(*[False] * (LOST - 1), joins_another=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("given", "seconds"), [(None, 5.0), ("", 5.0), ("600", 50.0)])
def test_it_is_told_in_the_time_that_ray_waits(monkeypatch: pytest.MonkeyPatch, given: str | None, seconds: float):
    started = []

    class Thread:
        def __init__(self, **how: object) -> None:
            started.append(how)

        def start(self) -> None:
            pass

    monkeypatch.setattr(head.threading, "Thread", Thread)
    monkeypatch.delenv("RAY_gcs_rpc_server_reconnect_timeout_s", raising=False)
    if given is not None:
        monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", given)
    head.watch_head("10.0.0.1:6379", print)
    [how] = started
    assert how["daemon"] is True, "it keeps no process from ending"
    assert how["args"] == ("10.0.0.1:6379", print, seconds)
