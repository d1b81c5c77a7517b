"""Read a piece of a corpus file as rows, setting bad rows aside and naming a file that can't be read."""

from __future__ import annotations

import contextlib
import json
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from infocse_ray.corpus import delimited, json_array
from infocse_ray.corpus.streams import (
    BadContent,
    WrongEncoding,
    advice,
    check_text,
    compression_of,
    open_stream,
    plain_name,
)
from infocse_ray.errors import UnreadableFile
from infocse_ray.storage.errors import explanation
from infocse_ray.storage.folder import open_filesystem
from infocse_ray.storage.redact import redacted

READERS = {
    "parquet": (".parquet",),
    "jsonl": (".jsonl", ".json", ".ndjson"),
    "csv": (".csv", ".tsv"),
    "text": (".txt",),
}
DOCUMENTS = frozenset({*READERS, "tsv"})
"""The kinds of file that documents are read from; any other kind that a corpus has goes with the documents."""
OPTIONAL_ROLES = ("counterpart", "split")
"""Roles that not every document plays: in JSON, rows may lack the key, and the first that has it may be a late one."""
METADATA = "metadata:"
"""What the role of a column begins with that is no part of its document (`metadata.py`): it can't spoil a row."""
READ_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error, pa.ArrowException)
"""Errors that the libraries raise for a file that can't be read."""
_CONTENT_ERRORS = (BadContent, delimited.Unreadable, json_array.Unreadable)
NOT_UTF8 = "not UTF-8"
_COUNTED_BYTES = 2**20


@contextmanager
def naming(uri: str, setting: str = "source") -> Iterator[None]:
    """Make an error of reading `uri`, which that setting of `corpus` led to, one that names it.

    Raises:
        StorageUnavailable: the object store failed beyond all retries.
        UnreadableFile: it is something else.
    """
    try:
        yield
    except READ_ERRORS as error:
        shown = redacted(uri)
        raise explanation(error, shown) or UnreadableFile(
            redacted(f"corpus.{setting}: {shown}: can't be read: {error}")
        ) from error
    except _CONTENT_ERRORS as error:
        raise UnreadableFile(f"corpus.{setting}: {redacted(uri)}: {error}") from error


class Piece(NamedTuple):
    """A part of a file that is read by itself."""

    uri: str
    kind: str
    order: int
    """The file's place among the corpus' files."""
    start: int
    """First byte (JSON Lines, TSV, text) or row group (Parquet)."""
    end: int
    """Where it ends; a line belongs to the piece it begins in."""
    size: int = 0
    """About how many bytes of the file it is."""
    name: str = ""
    """The file's path below the folder that all files of the corpus are in: the id of a text file's document."""
    encoding: str = "utf-8"
    """Of the text; a file of another encoding than UTF-8 is one piece."""
    cut: bool = False
    """Whether the file is cut by bytes, so that a piece doesn't know how many lines are before it."""


class SourceRow(NamedTuple):
    """One row as read: its columns, or why it can't be read."""

    number: int
    """Orders the rows of a file: byte offset of the line, or row number."""
    values: dict[str, Any] | None
    reason: str | None
    line: int | None = None
    """The line of the piece that it begins in, from 1; None where `number` is what people count by, too: the row of a
    Parquet file or the item of a JSON array, from 0."""

    @property
    def shown(self) -> int:
        """What names the row to people."""
        return self.number if self.line is None else self.line


class Line(NamedTuple):
    """A line of a file."""

    start: int
    """The byte it begins at."""
    number: int
    """In its piece, from 1, blank lines counted."""
    data: bytes


def reader_of(path: str) -> str:
    """The kind of a file by its ending, "" when it is none that can be read."""
    name = plain_name(path)
    kind = next((kind for kind, endings in READERS.items() if name.endswith(endings)), "")
    return "" if kind == "parquet" and compression_of(path) else kind


def read_rows(piece: Piece, columns: dict[str, str], by_line: bool, setting: str = "source") -> Iterator[SourceRow]:
    """The rows of a piece, keyed by role (`id`, `text`, `sentences`, `counterpart`, `split`); errors name `setting`.

    Raises:
        UnreadableFile: the file is missing, truncated, or not what its name says.
    """
    with naming(piece.uri, setting):
        for row in _rows(piece, columns, by_line):
            if row.reason == NOT_UTF8 and piece.encoding != "utf-8":
                row = row._replace(reason=f"not {piece.encoding.upper()}")
            yield row


