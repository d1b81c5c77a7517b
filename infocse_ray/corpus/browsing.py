"""The Web Browsing corpus of the paper: a document is the sequence of page titles that a user went through.

1. JSON Lines with a list of titles (`history`, or the column corpus.sentences names), or TSV whose header line names
   the columns and whose cell has the titles as a JSON list or separated by ` || `; quotes are literal otherwise.
2. A title is a sentence and never split; of a title that repeats at once (a reload) one is kept.
3. The counterpart is the advertisement clicked or any other target (`target`, or the column corpus.counterpart names).

Users come back, so that a user is no id. Without corpus.id the id is a hash of the titles, the file and the row: equal
sequences of different users stay apart. A separator with a single bar would cut titles ("Armchairs | Shop").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby

from infocse_ray.corpus.kind import (
    CorpusPlan,
    first_lines,
    look_into,
    place_and_columns,
    refuse_columns,
    refuse_unreadable,
    settle_columns,
    settle_keys,
    some_of,
)
from infocse_ray.corpus.labels import LabelTable
from infocse_ray.corpus.read import (
    READERS,
    Piece,
    SourceRow,
    json_rows,
    naming,
    open_lines,
    parse_tab_line,
    plain_name,
    reader_of,
)
from infocse_ray.corpus.schema import stable_hash
from infocse_ray.settings import Corpus

FILES = f"{', '.join(READERS['jsonl'])} or .tsv (also .gz, .xz, .zst)"
_SEPARATOR = "||"
_DEFAULTS = {"sentences": "history", "counterpart": "target", "split": "split"}
labels = None


def part_of(path: str) -> str:
    """`jsonl` or `tsv`."""
    return "tsv" if plain_name(path).endswith(".tsv") else "jsonl" if reader_of(path) == "jsonl" else ""


def plan(corpus: Corpus, files: dict[str, list[str]]) -> CorpusPlan:
    """Settle the columns by a look into some files; of TSV, see too that the titles can be told apart."""
    refuse_columns(corpus, ("text",))
    ((kind, uris),) = files.items()
    if kind == "jsonl":
        looks = {uri: look_into(uri, kind, corpus.encoding) for uri in some_of(uris)}
        refuse_unreadable(looks, corpus.encoding)
        there = {uri: look.columns for uri, look in looks.items()}
        settled = settle_keys(corpus, looks, _DEFAULTS)
    else:
        there = {uri: set(_header(uri, corpus.encoding)[1]) for uri in some_of(uris)}
        settled = CorpusPlan(settle_columns(corpus, there, _DEFAULTS))
    columns = settled.columns
    where, it_has = place_and_columns(there)
    if "sentences" not in columns:
        raise ValueError(
            f"corpus.sentences: {where}: no column `history`; name the one that has the titles, of {it_has}, with "
            "corpus.sentences"
        )
    if kind == "tsv" and not any(_has_titles(uri, columns["sentences"], corpus.encoding) for uri in there):
        raise ValueError(
            f"corpus.sentences = {columns['sentences']!r}: {where}: no cell among the first has two titles; separate "
            f"titles by ` {_SEPARATOR} ` or make the cell a JSON list"
        )
    return settled


def _header(uri: str, encoding: str) -> tuple[int, list[str]]:
    """The header line of a TSV file: the byte it begins at and the names; an empty file has none."""
    for start, _, line in first_lines(uri, encoding):
        return start, [name.strip() for name in parse_tab_line(line)[0] or ()]
    return -1, []


def _has_titles(uri: str, column: str, encoding: str) -> bool:
    """Whether one of the first rows has two titles."""
    header, names = _header(uri, encoding)
    for start, _, line in first_lines(uri, encoding):
        values, _ = _cells(line, names)
        if start != header and values and isinstance(titles := _titles_in(values.get(column)), list) and titles[1:]:
            return True
    return False


def rows(piece: Piece, columns: dict[str, str], corpus: Corpus, labels: LabelTable | None) -> Iterator[SourceRow]:
    """A sequence a line."""
    with naming(piece.uri):
        for row in json_rows(piece) if piece.kind == "jsonl" else _tab_rows(piece):
            if row.values is None:
                yield row
                continue
            values = {role: row.values.get(column) for role, column in columns.items()}
            if piece.kind == "tsv":
                values = {role: value or None for role, value in values.items()}
                values["sentences"] = _titles_in(values["sentences"])
            values["sentences"] = _without_reloads(values["sentences"])
            if "id" not in values:
                # As JSON, which a lone surrogate does not stop.
                content = json.dumps([piece.name, row.number, values["sentences"]])
                values["id"] = f"{stable_hash(content):016x}"
            yield row._replace(values=values)


def _tab_rows(piece: Piece) -> Iterator[SourceRow]:
    """The lines of a TSV file but the header, by column."""
    header, names = _header(piece.uri, piece.encoding)
    for start, number, line in open_lines(piece):
        if start != header:
            yield SourceRow(start, *_cells(line, names), number)


def _cells(line: bytes, names: list[str]) -> tuple[dict[str, str] | None, str | None]:
    cells, reason = parse_tab_line(line)
    if cells is None:
        return None, reason
    if len(cells) != len(names):
        return None, "not as many columns as the header"
    return dict(zip(names, cells, strict=True)), None


def _titles_in(cell: str | None) -> object:
    """The titles of a cell, a list; a cell that begins as a JSON list and is none is left a text."""
    if cell is None or not cell.strip():
        return None
    if re.match(r'\s*\[\s*("|\]|null\b)', cell):
        try:
            return json.loads(cell)
        except (ValueError, RecursionError):
            return cell
    return cell.split(_SEPARATOR)


def _without_reloads(titles: object) -> object:
    """The titles with single spaces, one of each run of equal ones; what is no list of texts stays what it is."""
    if not isinstance(titles, list) or not all(title is None or isinstance(title, str) for title in titles):
        return titles
    spaced = (" ".join((title or "").split()) for title in titles)
    return [title for title, _ in groupby(filter(None, spaced))]
