"""Read a piece of a corpus file as rows, setting bad rows aside and naming a file that can't be read."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from infocse_ray.errors import UnreadableFile
from infocse_ray.storage.errors import explanation
from infocse_ray.storage.folder import open_filesystem, without_query
from infocse_ray.storage.redact import redacted

READERS = {"parquet": (".parquet",), "jsonl": (".jsonl", ".json", ".ndjson"), "text": (".txt",)}
DOCUMENTS = frozenset({*READERS, "tsv"})
"""The kinds of file that documents are read from; any other kind that a corpus has goes with the documents."""
_COMPRESSIONS = {".gz": "gz", ".xz": "xz", ".zst": "zst"}
READ_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error, pa.ArrowException)
"""What a file that can't be read makes the libraries raise."""


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


class Row(NamedTuple):
    """One row as read: its columns, or why it can't be read."""

    number: int
    """Orders the rows of a file: byte offset of the line, or row number."""
    values: dict[str, Any] | None
    reason: str | None


def compression_of(path: str) -> str | None:
    """How a file is compressed, by its ending."""
    return next((c for ending, c in _COMPRESSIONS.items() if without_query(path).endswith(ending)), None)


def plain_name(path: str) -> str:
    """A file's name without its folder and the ending that says how it is compressed."""
    name = without_query(path).rpartition("/")[2]
    return next((name.removesuffix(ending) for ending in _COMPRESSIONS if name.endswith(ending)), name)


def reader_of(path: str) -> str:
    """The kind of a file by its ending, "" when it is none that can be read."""
    name = plain_name(path)
    kind = next((kind for kind, endings in READERS.items() if name.endswith(endings)), "")
    return "" if kind == "parquet" and compression_of(path) else kind


def read_rows(piece: Piece, columns: dict[str, str], by_line: bool, setting: str = "source") -> Iterator[Row]:
    """The rows of a piece, keyed by role (`id`, `text`, `sentences`, `counterpart`, `split`); errors name `setting`.

    Raises:
        UnreadableFile: the file is missing, truncated, or not what its name says.
    """
    with naming(piece.uri, setting):
        if piece.kind == "parquet":
            yield from _parquet_rows(piece, columns)
        elif piece.kind == "jsonl":
            for number, line in open_lines(piece):
                values, reason = parse_json_line(line)
                yield Row(number, values and {role: values.get(c) for role, c in columns.items()}, reason)
        elif by_line:
            for number, line in open_lines(piece):
                yield _text_row(number, line)
        else:
            with _open(piece.uri) as stream:
                row = _text_row(0, stream.read())
            if row.values is not None:
                row.values["id"] = piece.name
            yield row


def open_lines(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in the piece, with their byte offsets; blank lines are skipped.

    Raises:
        One of READ_ERRORS: the file is missing, truncated, or not compressed as its name says.
    """
    with _open(piece.uri) as stream:
        position = piece.start
        if position:
            # The line that crosses the boundary is the previous piece's.
            stream.seek(position - 1)
            position += len(stream.readline()) - 1
        while position < piece.end or compression_of(piece.uri):
            line = stream.readline()
            if not line:
                return
            if line.strip():
                yield position, line
            position += len(line)


def parse_json_line(line: bytes) -> tuple[dict[str, Any] | None, str | None]:
    """A JSON object, or why it is none."""
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except (ValueError, RecursionError):  # ValueError: an integer of more digits than Python converts, too
        return None, "not JSON"
    return (row, None) if isinstance(row, dict) else (None, "not a JSON object")


def parse_tab_line(line: bytes) -> tuple[list[str] | None, str | None]:
    """The cells of a tab-separated line, in which a quote is a letter like others, or why it has none."""
    try:
        return line.decode("utf-8-sig").rstrip("\r\n").split("\t"), None
    except UnicodeDecodeError:
        return None, "not UTF-8"


def _text_row(number: int, data: bytes) -> Row:
    try:
        return Row(number, {"text": data.decode("utf-8-sig")}, None)
    except UnicodeDecodeError:
        return Row(number, None, "not UTF-8")


def _open(uri: str) -> io.BufferedReader:
    filesystem, path = open_filesystem(uri)
    raw: Any = filesystem.open_input_file(path)
    match compression_of(uri):
        case "gz":
            raw = gzip.GzipFile(fileobj=raw)
        case "xz":
            raw = lzma.LZMAFile(raw)
        case "zst":
            raw = pa.CompressedInputStream(raw, "zstd")
    return io.BufferedReader(raw, 2**20)


def _parquet_rows(piece: Piece, columns: dict[str, str]) -> Iterator[Row]:
    filesystem, path = open_filesystem(piece.uri)
    file = pq.ParquetFile(filesystem.open_input_file(path))
    there = {role: column for role, column in columns.items() if column in file.schema_arrow.names}
    absent = dict.fromkeys(columns.keys() - there.keys())
    for group in range(piece.start, piece.end):
        first = sum(file.metadata.row_group(g).num_rows for g in range(group))
        done = 0
        for batch in file.iter_batches(1024, row_groups=[group], columns=sorted(set(there.values()))):
            for i in range(len(batch)):
                try:
                    values = {role: _python(batch.column(c)[i]) for role, c in there.items()}
                    yield Row(first + done + i, values | absent, None)
                except UnicodeDecodeError:
                    yield Row(first + done + i, None, "not UTF-8")
            done += len(batch)


def _python(scalar: pa.Scalar) -> Any:
    value = scalar.as_py()
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, list):
        return [v.decode("utf-8") if isinstance(v, bytes) else v for v in value]
    return value
