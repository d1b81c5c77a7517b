"""Progress that is always visible: a bar on a terminal, a widget in a notebook, a line now and then elsewhere.

Workers report to a small actor (`Board`); a thread of the driver shows what it holds. Ray is loaded with the first
`Board`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from tqdm import tqdm

from infocse_ray.storage.redact import redacted

Item = TypeVar("Item")

_LINE_SECONDS = 15.0
_NODE = "ray.io/node-id"
"""Ray's label of a node by its id."""
_WARNING = "warning: "
_kept: list[list[str]] = []
_waits: list[list[float]] = []


def say(message: str) -> None:
    """Print a line of the run's log, without credentials, above a progress bar if one is shown."""
    text = redacted(message)
    if (warning := text.strip()).startswith(_WARNING):
        for kept in _kept:
            if (plain := warning.removeprefix(_WARNING)) not in kept:
                kept.append(plain)
    tqdm.write(text, file=sys.stdout)
    sys.stdout.flush()


def warnings_kept() -> AbstractContextManager[list[str]]:
    """The warnings that this process says meanwhile, whichever thread says them, each once, without `warning: `."""
    return _one_more(_kept)


def waits_kept() -> AbstractContextManager[list[float]]:
    """Of each bar that this process shows meanwhile, the seconds that workers were starting.

    That is until they began or, where they don't say so, until something was done.
    """
    return _one_more(_waits)


@contextlib.contextmanager
def _one_more(lists: list[list[Item]]) -> Iterator[list[Item]]:
    """A list that is among these meanwhile."""
    own: list[Item] = []
    lists.append(own)
    try:
        yield own
    finally:
        lists[:] = [one for one in lists if one is not own]


