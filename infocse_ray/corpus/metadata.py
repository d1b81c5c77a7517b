"""Metadata: further columns of a corpus, each of a type that is asked for, which go with documents' vectors.

Nothing of them decides whether a row is a document: a value that isn't of its type is missing, and is counted.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any

import pyarrow as pa

from infocse_ray.corpus.delimited import value_of
from infocse_ray.corpus.documents import id_text
from infocse_ray.corpus.kind import look_for, look_into, place_and_columns, some_of
from infocse_ray.corpus.read import METADATA
from infocse_ray.corpus.registry import KINDS
from infocse_ray.corpus.source import Source
from infocse_ray.corpus.tables import parquet_look
from infocse_ray.settings.embed import EveryDocument, MetadataType

_ARROW: dict[MetadataType, pa.DataType] = {
    "text": pa.string(),
    "texts": pa.list_(pa.string()),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "time": pa.timestamp("us", "UTC"),
}
_OF_FILES = ("auto", "browsing")
"""Kinds of corpus whose rows are the files' own."""
_ROWS_LOOKED_AT = 100
"""Of a file."""
_INSTEAD: dict[MetadataType, str] = {
    "integer": "number or text",
    "number": "text",
    "boolean": "text",
    "time": "text, or make them ISO 8601",
}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def metadata_columns(corpus: EveryDocument, source: Source) -> dict[str, str]:
    """Role to column of the metadata that a corpus is asked for, after a look into some of its files.

    Raises:
        ValueError: the corpus has no columns, or not that one.
        UnreadableFile: there is no reading a file that is looked into.
    """
    if not corpus.metadata:
        return {}
    asked = f"corpus.metadata = {corpus.metadata}"
    if corpus.kind not in _OF_FILES or source.kind == "text":
        what = "text files have" if corpus.kind in _OF_FILES else f"corpus.kind = {corpus.kind} has"
        raise ValueError(f"{asked}: {what} no further columns; leave it out")
    there = _columns_there(corpus, source)
    doubled = {name for names in there.values() for name in names if names.count(name) > 1}
    columns = {uri: set(names) for uri, names in there.items()}
    for name in corpus.metadata:
        if not any(name in names for names in columns.values()):
            where, it_has = place_and_columns(columns)
            raise ValueError(f"corpus.metadata: {where}: no column {name!r}; there is {it_has}")
        if name in doubled:
            raise ValueError(f"corpus.metadata: there are several columns {name!r}; give each a name of its own")
    return {f"{METADATA}{name}": name for name in corpus.metadata}


def _columns_there(corpus: EveryDocument, source: Source) -> dict[str, list[str]]:
    """The names of the columns of some files."""
    uris = some_of(list(dict.fromkeys(piece.uri for piece in source.pieces)))
    if source.kind == "parquet":
        return {uri: parquet_look(uri)[0] for uri in uris}
    kind = "jsonl" if source.kind == "jsonl" else "csv"
    looks = {uri: look_into(uri, kind, corpus.encoding) for uri in uris}
    if kind == "jsonl":
        looks = look_for(set(corpus.metadata), looks, corpus.encoding)
    return {uri: sorted(look.columns) for uri, look in looks.items()}


def check_types(corpus: EveryDocument, source: Source) -> None:
    """Look whether what some files begin with is of the types that are asked for.

    Args:
        corpus: settings.
        source: its files, with the columns of metadata among those that are read.

    Raises:
        ValueError: most of what there is of a name isn't.
        UnreadableFile: there is no reading a file that is looked into.
    """
    if not corpus.metadata:
        return
    fit: Counter[str] = Counter()
    unfit: dict[str, list[str]] = defaultdict(list)
    firsts = {piece.uri: piece for piece in reversed(source.pieces)}
    for uri in some_of(list(firsts)):
        for row in islice(KINDS[corpus.kind].rows(firsts[uri], source.columns, corpus, None), _ROWS_LOOKED_AT):
            typed, others = metadata_of(row.values or {}, corpus.metadata)
            fit.update(name for name, value in typed.items() if value is not None)
            for name, value in others.items():
                unfit[name].append(value)
    for name, values in unfit.items():
        if len(values) > fit[name]:
            raise ValueError(
                f"corpus.metadata.{name} = {corpus.metadata[name]}: of {len(values) + fit[name]:,} documents looked at "
                f"{len(values):,} have none but {values[0]!r}, say; give {_INSTEAD[corpus.metadata[name]]}"
            )


def metadata_type(metadata: Mapping[str, MetadataType]) -> pa.StructType:
    """Of a document's metadata: a field each."""
    return pa.struct([pa.field(name, _ARROW[kind]) for name, kind in metadata.items()])


def type_name(arrow: pa.DataType) -> str:
    """The type of metadata that is stored so, for people."""
    return next((kind for kind, its in _ARROW.items() if its == arrow), str(arrow))


def metadata_of(
    values: Mapping[str, Any], metadata: Mapping[str, MetadataType]
) -> tuple[dict[str, Any], dict[str, str]]:
    """A row's metadata.

    Args:
        values: of the row, keyed by role.
        metadata: name to type.

    Returns:
        What `metadata_type` has a field for, None where the row has none; and what isn't of its type, by name, as text.
    """
    typed: dict[str, Any] = {}
    unfit: dict[str, str] = {}
    for name, kind in metadata.items():
        value = values.get(f"{METADATA}{name}")
        if isinstance(value, float) and math.isnan(value):
            value = None
        typed[name] = None if value is None else _AS[kind](value)
        if value is not None and typed[name] is None and (shown := _text(value)).strip():
            unfit[name] = shown[:80]
    return typed, unfit


def alike_values(values: list[Any], kind: MetadataType) -> list[Any]:
    """Values as a column that Arrow takes without changing one: what isn't all of one type goes as text.

    Args:
        values: from Python; None where there is none.
        kind: what they should be, which is seen when they are read again.
    """
    if kind == "texts":
        return [None if value is None else _texts(value) for value in values]
    types = {type(value) for value in values if value is not None}
    if len(types) <= 1:
        try:
            pa.array(values)
            return values
        except (pa.ArrowException, UnicodeEncodeError, TypeError, OverflowError, ValueError):
            pass
    return [None if value is None else _text(value) for value in values]


def _text(value: Any) -> str:
    if isinstance(value, str | bytes):
        text = value if isinstance(value, str) else value.decode("utf-8", "replace")
        return text.encode("utf-8", "replace").decode()  # without halves of surrogate pairs
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, list | tuple | Mapping):
        return _text(json.dumps(value, ensure_ascii=False, default=str))
    return id_text(value)


def _texts(value: Any) -> list[str]:
    """Of a list, of a cell that has one as JSON, or of one text."""
    if isinstance(value, str):
        value = value_of(value) or ""
    several = value if isinstance(value, list | tuple) else [value]
    return [_text(one) for one in several if one is not None]


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        number = int(value)
        whole = isinstance(value, str) or number == value
    except (TypeError, ValueError, OverflowError):
        return None
    return number if whole and -(2**63) <= number < 2**63 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else _BOOLEANS.get(_text(value).strip().lower())


def _time(value: Any) -> datetime | None:
    """A time without a zone is UTC's, a date its first moment."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if not isinstance(value, datetime):
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


_AS: dict[MetadataType, Callable[[Any], Any]] = {
    "text": _text,
    "texts": _texts,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "time": _time,
}
