"""What a kind of corpus (`corpus.kind`) is: how the files that make it up become rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from infocse_ray.corpus.labels import LabelTable
from infocse_ray.corpus.read import (
    NOT_UTF8,
    OPTIONAL_ROLES,
    Line,
    Piece,
    SourceRow,
    csv_columns,
    csv_records,
    json_rows,
    naming,
    open_lines,
    reader_of,
)
from infocse_ray.corpus.streams import BadContent, advice, check_text
from infocse_ray.settings import Corpus
from infocse_ray.settings.text import is_utf8
from infocse_ray.storage.redact import redacted

_FILES_SAMPLED, _ROWS_SAMPLED = 16, 100
_ROWS_SEARCHED = 100_000
"""Of the files of JSON that are looked into, where a key that the settings name isn't in the first rows: seconds, for
mostly the name is a slip."""
ROLES = ("id", "text", "sentences", "counterpart", "split")
"""Roles that a column can have for a document."""


class CorpusPlan(NamedTuple):
    """How the documents' files are to be read."""

    columns: dict[str, str]
    """Role to column, for the roles there are."""
    row_groups: dict[str, int] = {}  # noqa: RUF012
    """The number of row groups of each Parquet file."""
    arrays: bool = True
    """Whether a .json file can be an array, which is read whole; else a line of it is always an item."""
    unseen: frozenset[str] = frozenset()
    """Roles of `columns` that no row plays that was looked at: later ones may."""


class Files(Protocol):
    """What files of a kind are called; a module of this room."""

    @property
    def FILES(self) -> str:
        """Names of the files that have its documents or labels, for people."""
        ...

    def part_of(self, path: str) -> str:
        """What a file is: one of `read.DOCUMENTS`, the kind's own name for what goes with them, "" for no part."""
        ...


class CorpusKind(Files, Protocol):
    """A kind of corpus; each is a module of this room."""

    @property
    def labels(self) -> Callable[[list[Piece], Corpus], LabelTable] | None:
        """Reads the files that go with the documents; None where rows bring their labels with them.

        Raises:
            UnreadableFile: one of them can't be read.
        """
        ...

    def plan(self, corpus: Corpus, files: dict[str, list[str]]) -> CorpusPlan:
        """Check the files, by part, before anything runs.

        Raises:
            ValueError: a file or a column is missing, or a setting doesn't fit.
            UnreadableFile: a file can't be read at all.
        """
        ...

    def rows(
        self, piece: Piece, columns: dict[str, str], corpus: Corpus, labels: LabelTable | None
    ) -> Iterator[SourceRow]:
        """The rows of a piece of a documents' file, keyed by role.

        Raises:
            UnreadableFile: the file is missing, truncated, or not what its name says.
        """
        ...


def refuse_columns(corpus: Corpus, roles: tuple[str, ...] = ROLES) -> None:
    """Refuse settings that name columns where the kind has none to name.

    Raises:
        ValueError: one is named.
    """
    for role in roles:
        if (value := getattr(corpus, role)) is not None:
            raise ValueError(
                f"corpus.{role} = {value!r}: corpus.kind = {corpus.kind} has no such column to name; leave it out"
            )


def settle_columns(
    corpus: Corpus, there: dict[str, set[str]], defaults: dict[str, str], elsewhere: Collection[str] = ()
) -> dict[str, str]:
    """Which column plays which role: the one named in the settings, else the default one if there is such a column.

    Args:
        corpus: the settings.
        there: the columns of each file that was looked into.
        defaults: role to column.
        elsewhere: roles that other files play, so that a column named for them may be missing.

    Raises:
        ValueError: a column is named that no file has.
    """
    any_has = set().union(*there.values())
    columns: dict[str, str] = {}
    for role in ROLES:
        named = getattr(corpus, role)
        if named is not None and named not in any_has:
            if role in elsewhere:
                continue
            where, it_has = place_and_columns(there)
            raise ValueError(f"corpus.{role} = {named!r}: {where}: no such column; there is {it_has}")
        if named or defaults.get(role) in any_has:
            columns[role] = named or defaults[role]
    return columns


def place_and_columns(there: dict[str, set[str]]) -> tuple[str, str]:
    """The files that were looked into and the columns they have, for people."""
    first = redacted(next(iter(there)))
    where = first if len(there) == 1 else f"{first} and {len(there) - 1} more"
    return where, ", ".join(sorted(set().union(*there.values()))) or "none"


