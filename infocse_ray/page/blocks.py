"""What sections of the page are made of; the templates turn each kind into HTML, escaping all text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup


class Table(NamedTuple):
    """A table."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    """The first cell names the row."""
    folded: bool = False
    """Whether it is shown only when it is asked for."""
    kind: str = "table"


class Figure(NamedTuple):
    """A plot, and the figures behind it."""

    title: str
    svg: Markup
    table: Table
    kind: str = "figure"


class Note(NamedTuple):
    """A paragraph; of what is missing: why."""

    text: str
    link: str | None = None
    """A file beside the page that the text leads to."""
    kind: str = "note"


class Lines(NamedTuple):
    """A list of short texts."""

    texts: Sequence[str]
    kind: str = "lines"


class Question(NamedTuple):
    """A question before and after, with what was found first."""

    content: dict[str, Any]
    """See `retrieval.examples.Example.content`."""
    better: bool
    folded: bool = False
    """Whether it is shown only when it is asked for."""
    kind: str = "question"


Block = Table | Figure | Note | Lines | Question


class Section(NamedTuple):
    """A part of the page with a heading."""

    anchor: str
    title: str
    blocks: Sequence[Block]


def listed(caption: str, head: Sequence[str], rows: Sequence[Sequence[Any]], folded: bool = False) -> Table:
    """A table of texts and numbers, these as people write them; None is an empty cell."""
    return Table(caption, head, [[shown(cell) for cell in row] for row in rows], folded)


def shown(value: Any) -> str:
    """A cell: whole numbers with commas, others with four significant digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def thinned(rows: Sequence[Any], most: int = 40) -> Sequence[Any]:
    """At most so many of the rows, evenly, the first and the last among them."""
    if len(rows) <= most:
        return rows
    return [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]
