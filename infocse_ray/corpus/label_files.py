"""Labels of kind `auto` in files of their own (`corpus.labels`): a row is a document's id and its counterpart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow.parquet as pq

from infocse_ray.corpus.documents import Rejected, counterpart_texts, given_id, no_split, split_of
from infocse_ray.corpus.kind import look_for, look_into, place_and_columns, refuse_unreadable, some_of
from infocse_ray.corpus.labels import LabelTable, LabelWriter
from infocse_ray.corpus.read import READERS, Piece, SourceRow, naming, read_rows, reader_of
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.settings import Corpus
from infocse_ray.storage.folder import open_filesystem

_OF = " of labels"
FILES = f".parquet or one of {', '.join(READERS['jsonl'] + READERS['csv'])} (these also .gz, .xz, .zst)"


def part_of(path: str) -> str:
    """What a file of labels is; never one of `DOCUMENTS`."""
    kind = reader_of(path)
    return kind + _OF if kind in ("parquet", "jsonl", "csv") else ""


def columns_of(corpus: Corpus, files: dict[str, list[str]]) -> dict[str, str]:
    """Which column of the label files plays which role, by a look into some of them; none without label files.

    Raises:
        ValueError: there is no id or no counterpart.
        UnreadableFile: a file can't be read at all.
    """
    there: dict[str, set[str]] = {}
    columns = _named(corpus)
    keys = {columns["id"], columns["counterpart"]}
    for part, uris in files.items():
        if part == f"parquet{_OF}":
            there |= {uri: _parquet_columns(uri) for uri in some_of(uris)}
        elif part.endswith(_OF):
            kind = part.removesuffix(_OF)
            looks = {uri: look_into(uri, kind, corpus.encoding, "labels") for uri in some_of(uris)}
            refuse_unreadable(looks, corpus.encoding, "labels")
            if kind == "jsonl":
                looks = look_for(keys, looks, corpus.encoding, "labels")
            there |= {uri: look.columns for uri, look in looks.items()}
    if not there:
        return {}
    where, it_has = place_and_columns(there)
    for role in ("id", "counterpart"):
        if not any(columns[role] in its for its in there.values()):
            raise ValueError(
                f"corpus.labels: {where}: no column {columns[role]!r}; there is {it_has}; name it with corpus.{role}"
            )
    if not any(columns["split"] in its for its in there.values()):
        del columns["split"]
    return columns


def _named(corpus: Corpus) -> dict[str, str]:
    return {role: getattr(corpus, role) or role for role in ("id", "counterpart", "split")}


def _parquet_columns(uri: str) -> set[str]:
    filesystem, path = open_filesystem(uri)
    with naming(uri, "labels"), pq.ParquetFile(filesystem.open_input_file(path)) as file:
        return set(file.schema_arrow.names)


def labels(companions: list[Piece], corpus: Corpus) -> LabelTable:
    """Counterparts and split by id.

    Where rows of a document name several splits, it is in the most held out: what is to be validated or tested on is
    never trained on. Rows of another split are set aside.
    """
    given = list(_given(companions, corpus))
    split_by_name: dict[str | None, str] = {}
    for one in given:
        if one.split is not None:
            split_by_name[one.name] = max(split_by_name.get(one.name, one.split), one.split, key=SPLITS.index)
    writer = LabelWriter()
    for name, texts, split, reason, uri, row in given:
        if reason is None and split is not None and split != split_by_name[name]:
            reason = "label of another split than its document's"
        if reason is not None or name is None:
            writer.line(name, uri, row, reason or "")
            continue
        for text in texts:
            writer.add(name, name, text, split_by_name.get(name))
        writer.line(name, uri, row, "label of a missing document", label=True)
    return writer.labels()


class _Given(NamedTuple):
    """A row of a label file."""

    name: str | None
    """The document's id."""
    texts: list[str]
    split: str | None
    reason: str | None
    """Why it is set aside."""
    uri: str
    row: int


def _given(companions: list[Piece], corpus: Corpus) -> Iterator[_Given]:
    for piece in companions:
        for row in _rows(piece, _named(corpus)):
            values = row.values or {}
            name = given_id(values)
            texts, split, reason = [], None, row.reason
            try:
                if reason is None and name is None:
                    raise Rejected("label without an id")
                if reason is None and name is not None:
                    name.encode()
                    split = None if no_split(values.get("split")) else split_of(values["split"])
                    if not (texts := counterpart_texts(values.get("counterpart"))):
                        raise Rejected("label without a text")
            except UnicodeEncodeError:
                name, reason = None, "not UTF-8"
            except Rejected as rejected:
                split, reason = None, str(rejected)
            yield _Given(name, texts, split, reason, piece.uri, row.shown)


def _rows(piece: Piece, columns: dict[str, str]) -> Iterator[SourceRow]:
    kind = piece.kind.removesuffix(_OF)
    whole = piece._replace(kind=kind)
    if kind == "parquet":
        filesystem, path = open_filesystem(piece.uri)
        with naming(piece.uri, "labels"), pq.ParquetFile(filesystem.open_input_file(path)) as file:
            whole = whole._replace(end=file.num_row_groups)
    return read_rows(whole, columns, by_line=False, setting="labels")
