"""CSV and TSV: a header line that names the columns, cells that may be quoted (RFC 4180), also over several lines."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_LONGEST_CELL = 2**24
"""Characters: what is longer is a quote that nothing closes."""
_QUOTE = f"is there a quote that nothing closes? A cell has at most {_LONGEST_CELL:,} letters"
_DELIMITERS = (",", ";", "\t")


class Record(NamedTuple):
    """A row of a CSV file."""

    line: int
    """The line it begins in, from 1; the header is line 1 as a rule."""
    cells: dict[str, str] | None
    """By column; None where there are not as many cells as columns."""


class Unreadable(ValueError):
    """The file can't be taken apart; the message says where, without naming the file."""


class _Opened(NamedTuple):
    """A file whose header was read."""

    columns: list[str]
    above: int
    """Blank lines above the header, which the reader's count leaves out."""
    reader: Any
    """Of the csv module; its next row is the first below the header."""


def read_header(stream: io.BufferedReader, tabs: bool) -> list[str]:
    """The names of the columns, none in an empty file; arguments and errors are those of `read_records`."""
    return _open(stream, tabs).columns


def read_records(stream: io.BufferedReader, tabs: bool) -> Iterator[Record]:
    """The rows below the header, in their order.

    The cells of a TSV file are separated by tabs; those of a CSV file by commas, or, where the header has none, by
    semicolons or tabs. Text that isn't UTF-8 becomes lone surrogates.

    Args:
        stream: the file as UTF-8.
        tabs: whether it is TSV.

    Raises:
        Unreadable: a quote is never closed.
    """
    names, above, reader = _open(stream, tabs)
    begins = above + reader.line_num + 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield Record(begins, dict(zip(names, cells, strict=True)) if len(cells) == len(names) else None)
            begins = above + reader.line_num + 1
    except csv.Error as error:
        raise Unreadable(f"line {begins}: {error}: {_QUOTE}") from error


def _open(stream: io.BufferedReader, tabs: bool) -> _Opened:
    csv.field_size_limit(_LONGEST_CELL)
    lines = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
    header = ""
    above = -1
    while not header.strip() and (header := next(lines, "")):
        above += 1
    delimiter = "\t" if tabs else next((mark for mark in _DELIMITERS if mark in header), ",")
    reader = csv.reader(itertools.chain([header], lines), delimiter=delimiter)
    try:
        return _Opened([name.strip() for name in next(reader, [])], above, reader)
    except csv.Error as error:
        raise Unreadable(f"the header: {error}: {_QUOTE}") from error


def value_of(cell: str) -> str | list[str] | None:
    """A cell: None if it is empty, a list where it is a JSON list of texts, else the text."""
    if not cell.strip():
        return None
    if re.match(r'\s*\[\s*("|\])', cell):
        try:
            texts = json.loads(cell)
        except (ValueError, RecursionError):
            return cell
        if all(isinstance(text, str) for text in texts):
            return texts
    return cell
