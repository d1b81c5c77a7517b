"""Stopping on request: SIGTERM (`ray job stop`), Ctrl-C and a closed terminal end a run where the same command goes on.

1. Outside training a signal raises `Interrupted` where the driver is: every piece of a stage is whole or not there.
2. While workers train, the driver waits on (`run_interruptible`) and asks through the progress board; all workers
   learn of it in the same step, checkpoint, and return. Then the driver raises `Interrupted`.
3. A second signal doesn't wait for that; one after it ends the process.
4. In a process of somebody's own, such as a notebook's, Ctrl-C alone is taken, and while one worker trains: it ends at
   a checkpoint, too, and then it is `KeyboardInterrupt`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any, NoReturn, TypeVar

import ray
from ray._private import services
from ray.exceptions import RayError

from infocse_ray.errors import Interrupted
from infocse_ray.runtime.progress import Board, say

Result = TypeVar("Result")

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ONE_REQUEST_SECONDS = 1.0
"""`timeout`, for one, sends a signal to the process and to its group: both are one request."""
_LOOK_SECONDS = 0.2
_ASK_SECONDS = 0.5
_ANSWER_SECONDS = 5.0
_END_RAY_SECONDS = 10.0


class _Requests:
    """The signals of this process."""

    def __init__(self, numbers: Collection[int] = _SIGNALS) -> None:
        self.numbers = numbers
        self.listening = False
        self.waits = False
        """Whether the main thread is in `run_interruptible`, which looks at `number` itself."""
        self.number = 0
        """Of the first signal; 0: none came."""
        self.raised = False
        self._at = 0.0

    def come(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if number == signal.SIGHUP:
            sys.stdout, sys.stderr = _Leaving(sys.stdout), _Leaving(sys.stderr)  # pyright: ignore
        again = self.number != 0
        if again and time.monotonic() - self._at < _ONE_REQUEST_SECONDS:
            return
        self.number, self._at = self.number or number, time.monotonic()
        if again and self.raised:
            os._exit(128 + self.number)
        if again or not self.waits:
            self.leave()

    def leave(self) -> NoReturn:
        self.raised = True
        raise Interrupted(self.number)


class _Leaving:
    """A stream whose terminal may be gone: what can't be shown any more keeps nothing from a checkpoint."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_requests = _Requests()
_left_behind: list[threading.Thread] = []
"""Threads of `run_interruptible` that were not waited for."""


@contextlib.contextmanager
def listening(numbers: Collection[int] = _SIGNALS) -> Iterator[None]:
    """Take these signals while the block runs; what they did before comes back after it."""
    global _requests
    _requests = _Requests(numbers)
    if threading.current_thread() is not threading.main_thread():  # there can be no handler
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    streams = sys.stdout, sys.stderr
    _requests.listening = True
    listen_again()
    try:
        yield
    finally:
        _requests.listening = False
        sys.stdout, sys.stderr = streams
        for number, handler in before.items():
            signal.signal(number, handler)


def listen_again() -> None:
    """Take the signals back from whoever took them; nothing where this process doesn't listen."""
    if _requests.listening and threading.current_thread() is threading.main_thread():
        for number in _requests.numbers:
            # A shell starts what is to run behind it with SIGINT ignored: Ctrl-C is then for another. `nohup` ignores
            # the end of the terminal.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _requests.come)


@contextlib.contextmanager
def ray_starting() -> Iterator[None]:
    """Around `ray.init`, which takes SIGTERM to end the process by its number, and keeps it.

    Where it starts a local Ray, what this consists of is kept out of the driver's process group: `timeout` and others
    send their signals to a whole group, and training needs Ray until it is at a checkpoint.
    """
    try:
        with _in_groups_of_their_own():
            yield
    except SystemExit as error:
        if not _requests.listening or error.code != signal.SIGTERM:
            raise
        _requests.number = signal.SIGTERM
        _requests.leave()
    finally:
        listen_again()


@contextlib.contextmanager
def _in_groups_of_their_own() -> Iterator[None]:
    """Each process that Ray starts leads a process group, as under Windows; by default they are in its parent's."""
    started_by = getattr(services, "ConsolePopen", None)
    if sys.platform != "linux" or started_by is None:  # elsewhere what ends them after the driver's death is the group
        yield
        return
    services.ConsolePopen = functools.partial(started_by, process_group=0)
    try:
        yield
    finally:
        services.ConsolePopen = started_by


