"""Corpora of kind `auto`: Parquet, JSON, CSV or text files whose rows or files are documents, labels included."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from infocse_ray.corpus import label_files
from infocse_ray.corpus.documents import Rejected, id_text, no_split, split_of
from infocse_ray.corpus.kind import (
    ROLES,
    CorpusPlan,
    look_into,
    place_and_columns,
    refuse_unreadable,
    settle_columns,
    settle_keys,
    some_of,
)
from infocse_ray.corpus.labels import LabelTable
from infocse_ray.corpus.read import DOCUMENTS, OPTIONAL_ROLES, READERS, Piece, SourceRow, naming, read_rows, reader_of
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.streams import BadContent, WrongEncoding, check_text
from infocse_ray.errors import UnreadableFile
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Corpus
from infocse_ray.storage.errors import explanation
from infocse_ray.storage.folder import open_filesystem
from infocse_ray.storage.redact import redacted

Seen = TypeVar("Seen")
_LOOKS_AT_ONCE = 16
FILES = (
    f".parquet or one of {', '.join(READERS['jsonl'] + READERS['csv'] + READERS['text'])} (these also .gz, .xz, .zst)"
)
labels = label_files.labels
part_of = reader_of


def plan(corpus: Corpus, files: dict[str, list[str]]) -> CorpusPlan:
    """Settle the columns by a look into the files, the documents' all of one kind."""
    of_labels = label_files.columns_of(corpus, files)
    (kind,) = files.keys() & DOCUMENTS
    corpus_plan = _plan_documents(corpus, kind, files[kind], of_labels)
    if of_labels and "id" not in corpus_plan.columns:
        raise ValueError(
            f"corpus.labels = {corpus.labels!r}: the documents have no id that labels could name; name its column with "
            "corpus.id"
        )
    said = {role: column for role, column in of_labels.items() if role != "id"}
    return corpus_plan._replace(columns=corpus_plan.columns | said, unseen=corpus_plan.unseen - said.keys())


def _plan_documents(corpus: Corpus, kind: str, uris: list[str], of_labels: dict[str, str]) -> CorpusPlan:
    if kind == "text":
        columns = _text_columns(corpus, of_labels)
        _check_texts(corpus, some_of(uris))
        return CorpusPlan(columns)
    elsewhere, defaults = of_labels.keys() - {"id"}, {role: role for role in ROLES}
    if kind == "parquet":
        if corpus.encoding != "utf-8":
            raise ValueError(f"corpus.encoding = {corpus.encoding!r}: text in Parquet files is UTF-8; leave it out")
        footers = _look_into_all(uris, parquet_look)
        names = {uri: names for uri, (names, _) in footers.items()}
        there = {uri: set(its) for uri, its in names.items()}
        columns = _one_body(corpus, settle_columns(corpus, there, defaults, elsewhere), there)
        _check_all_have(columns, names)
        return CorpusPlan(columns, {uri: count for uri, (_, count) in footers.items()})
    looks = _look_into_all(some_of(uris), functools.partial(look_into, kind=kind, encoding=corpus.encoding))
    refuse_unreadable(looks, corpus.encoding)
    there = {uri: look.columns for uri, look in looks.items()}
    if kind == "csv":
        return CorpusPlan(_one_body(corpus, settle_columns(corpus, there, defaults, elsewhere), there))
    keys = settle_keys(corpus, looks, defaults, elsewhere)
    return keys._replace(columns=_one_body(corpus, keys.columns, there))


def rows(piece: Piece, columns: dict[str, str], corpus: Corpus, labels: LabelTable | None) -> Iterator[SourceRow]:
    """The rows of a piece; what is a row of a text file, the settings say. Label files, if any, give counterparts."""
    if labels is not None:
        columns = {role: column for role, column in columns.items() if role != "counterpart"}
    for row in read_rows(piece, columns, corpus.text_files == "line"):
        if (
            labels is not None
            and row.values is not None
            and (label := labels.find(id_text(row.values["id"]))) is not None
        ):
            row.values["counterpart"] = label.counterparts
            # Also where no row that was looked at names one.
            row.values["split"] = _more_held_out(row.values.get("split"), label.split)
        yield row


