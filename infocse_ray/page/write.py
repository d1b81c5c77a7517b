"""`report.html` of a run, written where the run ended; and one page of several runs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

from infocse_ray.page.blocks import Note, Section
from infocse_ray.page.compared import compared_sections
from infocse_ray.page.documents import corpus_section, pairs_section
from infocse_ray.page.record import Record
from infocse_ray.page.render import render
from infocse_ray.page.scores import scores_section, verdict_section
from infocse_ray.page.told import (
    moved_section,
    settings_section,
    time_section,
    versions_section,
    warnings_section,
)
from infocse_ray.page.training import training_section
from infocse_ray.page.whitened import whitening_section
from infocse_ray.runtime.progress import say
from infocse_ray.storage.folder import HTML, Storage

PAGE = "report.html"
_LONGEST_NAME = 120

_SECTIONS = (
    ("verdict", "Verdict", verdict_section),
    ("warnings", "Warnings", warnings_section),
    ("scores", "Scores", scores_section),
    ("moved", "Questions that moved most", moved_section),
    ("training", "Training curves", training_section),
    ("whitening", "Whitening", whitening_section),
    ("pairs", "Clusters and pairs", pairs_section),
    ("corpus", "Corpus", corpus_section),
    ("time", "Where the time went", time_section),
    ("settings", "Settings", settings_section),
    ("versions", "Versions", versions_section),
)


def page_of(record: Record) -> bytes:
    """The page of a run, finished or not: HTML, UTF-8."""
    verdict = (record.metrics or {}).get("verdict", {})
    state = "finished" if record.finished else "not finished: here is what there is so far"
    if record.finished and record.metrics is None:
        state += f", but {record.why_no_metrics}"
    head: dict[str, Any] = {
        "label": verdict.get("label"),
        "line": verdict.get("line", "").removeprefix(f"{verdict.get('label')}, "),
        "about": f"infocse {record.job}, {state}",
        "links": [("explorer.html", "Cluster explorer")] if record.explorer is not None else [],
    }
    sections = [_section(record, *one) for one in _SECTIONS]
    return render(f"Report: {record.name}", head, sections)


def _section(record: Record, anchor: str, title: str, make: Any) -> Section:
    """A section; of files that are not as this version knows them, one line that says so."""
    try:
        return make(record)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OSError) as error:
        if os.environ.get("INFOCSE_TRACEBACK"):
            raise
        why = f"{type(error).__name__}: {error}"
        return Section(anchor, title, [Note(f"This part can't be made of what the run's files have ({why}).")])


def write_page(root: Storage, name: str) -> Storage:
    """Write `<storage>/<name>/report.html`, unless it is there with just this content.

    Args:
        root: the storage that runs share.
        name: of the run.

    Returns:
        The file.

    Raises:
        ValueError: there is no such run, or its manifest is damaged.
    """
    file, page = root / name / PAGE, page_of(Record.read(root, name))
    # A command repeated for a finished run has nothing to do, and does nothing.
    if not file.exists() or file.read_bytes() != page:
        file.write_bytes(page, content_type=HTML)
    return file


def write_comparison(root: Storage, names: Sequence[str]) -> Storage:
    """Write a page that compares runs, `<storage>/report-<name>+<name>.html`.

    Args:
        root: the storage that runs share.
        names: of two runs or more.

    Raises:
        ValueError: there is no such run, or its manifest is damaged.
    """
    records = [Record.read(root, name) for name in names]
    links = [(f"{name}/{PAGE}", f"Report of {name}") for name in names if (root / name / PAGE).exists()]
    head = {"label": None, "line": None, "about": f"{len(records)} runs of {root}", "links": links}
    file = root / f"report-{_joined(names)}.html"
    file.write_bytes(render(f"Runs: {', '.join(names)}", head, compared_sections(records)), content_type=HTML)
    return file


def _joined(names: Sequence[str]) -> str:
    """A file's name for several runs."""
    joined = "+".join(names)  # which no name has in it
    if len(joined) <= _LONGEST_NAME:
        return joined
    return f"{names[0][:_LONGEST_NAME]}-{hashlib.blake2b(joined.encode(), digest_size=4).hexdigest()}"


def end_with_page(storage: str, name: str) -> str | None:
    """Write the page of a run that has just ended and say where it is; a page never fails a run.

    Args:
        storage: the setting.
        name: of the run.

    Returns:
        Its path or URI; None where it couldn't be written, of which a line warns.
    """
    try:
        file = write_page(Storage.open(storage), name)
    except Exception as error:
        if os.environ.get("INFOCSE_TRACEBACK"):
            raise
        say(
            f"warning: the report page wasn't written: {type(error).__name__}: {error}; "
            f"the run itself is finished, and `infocse report {name} --storage {storage}` tries again"
        )
        return None
    say(f"report: {file}")
    return file.uri
