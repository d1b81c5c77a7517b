"""CSV and TSV: a header line that names the columns, cells that may be quoted (RFC 4180), also over several lines."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

_LONGEST_CELL = 2**24
"""Characters: what is longer is a quote that nothing closes."""
_QUOTE = "is there a quote that nothing closes, or none but one that text follows? Inside a cell quotes are doubled"
_DELIMITERS = (",", ";", "\t")
_END = "\x1aend of the file\x1a"
"""A line behind the last one, by which a quote is known that is still open there."""


class Record(NamedTuple):
    """A row of a CSV file."""

    line: int
    """The line it begins in, from 1; the header is line 1 as a rule."""
    cells: dict[str, str] | None
    """By column; None where there are not as many cells as columns."""


class Unreadable(ValueError):
    """The file can't be taken apart; the message says where, without naming the file."""


class _Rows:
    """The rows of a file, each with the line that it begins in. A quote that isn't closed is an error.

    The csv module takes what follows such a quote, up to the next one or the file's end, for one cell.
    """

    def __init__(self, lines: Iterator[str], delimiter: str, above: int) -> None:
        """Begin.

        Args:
            lines: of the file.
            delimiter: between cells.
            above: lines before the first of `lines`.
        """
        self._lines, self._delimiter = itertools.chain(lines, [_END]), delimiter
        self._taken: list[str] = []
        self._blanks = re.compile(rf'" +(?=[{re.escape(delimiter)}\r\n]|$)')
        self._reader = csv.reader(self._each(), delimiter=delimiter)
        self._begins = above + 1

    def _each(self) -> Iterator[str]:
        for line in self._lines:
            self._taken.append(line)
            yield line

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        """Rows in their order.

        Raises:
            Unreadable: a quote isn't closed.
        """
        try:
            for cells in self._reader:
                if len(self._taken) > 1:  # its end was taken on trust
                    # Blanks behind a quote are no text.
                    taken = [self._blanks.sub('"', line) for line in self._taken]
                    next(csv.reader(taken, delimiter=self._delimiter, strict=True))
                begins, self._begins = self._begins, self._begins + len(self._taken)
                self._taken.clear()
                if cells != [_END]:
                    yield begins, cells
        except csv.Error as error:
            raise Unreadable(f"line {self._begins}: {error}: {_QUOTE}") from error


def read_header(stream: io.BufferedReader, tabs: bool) -> list[str]:
    """The names of the columns, none in an empty file; arguments and errors are those of `read_records`."""
    return _open(stream, tabs)[0]


def read_records(stream: io.BufferedReader, tabs: bool) -> Iterator[Record]:
    """The rows below the header, in their order.

    The cells of a TSV file are separated by tabs; those of a CSV file by commas, or, where the header has none, by
    semicolons or tabs. Text that isn't UTF-8 becomes lone surrogates.

    Args:
        stream: the file as UTF-8.
        tabs: whether it is TSV.

    Raises:
        Unreadable: a quote is never closed, or by one that text follows, rows below.
    """
    names, rows = _open(stream, tabs)
    for begins, cells in rows:
        if any(cell.strip() for cell in cells):
            yield Record(begins, dict(zip(names, cells, strict=True)) if len(cells) == len(names) else None)


def _open(stream: io.BufferedReader, tabs: bool) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The names of the columns, and the rows below."""
    csv.field_size_limit(_LONGEST_CELL)
    lines = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
    header, above = "", -1
    while not header.strip() and (header := next(lines, "")):
        above += 1
    delimiter = "\t" if tabs else next((mark for mark in _DELIMITERS if mark in header), ",")
    rows = iter(_Rows(itertools.chain([header], lines), delimiter, max(0, above)))
    _, names = next(rows, (0, []))
    return [name.strip() for name in names], rows


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
