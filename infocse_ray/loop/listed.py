"""The runs of a storage as a table: the work of `infocse runs`."""

from __future__ import annotations

from infocse_ray.loop.contents import Contents, FoundRun, at_once, bytes_of
from infocse_ray.runtime.progress import say
from infocse_ray.settings.commands import ListRuns
from infocse_ray.settings.section import SHARED
from infocse_ray.storage.folder import Storage

_HEAD = ("name", "command", "state", "last written", "size", "verdict")


def list_runs(settings: ListRuns) -> None:
    """Print them.

    Raises:
        ValueError: there is no such storage.
    """
    contents = Contents.of(Storage.of_runs(settings.storage))
    for line in table(contents):
        say(line)


def table(contents: Contents) -> list[str]:
    """A line a run, under a head, then what all of it takes."""
    rows = at_once(lambda run: _row(contents, run), contents.runs.values())
    widths = [max(len(row[i]) for row in (_HEAD, *rows)) for i in range(len(_HEAD) - 1)]
    lines = ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip() for row in (_HEAD, *rows)]
    shared = {name: contents.size(name) for name in SHARED}
    parts = ", ".join(f"{name} {bytes_of(size)}" for name, size in shared.items() if size)
    every = sum(run.size for run in contents.runs.values()) + sum(shared.values())
    many = f"{len(rows)} run{'' if len(rows) == 1 else 's'}"
    return [*(lines if rows else []), f"{many}, {bytes_of(every)}" + (f"; of these shared: {parts}" if parts else "")]


def _row(contents: Contents, run: FoundRun) -> tuple[str, ...]:
    when = "" if run.changed is None else run.changed.astimezone().strftime("%Y-%m-%d %H:%M")
    return run.name, run.command, run.state, when, bytes_of(run.size), _verdict(contents, run)


def _verdict(contents: Contents, run: FoundRun) -> str:
    """The line that a finished run ended with, which begins with its label; who is at work on others."""
    if run.driver is not None:
        return f"driver: {run.driver}"
    if run.damaged:
        return run.damaged
    if not run.finished:
        return ""
    try:
        return str((contents.root / run.name / "metrics.json").read_json().get("verdict", {}).get("line", ""))
    except (OSError, ValueError, AttributeError):
        return "its metrics.json can't be read"