def _more_held_out(own: Any, of_labels: str | None) -> Any:
    """The split of a document: labels of what its own column or other labels hold out are never trained on.

    What its column says is left as it is where that is no split, for the row to be set aside.
    """
    if no_split(own) or of_labels is None:
        return of_labels or own
    try:
        return max(split_of(own), of_labels, key=SPLITS.index)
    except Rejected:
        return own


def _look_into_all(uris: list[str], look: Callable[[str], Seen]) -> dict[str, Seen]:
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        return dict(zip(uris, pool.map(look, uris), strict=True))


def parquet_look(uri: str) -> tuple[list[str], int]:
    """The names of the columns and the number of row groups."""
    filesystem, path = open_filesystem(uri)
    try:
        with pq.ParquetFile(filesystem.open_input_file(path)) as file:
            return file.schema_arrow.names, file.num_row_groups
    except (OSError, pa.ArrowInvalid) as error:
        shown = redacted(uri)
        raise explanation(error, shown) or UnreadableFile(
            redacted(f"corpus.source: {shown}: can't be read as Parquet: {error}")
        ) from error


def _check_texts(corpus: Corpus, uris: list[str]) -> None:
    """Refuse text files that are all empty or binary, or in another encoding as far as any letter beyond ASCII shows.

    Raises:
        UnreadableFile: they are; the message names one.
    """

    def look(uri: str) -> bool | BadContent:
        with naming(uri):
            try:
                return check_text(uri, corpus.encoding)
            except BadContent as wrong:
                return wrong

    seen = _look_into_all(uris, look)
    wrong = {uri: problem for uri, problem in seen.items() if isinstance(problem, BadContent)}
    elsewhere = {uri: problem for uri, problem in wrong.items() if isinstance(problem, WrongEncoding)}
    if len(wrong) == len(seen) or (elsewhere and True not in seen.values()):
        uri, problem = next(iter((elsewhere or wrong).items()))
        with naming(uri):
            raise problem


def _text_columns(corpus: Corpus, of_labels: Collection[str]) -> dict[str, str]:
    for role in ("id", "sentences", "counterpart", "split"):
        if (value := getattr(corpus, role)) and role not in of_labels:
            raise ValueError(f"corpus.{role} = {value!r}: text files have no columns; leave it out")
    return {"id": "id", "text": "text"} if corpus.text_files == "document" else {"text": "text"}


def _one_body(corpus: Corpus, columns: dict[str, str], there: dict[str, set[str]]) -> dict[str, str]:
    """The columns with one that has documents' texts: text, or sentences where there are both.

    Raises:
        ValueError: there is neither.
    """
    columns = dict(columns)
    if corpus.text and not corpus.sentences:
        columns.pop("sentences", None)
    if "sentences" in columns:
        columns.pop("text", None)
    elif "text" not in columns:
        where, it_has = place_and_columns(there)
        unlikely = any(mark in name for names in there.values() for name in names for mark in "|;\t")
        raise ValueError(
            f"corpus.text: {where}: neither a `text` nor a `sentences` column; name one of {it_has} with corpus.text "
            "or corpus.sentences" + ("; in CSV commas separate columns, or else semicolons or tabs" if unlikely else "")
        )
    return columns


def _check_all_have(columns: dict[str, str], names: dict[str, list[str]]) -> None:
    """See that every file has the columns that every document needs, and none of those that are read twice.

    What only some files have, and not every document needs, is said.

    Raises:
        ValueError: one doesn't, or has.
    """
    for role, column in columns.items():
        if role in OPTIONAL_ROLES and (without := [uri for uri, its in names.items() if column not in its]):
            more = f" and {len(without) - 1:,} more" if without[1:] else ""
            say(redacted(f"note: corpus.{role}: {without[0]}{more} of {len(names):,} files have no column {column!r}"))
        for uri, its in names.items():
            if column not in its and role not in OPTIONAL_ROLES:
                raise ValueError(redacted(f"corpus.{role}: {uri} has no column {column!r}, which other files have"))
            if its.count(column) > 1:
                raise ValueError(
                    redacted(f"corpus.{role}: {uri} has several columns {column!r}; give each a name of its own")
                )