def _rows(piece: Piece, columns: dict[str, str], by_line: bool) -> Iterator[SourceRow]:
    if piece.kind == "parquet":
        yield from _parquet_rows(piece, columns)
    elif piece.kind == "csv":
        yield from _csv_rows(piece, columns)
    elif piece.kind == "jsonl":
        for row in json_rows(piece):
            values = row.values and {
                role: row.values.get(key)
                for role, key in columns.items()
                if key in row.values or role not in OPTIONAL_ROLES
            }
            yield row._replace(values=values)
    elif by_line:
        for start, number, line in open_lines(piece):
            yield _text_row(start, line)._replace(line=number)
    else:
        with open_stream(piece.uri, piece.encoding) as stream:
            row = _text_row(0, stream.read())
        if row.values is not None:
            row.values["id"] = piece.name
        yield row


def open_lines(piece: Piece) -> Iterator[Line]:
    """The lines that begin in the piece; blank ones are skipped.

    Raises:
        One of READ_ERRORS: the file is missing, truncated, or not compressed as its name says.
    """
    to_the_end = compression_of(piece.uri) is not None or piece.encoding != "utf-8"
    with open_stream(piece.uri, piece.encoding) as stream:
        position = piece.start
        if position:
            # The line that crosses the boundary is the previous piece's.
            stream.seek(position - 1)
            position += len(stream.readline()) - 1
        number = 0
        while position < piece.end or to_the_end:
            line = stream.readline()
            if not line:
                return
            number += 1
            if line.strip():
                yield Line(position, number, line)
            position += len(line)


def count_lines(piece: Piece) -> int:
    """How many lines begin in a piece of a cut file, blank ones counted.

    Raises:
        UnreadableFile: the file is missing.
    """
    with naming(piece.uri), open_stream(piece.uri) as stream:
        # A line begins at the file's first byte and behind every line break.
        stream.seek(max(0, piece.start - 1))
        left, count = piece.end - max(1, piece.start), int(piece.start == 0)
        while left > 0 and (part := stream.read(min(left, _COUNTED_BYTES))):
            count, left = count + part.count(b"\n"), left - len(part)
        return count


def is_array(uri: str, encoding: str = "utf-8") -> bool:
    """Whether a file of kind `jsonl` is a JSON array, not lines: only one called .json can be.

    Raises:
        One of READ_ERRORS: the file is missing, or not compressed as its name says.
    """
    if not plain_name(uri).endswith(".json"):
        return False
    with open_stream(uri, encoding) as stream:
        return json_array.begins_array(stream)


def json_rows(piece: Piece) -> Iterator[SourceRow]:
    """The objects of a piece of JSON Lines, or of a JSON array, with all their keys.

    Raises:
        One of READ_ERRORS, or json_array.Unreadable.
    """
    if piece.start or not is_array(piece.uri, piece.encoding):
        for start, number, line in open_lines(piece):
            yield SourceRow(start, *parse_json_line(line), number)
        return
    with open_stream(piece.uri, piece.encoding) as stream:
        for number, item in enumerate(json_array.read_items(stream)):
            if isinstance(item, dict):
                yield SourceRow(number, item, None)
            else:
                yield SourceRow(number, None, "not a JSON object")


def parse_json_line(line: bytes) -> tuple[dict[str, Any] | None, str | None]:
    """A JSON object, or why it is none."""
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return None, NOT_UTF8
    except (ValueError, RecursionError):  # ValueError: an integer of more digits than Python converts, too
        return None, "not JSON"
    return (row, None) if isinstance(row, dict) else (None, "not a JSON object")


def parse_tab_line(line: bytes) -> tuple[list[str] | None, str | None]:
    """The cells of a tab-separated line, in which a quote is a letter like others, or why it has none."""
    try:
        return line.decode("utf-8-sig").rstrip("\r\n").split("\t"), None
    except UnicodeDecodeError:
        return None, NOT_UTF8


def _text_row(number: int, data: bytes) -> SourceRow:
    try:
        return SourceRow(number, {"text": data.decode("utf-8-sig")}, None)
    except UnicodeDecodeError:
        return SourceRow(number, None, NOT_UTF8)


def csv_records(piece: Piece) -> Iterator[delimited.Record]:
    """The rows of a CSV or TSV file, which is one piece.

    Raises:
        One of READ_ERRORS, or delimited.Unreadable.
    """
    with open_stream(piece.uri, piece.encoding) as stream:
        yield from delimited.read_records(stream, tabs=plain_name(piece.uri).endswith(".tsv"))


