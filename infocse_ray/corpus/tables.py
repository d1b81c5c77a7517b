"""Corpora of kind `auto`: Parquet, JSON Lines or text files whose rows or files are documents, labels included."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from infocse_ray.corpus import label_files
from infocse_ray.corpus.kind import ROLES, Plan, first_lines, place_and_columns, settle_columns, some_of
from infocse_ray.corpus.labels import Labels
from infocse_ray.corpus.read import DOCUMENTS, READERS, Piece, Row, parse_json_line, read_rows, reader_of
from infocse_ray.errors import UnreadableFile
from infocse_ray.settings import Corpus
from infocse_ray.storage.errors import explanation
from infocse_ray.storage.folder import open_filesystem
from infocse_ray.storage.redact import redacted

_LOOKS_AT_ONCE = 16
FILES = f".parquet or one of {', '.join(READERS['jsonl'] + READERS['text'])} (these also .gz, .xz, .zst)"
labels = label_files.labels
part_of = reader_of


def plan(corpus: Corpus, files: dict[str, list[str]]) -> Plan:
    """Settle the columns by a look into the files, the documents' all of one kind."""
    of_labels = label_files.columns_of(corpus, files)
    (kind,) = files.keys() & DOCUMENTS
    found = _plan_documents(corpus, kind, files[kind], of_labels)
    if of_labels and "id" not in found.columns:
        raise ValueError(
            f"corpus.labels = {corpus.labels!r}: the documents have no id that labels could name; name its column with "
            "corpus.id"
        )
    said = {role: column for role, column in of_labels.items() if role != "id"}
    return found._replace(columns=found.columns | said)


def _plan_documents(corpus: Corpus, kind: str, uris: list[str], of_labels: dict[str, str]) -> Plan:
    if kind == "text":
        return Plan(_text_columns(corpus, of_labels))
    if kind == "parquet":
        looks = _look_into_all(uris, _parquet_look)
    else:
        looks = _look_into_all(some_of(uris), _json_look)
    there = {uri: found.columns for uri, found in looks.items()}
    columns = _columns(corpus, there, of_labels.keys() - {"id"}, all_have=kind == "parquet")
    return Plan(columns, {uri: found.row_groups for uri, found in looks.items()})


def rows(piece: Piece, columns: dict[str, str], corpus: Corpus, labels: Labels | None) -> Iterator[Row]:
    """The rows of a piece; what is a row of a text file, the settings say. Label files, if any, give counterparts."""
    if labels is not None:
        columns = {role: column for role, column in columns.items() if role != "counterpart"}
    for row in read_rows(piece, columns, corpus.text_files == "line"):
        if labels is not None and row.values is not None and (label := labels.find(str(row.values["id"]))) is not None:
            row.values["counterpart"] = label.counterparts
            if "split" in columns:
                row.values["split"] = label.split or row.values.get("split")
        yield row


class _Look(NamedTuple):
    """What a look into a file shows."""

    columns: set[str]
    row_groups: int = 0


def _look_into_all(uris: list[str], look: Callable[[str], _Look]) -> dict[str, _Look]:
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        return dict(zip(uris, pool.map(look, uris), strict=True))


def _parquet_look(uri: str) -> _Look:
    filesystem, path = open_filesystem(uri)
    try:
        with pq.ParquetFile(filesystem.open_input_file(path)) as file:
            return _Look(set(file.schema_arrow.names), file.num_row_groups)
    except (OSError, pa.ArrowInvalid) as error:
        shown = redacted(uri)
        raise explanation(error, shown) or UnreadableFile(
            redacted(f"corpus.source: {shown}: can't be read as Parquet: {error}")
        ) from error


def _json_look(uri: str) -> _Look:
    return _Look(json_keys(uri))


def json_keys(uri: str) -> set[str]:
    """Keys of the first readable rows of a file of JSON Lines."""
    return {key for _, line in first_lines(uri) for key in parse_json_line(line)[0] or {}}


def _text_columns(corpus: Corpus, of_labels: Collection[str]) -> dict[str, str]:
    for role in ("id", "sentences", "counterpart", "split"):
        if (value := getattr(corpus, role)) and role not in of_labels:
            raise ValueError(f"corpus.{role} = {value!r}: text files have no columns; leave it out")
    return {"id": "id", "text": "text"} if corpus.text_files == "document" else {"text": "text"}


def _columns(corpus: Corpus, there: dict[str, set[str]], elsewhere: Collection[str], all_have: bool) -> dict[str, str]:
    """Which column plays which role; every file must have those that every document needs, if all are known."""
    columns = settle_columns(corpus, there, {role: role for role in ROLES}, elsewhere)
    if corpus.text and not corpus.sentences:
        columns.pop("sentences", None)
    if "sentences" in columns:
        columns.pop("text", None)
    elif "text" not in columns:
        where, it_has = place_and_columns(there)
        raise ValueError(
            f"corpus.text: {where}: neither a `text` nor a `sentences` column; name one of {it_has} with corpus.text "
            "or corpus.sentences"
        )
    if all_have:
        for role in columns.keys() - {"counterpart", "split"}:
            for uri, its in there.items():
                if columns[role] not in its:
                    raise ValueError(
                        redacted(f"corpus.{role}: {uri} has no column {columns[role]!r}, which other files have")
                    )
    return columns