def some_of(uris: list[str]) -> list[str]:
    """A few of the files, spread over all: looking into a million would take hours."""
    return list(dict.fromkeys(uris[i * len(uris) // _FILES_SAMPLED] for i in range(_FILES_SAMPLED)))


def first_lines(uri: str, encoding: str) -> Iterator[Line]:
    """The first lines of a file that are not blank.

    Raises:
        UnreadableFile: there is no reading it.
    """
    with naming(uri):
        yield from islice(open_lines(_whole(uri, "", encoding)), _ROWS_SAMPLED)


def settle_keys(
    corpus: Corpus, looks: dict[str, Look], defaults: dict[str, str], elsewhere: Collection[str] = ()
) -> CorpusPlan:
    """Which key of files of JSON plays which role, as `settle_columns` does; their rows need not have the same keys.

    A counterpart or split is read of every row that has its key, whether the first ones do or not. Where the settings
    name a key that they don't have, more rows are looked at.

    Args:
        corpus: the settings.
        looks: into the first rows of each file that was looked into.
        defaults: role to key.
        elsewhere: as for `settle_columns`.

    Raises:
        ValueError: a key is named that no row looked at has.
    """
    named = {getattr(corpus, role) for role in ROLES if role not in elsewhere} - {None}
    there = {uri: look.columns for uri, look in look_for(named, looks, corpus.encoding).items()}
    columns = settle_columns(corpus, there, defaults, elsewhere)
    unseen = {role: defaults[role] for role in OPTIONAL_ROLES if role not in columns and role not in elsewhere}
    return CorpusPlan(columns | unseen, unseen=frozenset(unseen))


def look_for(keys: set[str], looks: dict[str, Look], encoding: str, setting: str = "source") -> dict[str, Look]:
    """Looks into files of JSON, into more of their rows where the first don't have all of these keys.

    Raises:
        UnreadableFile: there is no reading one of them; the error names `setting`.
    """
    if keys <= set().union(*(look.columns for look in looks.values())):
        return looks
    rows = _ROWS_SEARCHED // len(looks)
    return {uri: look_into(uri, "jsonl", encoding, setting, rows) for uri in looks}


class Look(NamedTuple):
    """What the first rows of a file of JSON Lines or CSV show."""

    columns: set[str]
    """Their keys, or the names in the header."""
    rows: int = 0
    """How many there are."""
    undecodable: int = 0
    """How many aren't in the encoding that they should be in."""


def look_into(uri: str, kind: str, encoding: str, setting: str = "source", rows: int = _ROWS_SAMPLED) -> Look:
    """Look at the first rows of a file; errors name `setting`.

    Args:
        uri: the file.
        kind: `jsonl` or `csv`.
        encoding: what it should be in.
        setting: which led to it.
        rows: how many to look at.

    Raises:
        UnreadableFile: there is no reading it.
    """
    columns: dict[str, None] = {}
    seen = undecodable = 0
    with naming(uri, setting):
        if kind == "csv":
            columns = dict.fromkeys(csv_columns(_whole(uri, kind, encoding)))
            for _, cells in islice(csv_records(_whole(uri, kind, encoding)), rows):
                text = "".join(cell for cell in (cells or {}).values())
                seen, undecodable = seen + 1, undecodable + (not is_utf8(text))
        else:
            for row in islice(json_rows(_whole(uri, kind, encoding)), rows):
                columns |= dict.fromkeys(row.values or ())
                text = json.dumps(row.values, ensure_ascii=False)
                bad = row.reason == NOT_UTF8 or not is_utf8(text)
                seen, undecodable = seen + 1, undecodable + bad
    return Look(set(columns), seen, undecodable)


def _whole(uri: str, kind: str, encoding: str) -> Piece:
    return Piece(uri, kind, 0, 0, 2**62, encoding=encoding)


def refuse_unreadable(looks: dict[str, Look], encoding: str, setting: str = "source") -> None:
    """Refuse files whose first rows can't be read, and say what they are instead.

    Raises:
        UnreadableFile: no file has a column, or most rows are in another encoding.
    """
    worst = max(looks, key=lambda uri: looks[uri].undecodable)
    rows, undecodable = (sum(getattr(look, name) for look in looks.values()) for name in ("rows", "undecodable"))
    columns = any(look.columns for look in looks.values())
    if columns and undecodable <= rows / 2:
        return
    with naming(worst, setting):
        check_text(worst, encoding)
        if undecodable > rows / 2:
            raise BadContent(f"isn't {encoding.upper()}; {advice(encoding)}")
        if reader_of(worst) == "csv":
            raise BadContent("its header line names no column")
        raise BadContent(
            "none of its first lines is a JSON object; give an object a line, or, in a .json file, an array of objects"
        )
