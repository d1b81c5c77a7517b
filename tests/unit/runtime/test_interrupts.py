"""What a signal does to a driver, and how workers hear of it, without Ray."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel
from ray.exceptions import RayActorError

from infocse_ray.commands.job import run_job
from infocse_ray.errors import Interrupted
from infocse_ray.runtime import interrupts as stopping
from infocse_ray.runtime.interrupts import Request, check, listen_again, listening, ray_starting, run_interruptible
from infocse_ray.runtime.progress import _BoardActor


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """As at a terminal: what a shell starts behind it, tests too, has SIGINT ignored; `nohup` ignores SIGHUP."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def every_signal_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_ONE_REQUEST_SECONDS", 0.0)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


class FakeBoard:
    """A board that workers look at, or not; `asked` is set when the driver asks."""

    def __init__(self, looked: bool = True) -> None:
        self.looked, self.asked = looked, threading.Event()

    def ask_to_stop(self) -> bool:
        self.asked.set()
        return self.looked


def board(looked: bool = True) -> Any:
    return FakeBoard(looked)


class NoSettings(BaseModel):
    pass


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_job_with_its_status_and_says_how_to_go_on(
    number: int, status: int, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        run_job(NoSettings, [], "x.py", "", lambda _: send(number))
    assert ended.value.code == status
    [line] = capsys.readouterr().err.splitlines()
    assert line == (
        f"x.py: stopped by {signal.Signals(number).name}; what is finished is kept; the same command resumes"
    )
    with pytest.raises(SystemExit):
        run_job(NoSettings, [], "x.py", "", lambda _: send(number), again="the same command with --storage there")
    assert "; the same command with --storage there resumes" in capsys.readouterr().err


def test_a_stop_that_a_library_made_another_error_of_is_one(capsys: pytest.CaptureFixture[str]):
    """As Ray's core does, whose waits let only two kinds out."""

    def waits(_: NoSettings) -> None:
        try:
            send(signal.SIGTERM)
        except Interrupted as stopped:
            raise SystemError("returned a result with an exception set") from stopped

    with pytest.raises(SystemExit) as ended:
        run_job(NoSettings, [], "x.py", "", waits)
    assert ended.value.code == 143
    assert "x.py: stopped by SIGTERM" in capsys.readouterr().err


def test_no_one_who_survives_errors_survives_a_stop():
    with listening(), pytest.raises(Interrupted), contextlib.suppress(Exception):
        send(signal.SIGTERM)


def test_handlers_come_back_after_the_job():
    before = signal.getsignal(signal.SIGTERM)
    with listening():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_terminal_that_is_gone_keeps_nothing_from_ending_in_order(monkeypatch: pytest.MonkeyPatch):
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

        def flush(self) -> None:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stdout", Gone())
    monkeypatch.setattr(sys, "stderr", Gone())

    def works(_: NoSettings) -> None:
        try:
            send(signal.SIGHUP)
        finally:
            print("asked to stop")

    with pytest.raises(SystemExit) as ended:
        run_job(NoSettings, [], "x.py", "", works)
    assert ended.value.code == 129


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_ignored_signal_stays_ignored(number: int):
    signal.signal(number, signal.SIG_IGN)
    with listening():
        send(number)
        check()


def as_ray_train_takes_it(number: int, frame: object) -> None:
    sys.exit(0)


def test_ctrl_c_is_a_notebooks_own_again_after_a_training():
    run_interruptible(lambda: signal.signal(signal.SIGINT, as_ray_train_takes_it))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_in_a_notebooks_training_ends_no_process():
    def fit() -> None:
        signal.signal(signal.SIGINT, as_ray_train_takes_it)
        send(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(fit)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(SystemExit, match=r"^15$"):  # what Ray makes of SIGTERM
        run_interruptible(lambda: sys.exit(signal.SIGTERM))


def test_ctrl_c_in_a_notebook_waits_for_a_checkpoint_too():
    there, ended = board(), []

    def fit() -> None:
        assert signal.getsignal(signal.SIGTERM) is before
        send(signal.SIGINT)
        assert there.asked.wait(30)
        ended.append(True)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run_interruptible(fit, there, ended=True)
    assert ended
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert run_interruptible(lambda: 7, there, ended=True) == 7


@pytest.mark.usefixtures("every_signal_counts")
@pytest.mark.parametrize("looked", [True, False], ids=["the second", "the first, where workers don't look yet"])
def test_ctrl_c_in_a_notebook_that_does_not_wait(looked: bool):
    release, there = threading.Event(), board(looked)

    def fit() -> None:
        send(signal.SIGINT)
        assert there.asked.wait(30)
        if looked:
            send(signal.SIGINT)
        release.wait(30)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(fit, there, ended=True)
    release.set()
    stopping._left_behind.pop().join()


def test_ctrl_c_of_a_process_that_takes_it_itself_stays_its_own():
    there, came = board(), []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    run_interruptible(lambda: send(signal.SIGINT), there, ended=True)
    assert came == [signal.SIGINT]
    assert not there.asked.is_set()


def test_what_nobody_would_end_stays_in_a_notebooks_own_thread():
    assert run_interruptible(threading.current_thread, board()) is threading.main_thread()
    assert run_interruptible(threading.current_thread, ended=True) is threading.main_thread()


def test_in_another_thread_no_signal_is_taken():
    found = []
    thread = threading.Thread(target=lambda: found.append(run_interruptible(lambda: 7, board(), ended=True)))
    thread.start()
    thread.join()
    assert found == [7]


def test_signals_are_taken_back_from_ray():
    def as_ray(number: int, frame: object) -> None:
        sys.exit(number)

    def start(while_starting: Callable[[], None]) -> None:
        with ray_starting():
            signal.signal(signal.SIGTERM, as_ray)
            while_starting()

    with listening():
        start(lambda: None)
        with pytest.raises(Interrupted):
            send(signal.SIGTERM)
    with listening(), pytest.raises(Interrupted):
        start(lambda: send(signal.SIGTERM))
    with listening(), pytest.raises(SystemExit, match="3"), ray_starting():
        sys.exit(3)
    start(lambda: None)  # nobody listens: Ray keeps it
    listen_again()
    assert signal.getsignal(signal.SIGTERM) is as_ray


def test_a_stop_whose_exception_was_lost_is_not_forgotten():
    with listening():
        with pytest.raises(Interrupted):
            send(signal.SIGTERM)
        with pytest.raises(Interrupted):
            check()
    check()


def test_training_is_asked_and_waited_for():
    there = board()
    ended = []

    def fit() -> None:
        send(signal.SIGTERM)
        assert there.asked.wait(30)
        ended.append(True)

    with listening(), pytest.raises(Interrupted):
        run_interruptible(fit, there)
    assert ended


@pytest.mark.parametrize("looked", [False, None], ids=["workers that don't look yet", "work that can't be asked"])
def test_what_can_not_be_asked_is_not_waited_for(looked: bool | None):
    release = threading.Event()

    def fit() -> None:
        send(signal.SIGTERM)
        release.wait(30)

    with listening(), pytest.raises(Interrupted):
        run_interruptible(fit, None if looked is None else board(looked))
    assert not release.is_set()
    assert stopping._left_behind[-1].is_alive()
    release.set()
    stopping._left_behind.pop().join()


@pytest.mark.usefixtures("every_signal_counts")
def test_a_second_signal_does_not_wait():
    release, there = threading.Event(), board()

    def fit() -> None:
        send(signal.SIGTERM)
        assert there.asked.wait(30)
        send(signal.SIGINT)
        release.wait(30)

    with listening(), pytest.raises(Interrupted, match="SIGTERM"):
        run_interruptible(fit, there)
    release.set()
    stopping._left_behind.pop().join()


def test_two_signals_at_once_are_one_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stopping, "_ONE_REQUEST_SECONDS", 1e9)
    there, ended = board(), []

    def fit() -> None:
        send(signal.SIGTERM)
        assert there.asked.wait(30)
        send(signal.SIGTERM)
        time.sleep(1)  # who takes it for a second request doesn't wait for the end
        ended.append(True)

    with listening(), pytest.raises(Interrupted):
        run_interruptible(fit, there)
    assert ended


def test_what_work_returns_and_raises_comes_through():
    def fail() -> None:
        raise KeyError("x")

    for context in (listening, Nothing):
        with context():
            assert run_interruptible(lambda: 7) == 7
            with pytest.raises(KeyError):
                run_interruptible(fail)


class Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_an_end_waits_for_no_thread_that_hangs():
    script = """
import atexit, signal, os, threading, sys
from infocse_ray.runtime import interrupts as stopping
from infocse_ray.commands.job import run_job
from pydantic import BaseModel
class Settings(BaseModel): pass
stopping._END_RAY_SECONDS = 0.1
stopping.ray.shutdown = threading.Event().wait
atexit.register(threading.Event().wait)  # as Ray's own end, which waits for the thread
def fit():
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()
run_job(Settings, [], "x.py", "", lambda _: stopping.run_interruptible(fit))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 143, done.stderr
    assert "x.py: stopped by SIGTERM" in done.stderr


def test_a_signal_while_it_already_ends_ends_it_at_once():
    script = """
import os, signal
from infocse_ray.runtime import interrupts as stopping
stopping._ONE_REQUEST_SECONDS = 0.0
with stopping.listening():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            print("still there", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (143, ""), done.stderr


class Answers:
    """A board's handle whose answers come when `ready`; counts the questions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.ready, self.questions = False, False, 0
        self.stop_asked = SimpleNamespace(remote=self._question)
        monkeypatch.setattr(stopping.ray, "wait", lambda refs, timeout: (refs if self.ready else [], []))
        monkeypatch.setattr(stopping.ray, "get", lambda ref: ref())

    def _question(self) -> Callable[[], bool]:
        self.questions += 1
        return lambda: self.asked


def test_a_worker_waits_for_no_answer(monkeypatch: pytest.MonkeyPatch):
    answers = Answers(monkeypatch)
    request = Request(answers)
    answers.asked = True
    assert not any(request.made() for _ in range(5))
    assert answers.questions == 1, "one question at a time"
    answers.ready = True
    assert request.made()
    assert request.made()
    assert answers.questions == 1


def test_before_something_long_a_worker_asks_at_once(monkeypatch: pytest.MonkeyPatch):
    answers = Answers(monkeypatch)
    request = Request(answers)
    assert not request.made()
    answers.asked = True
    assert not request.now(), "there is no answer"
    answers.ready = True
    assert request.now()
    assert not Request(None).now()


def test_a_worker_asks_again_but_not_in_every_step(monkeypatch: pytest.MonkeyPatch):
    answers = Answers(monkeypatch)
    answers.ready = True
    for pause, questions in ((1e9, 1), (0.0, 5)):
        monkeypatch.setattr(stopping, "_ASK_SECONDS", pause)
        answers.questions, request = 0, Request(answers)
        assert not any(request.made() for _ in range(10))
        assert answers.questions == questions


def test_a_board_that_is_gone_asks_for_nothing(monkeypatch: pytest.MonkeyPatch):
    def gone(ref: object) -> bool:
        raise RayActorError

    handle = Answers(monkeypatch)
    monkeypatch.setattr(stopping.ray, "get", gone)
    request, handle.ready = Request(handle), True
    assert not any(request.made() for _ in range(3))


def test_without_a_board_nobody_asks():
    assert not Request(None).made()


def test_a_board_knows_whether_workers_look():
    actor = _BoardActor()
    assert not actor.ask_to_stop()
    assert actor.stop_asked()
    assert actor.ask_to_stop()
    assert not _BoardActor().stop_asked()