def csv_columns(piece: Piece) -> list[str]:
    """The columns of a CSV or TSV file, by its header line.

    Raises:
        One of READ_ERRORS, delimited.Unreadable, or WrongEncoding.
    """
    with open_stream(piece.uri, piece.encoding) as stream:
        columns = delimited.read_header(stream, tabs=plain_name(piece.uri).endswith(".tsv"))
    text = _encodable(dict(enumerate(columns)))
    if not text or "\0" in "".join(columns):
        check_text(piece.uri, piece.encoding)
    if not text:
        raise WrongEncoding(f"its header isn't {piece.encoding.upper()}; {advice(piece.encoding)}")
    return columns


def _csv_rows(piece: Piece, columns: dict[str, str]) -> Iterator[SourceRow]:
    with open_stream(piece.uri, piece.encoding) as stream:
        header = delimited.read_header(stream, tabs=plain_name(piece.uri).endswith(".tsv"))
    # Others of one name, such as empty ones, are left alone: nobody reads them.
    if doubled := [column for column in columns.values() if header.count(column) > 1]:
        raise BadContent(f"has several columns {doubled[0]!r}; give each a name of its own")
    for line, cells in csv_records(piece):
        if cells is None:
            yield SourceRow(line, None, "not as many columns as the header", line)
            continue
        for role in ("id", "text", "sentences"):
            if role in columns and columns[role] not in cells:
                raise BadContent(f"has no column {columns[role]!r}, which other files have")
        values = {role: delimited.value_of(cells[c]) if c in cells else None for role, c in columns.items()}
        # A text or an id that looks like a list is one all the same.
        values |= {
            role: cells[column] or None
            for role, column in columns.items()
            if column in cells and (role in ("id", "text", "split") or role.startswith(METADATA))
        }
        its = {role: value for role, value in values.items() if not role.startswith(METADATA)}
        yield SourceRow(line, values, None, line) if _encodable(its) else SourceRow(line, None, NOT_UTF8, line)


def _encodable(values: dict[Any, Any]) -> bool:
    try:
        "\n".join(text for v in values.values() for text in (v if isinstance(v, list) else [v or ""])).encode()
    except UnicodeEncodeError:
        return False
    return True


def _parquet_rows(piece: Piece, columns: dict[str, str]) -> Iterator[SourceRow]:
    filesystem, path = open_filesystem(piece.uri)
    file = pq.ParquetFile(filesystem.open_input_file(path))
    names = file.schema_arrow.names
    there = {role: column for role, column in columns.items() if column in names}
    if doubled := [column for column in there.values() if names.count(column) > 1]:
        raise BadContent(f"has several columns {doubled[0]!r}; give each a name of its own")
    absent = dict.fromkeys(columns.keys() - there.keys())
    # Summed up once: files that were written bit by bit have tens of thousands of row groups.
    firsts = list(accumulate((file.metadata.row_group(g).num_rows for g in range(piece.end)), initial=0))
    for group in range(piece.start, piece.end):
        first = firsts[group]
        done = 0
        for batch in file.iter_batches(1024, row_groups=[group], columns=sorted(set(there.values()))):
            for i in range(len(batch)):
                try:
                    values = {
                        role: _any(batch.column(c)[i]) if role.startswith(METADATA) else _python(batch.column(c)[i])
                        for role, c in there.items()
                    }
                    yield SourceRow(first + done + i, values | absent, None)
                except UnicodeDecodeError:
                    yield SourceRow(first + done + i, None, NOT_UTF8)
            done += len(batch)


def _any(scalar: pa.Scalar) -> Any:
    """A value of any type; None where Python has none for it, such as a time in the year 10,000."""
    with contextlib.suppress(ValueError, OverflowError):
        return scalar.as_py()
    other = pa.timestamp("us", "UTC") if pa.types.is_timestamp(scalar.type) else pa.binary()
    with contextlib.suppress(ValueError, OverflowError, pa.ArrowException):  # of an unknown zone, or no UTF-8
        return scalar.cast(other).as_py()
    return None


def _python(scalar: pa.Scalar) -> Any:
    value = scalar.as_py()
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, list):
        return [v.decode("utf-8") if isinstance(v, bytes) else v for v in value]
    return value