def check() -> None:
    """Raise `Interrupted` if a signal came whose exception got lost, as in a callback that lets none out."""
    if _requests.listening and _requests.number:
        _requests.leave()


def lost_in(error: BaseException) -> Interrupted | None:
    """The signal whose exception Ray's core let out as another: its waits only know two kinds of it."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__cause__ or error.__context__  # pyright: ignore[reportAssignmentType]
    return error


def run_interruptible(work: Callable[[], Result], board: Board | None = None, ended: bool = False) -> Result:
    """Do `work` in a thread and wait for it, so that Ray's own handlers stay out and signals are noticed.

    Args:
        work: blocks, as a trainer's fit does.
        board: of workers that look at it (see `Request`) and end the work early when asked; None: there are no such.
        ended: whether the caller ends what isn't waited for: a process of somebody's own lives on.

    Raises:
        Interrupted: a signal came; where there are such workers at work, once they have ended.
        KeyboardInterrupt: that was Ctrl-C in a process that doesn't listen.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    if not _requests.listening:
        if board is None or not ended or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            with _own_interrupt_kept():
                return work()
        try:
            with listening((signal.SIGINT,)):
                return run_interruptible(work, board)
        except Interrupted as stopped:
            raise KeyboardInterrupt from stopped
    results: list[Result] = []
    errors: list[BaseException] = []

    def do() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised below, in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=do, daemon=True, name="fit")
    _requests.waits = True
    try:
        thread.start()
        asked = False
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
            if _requests.number and not asked and thread.is_alive():
                if board is None or not board.ask_to_stop():
                    _requests.leave()
                asked = True
                say(
                    "  asked to stop: training ends at a checkpoint once its workers know; "
                    "a second signal ends it at once"
                )
    except Interrupted:
        _left_behind.append(thread)
        raise
    finally:
        _requests.waits = False
    check()
    if errors:
        raise errors[0]
    return results[0]


@contextlib.contextmanager
def _own_interrupt_kept() -> Iterator[None]:
    """Around work of a process of somebody's own, such as a notebook's: Ctrl-C does after it what it did before.

    Ray Train takes it, so as to end the group of workers, ends the process as well, and never gives it back: later
    cells couldn't be interrupted any more.

    Raises:
        KeyboardInterrupt: Ctrl-C came, and the group has ended.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is None:
        yield
        return
    try:
        yield
    except SystemExit as error:
        if signal.getsignal(signal.SIGINT) is before or error.code == signal.SIGTERM:
            raise
        raise KeyboardInterrupt from error
    finally:
        signal.signal(signal.SIGINT, before)


class Request:
    """What a worker knows of a request to stop: asks the board now and then, and in no step waits for its answer."""

    def __init__(self, board: Any) -> None:
        """Look at `board`, a handle, or at none."""
        self._board = board
        self._asked = False
        self._answer: Any = None
        self._next = 0.0

    def made(self) -> bool:
        """Whether the board has said so yet."""
        if self._board is None or self._asked:
            return self._asked
        if self._answer is None:
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + _ASK_SECONDS
                self._answer = self._board.stop_asked.remote()
        elif ray.wait([self._answer], timeout=0)[0]:
            with contextlib.suppress(RayError):  # a board that is gone asks for nothing
                self._asked = bool(ray.get(self._answer))
            self._answer = None
        return self._asked

    def now(self) -> bool:
        """Whether the board says so, which is waited for some seconds: where nobody asks again for long."""
        if self._board is not None and not self._asked:
            answer = self._board.stop_asked.remote()
            if ray.wait([answer], timeout=_ANSWER_SECONDS)[0]:
                with contextlib.suppress(RayError):
                    self._asked = bool(ray.get(answer))
        return self._asked


def end(stopped: Interrupted) -> NoReturn:
    """End the process with the status of the signal, whatever still runs in it."""
    sys.stdout.flush()
    sys.stderr.flush()
    if not any(thread.is_alive() for thread in _left_behind):
        raise SystemExit(stopped.status)
    # A thread that waits in Ray's core keeps the interpreter from ending, and Ray's own end may wait for the thread.
    ending = threading.Thread(target=ray.shutdown, daemon=True)
    ending.start()
    ending.join(_END_RAY_SECONDS)
    os._exit(stopped.status)