def duration(seconds: float) -> str:
    """A length of time for people: `45 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Bar:
    """A progress bar on a terminal or, as a widget, in a notebook; elsewhere a line at most every 15 seconds.

    Both say how long it has taken and, where there is a total, how long the rest will take at the rate so far. Whoever
    works says what came of it.
    """

    def __init__(self, title: str, total: int | None, unit: str) -> None:
        self.title, self.total, self.unit, self.done, self.note = title, total, unit, 0, ""
        self._started = self._shown = time.monotonic()
        self._begun = False
        self._first: tuple[float, int] | None = None
        """When something was first done, and how much: a resumed training begins with what it had done."""
        bar = _notebook_bar() or (tqdm if sys.stderr.isatty() else None)
        self._bar = bar and bar(total=total, desc=title, unit=f" {unit}", unit_scale=True, leave=False)

    def to(self, done: int, note: str = "") -> None:
        """Show that `done` units are done."""
        step, self.done, self.note = done - self.done, done, note or self.note
        if self._first is None and done:
            self.begin()
            self._first = time.monotonic(), done
        if self._bar is not None:
            self._bar.set_postfix_str(self.note, refresh=False)
            self._bar.update(step)
        elif time.monotonic() - self._shown > _LINE_SECONDS:
            self._line()

    def begin(self) -> None:
        """Take down, the first time, that workers have started."""
        if not self._begun:
            self._begun, waited = True, time.monotonic() - self._started
            for waits in _waits:
                waits.append(waited)

    def add(self, units: int, note: str = "") -> None:
        """Show `units` more."""
        self.to(self.done + units, note)

    def left(self) -> float | None:
        """Seconds until all is done at the rate so far.

        None where that can't be told yet, there is no total, or all is done and something else goes on.
        """
        if not self.total or self._first is None or not self._first[1] < self.done < self.total:
            return None
        rate = (self.done - self._first[1]) / max(time.monotonic() - self._first[0], 1e-9)
        return (self.total - self.done) / rate

    def _line(self) -> None:
        self._shown = time.monotonic()
        of = f" of {self.total:,}" if self.total else ""
        took = duration(self._shown - self._started)
        rest = "" if (left := self.left()) is None else f", about {duration(left)} left"
        say(f"  {self.title}: {self.done:,}{of} {self.unit}, {took}{rest}{', ' + self.note if self.note else ''}")

    def close(self) -> None:
        """Stop showing it."""
        if self._bar is not None:
            self._bar.close()


def _notebook_bar() -> Any:
    """Tqdm's widget where this is the kernel of a notebook (Jupyter, Colab, VS Code) that has ipywidgets.

    Without ipywidgets there are lines: a bar of characters would fill the cell with its past.
    """
    ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if ipython is None or "IPKernelApp" not in ipython.config:
        return None
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        return None
    from tqdm.notebook import tqdm_notebook

    return tqdm_notebook


class _BoardActor:
    """Holds what workers reported until the driver looks."""

    def __init__(self) -> None:
        self.done = 0
        self.note = ""
        self.lines: list[str] = []
        self.waiting: list[Any] = []
        self.asked = self.looked = self.begun = False

    def begin(self) -> None:
        self.begun = True

    def add(self, units: int) -> None:
        self.done += units

    def set(self, done: int, note: str) -> None:
        self.done, self.note = done, note

    def tell(self, note: str) -> None:
        self.note = note

    def line(self, text: str) -> None:
        self.lines.append(text)

    def points(self, more: list[Any]) -> None:
        self.waiting += more

    def look(self) -> tuple[bool, int, str, list[str], list[Any]]:
        (lines, points), self.lines, self.waiting = (self.lines, self.waiting), [], []
        return self.begun, self.done, self.note, lines, points

    def ask_to_stop(self) -> bool:
        self.asked = True
        return self.looked

    def stop_asked(self) -> bool:
        self.looked = True
        return self.asked


class Board:
    """Shows, while the `with` block runs, what workers report to `handle` (`begin`, `add`, `set`, `line`, `points`)."""

    def __init__(
        self, title: str, unit: str, total: int | None = None, points: Callable[[Any], None] | None = None
    ) -> None:
        """Begin.

        Args:
            title: of the stage, for people.
            unit: of what is done.
            total: how much there is to do; None: nobody knows.
            points: gets each point that workers hand over, in the driver, in their order.
        """
        import ray

        self._points = points
        # On the driver's node. Without resources it would be on any: an autoscaler keeps that for its sake, and with a
        # spot node would go what was told.
        here = {_NODE: ray.get_runtime_context().get_node_id()}
        self.handle: Any = ray.remote(num_cpus=0, max_restarts=-1, label_selector=here)(_BoardActor).remote()
        self._bar = Bar(title, total, unit)
        self._looking: Any = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Board:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=10)
        if self._looking is not None:
            self._show()
        self._show()
        self._bar.close()
        import ray

        ray.kill(self.handle)

    def tell(self, note: str) -> None:
        """Show a note beside what is done."""
        self.handle.tell.remote(note)

    def ask_to_stop(self) -> bool:
        """Ask the workers to stop; whether one has ever looked for that, and so will see it."""
        import ray
        from ray.exceptions import RayError

        try:
            return ray.get(self.handle.ask_to_stop.remote(), timeout=30)
        except RayError:
            return False

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self._show()

    def _show(self) -> None:
        if (seen := self.say_lines()) is not None:
            self._bar.to(*seen)

    def say_lines(self) -> tuple[int, str] | None:
        """Say the lines that have come, and pass on the points.

        Returns:
            How many units are done, with a note; None if the board doesn't answer.
        """
        import ray
        from ray.exceptions import GetTimeoutError, RayError

        looking, self._looking = self._looking or self.handle.look.remote(), None
        try:
            begun, done, note, lines, points = ray.get(looking, timeout=5)
        except GetTimeoutError:
            self._looking = looking  # what it takes from the board is there alone
            return None
        except RayError:  # progress is never worth a run
            return None
        if begun:
            self._bar.begin()
        for line in lines:
            say(line)
        if self._points is not None:
            for point in points:
                self._points(point)
        return done, note
