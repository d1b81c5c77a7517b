"""Find the corpus' files and check, before anything runs, that they have the columns asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from infocse_ray.corpus.read import (
    READ_ERRORS,
    READERS,
    Piece,
    UnreadableFile,
    compression_of,
    open_lines,
    parse_json_line,
    reader_of,
)
from infocse_ray.settings import Corpus, fingerprint
from infocse_ray.storage import is_remote, open_filesystem, without_query

_PIECE_BYTES = 32 * 2**20
_LOOKS_AT_ONCE = 16
_FILES_SAMPLED, _ROWS_SAMPLED = 16, 100
_PACK_BYTES, _FILES_TOGETHER = 2**20, 1_000
_TYPICAL_COMPRESSION = 4


@dataclass(frozen=True)
class Source:
    """The files of a corpus and which columns make a document."""

    kind: str
    pieces: list[Piece]
    columns: dict[str, str]
    """Role (id, text, sentences, counterpart, split) to column, for the roles there are."""
    fingerprint: str
    text_bytes: int
    """About how many bytes the files hold once decompressed."""


def find_source(corpus: Corpus) -> Source:
    """Expand paths, globs and folders, and settle the columns.

    Raises:
        ValueError: nothing matches, file kinds are mixed or unknown, or a named column is missing.
        UnreadableFile: a file can't be read at all.
    """
    files: list[tuple[str, pafs.FileInfo]] = []
    for uri in [corpus.source] if isinstance(corpus.source, str) else corpus.source:
        files += _expand(uri)
    files = sorted({uri: (uri, info) for uri, info in files}.values(), key=lambda f: f[0])
    kinds = {reader_of(uri) for uri, _ in files}
    if len(kinds) > 1:
        raise ValueError(
            f"corpus.source = {corpus.source!r}: has files of several kinds ({', '.join(sorted(kinds))}); name one kind"
        )
    kind = kinds.pop()
    names = _names([uri for uri, _ in files])
    looks = _look(files, kind)
    pieces = [
        piece._replace(name=names[order])
        for order, (uri, info) in enumerate(files)
        for piece in _pieces(uri, info, kind, order, looks)
    ]
    columns = _columns(corpus, kind, looks)
    return Source(
        kind=kind,
        pieces=pieces,
        columns=columns,
        fingerprint=fingerprint([(name, i.size, i.mtime_ns) for name, (_, i) in zip(names, files, strict=True)]),
        text_bytes=sum(
            i.size * (_TYPICAL_COMPRESSION if compression_of(uri) or kind == "parquet" else 1) for uri, i in files
        ),
    )


def _names(uris: list[str]) -> list[str]:
    """Paths below the folder that all files are in: told apart, and the same wherever the corpus is moved to."""
    paths = [without_query(uri) for uri in uris]
    # By characters is right: the last slash ends the common folder.
    start = os.path.commonprefix([path.rpartition("/")[0] + "/" for path in paths]).rfind("/") + 1  # noqa: RUF071
    return [path[start:] for path in paths]


def _expand(uri: str) -> list[tuple[str, pafs.FileInfo]]:
    """Files of one path, glob or folder as (uri, info)."""
    try:
        filesystem, path = open_filesystem(uri)
    except ValueError as error:
        raise ValueError(f"corpus.source = {uri!r}: {error}") from error
    try:
        base, infos = _listed(filesystem, path)
    except re.error as error:
        raise ValueError(f"corpus.source = {uri!r}: not a glob: {error}") from error
    except OSError as error:
        raise ValueError(f"corpus.source = {uri!r}: can't be reached: {error}") from error
    if not infos:
        raise ValueError(f"corpus.source = {uri!r}: no such file; give an existing path, glob or folder")
    for info in infos:
        if not reader_of(info.path):
            raise ValueError(
                f"corpus.source: {info.path}: unknown kind of file; use .parquet or one of "
                f"{', '.join(READERS['jsonl'] + READERS['text'])} (these also .gz, .xz, .zst)"
            )
    return [(i.path if not is_remote(uri) else _uri_of(uri, path, base, i.path), i) for i in infos]


def _listed(filesystem: pafs.FileSystem, path: str) -> tuple[str, list[pafs.FileInfo]]:
    """What a path, glob or folder names, and the part of the path that all of it is below."""
    info = filesystem.get_file_info(path)
    if info.type == pafs.FileType.File:
        return path, [info]
    if info.type == pafs.FileType.Directory:
        infos = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
        return path.rstrip("/") + "/", [i for i in infos if i.type == pafs.FileType.File and reader_of(i.path)]
    # Only a path that isn't there is a glob: brackets and the like may be part of a name.
    if not (mark := re.search(r"[*?\[]", path)):
        return path, []
    base = path[: path.rfind("/", 0, mark.start()) + 1]
    wanted = re.compile(_glob_expression(path))
    infos = filesystem.get_file_info(pafs.FileSelector(base or ".", recursive=True, allow_not_found=True))
    return base, [i for i in infos if i.type == pafs.FileType.File and wanted.fullmatch(i.path)]


def _uri_of(uri: str, path: str, base: str, file: str) -> str:
    """The URI of `file`, found below `base` by `uri`, whose own path is `path`."""
    # A question mark that got into the path is part of a glob.
    head, query, parameters = (uri, "", "") if "?" in path else uri.partition("?")
    if file == path:
        return uri
    folder = head.removesuffix(path[len(base) :])
    return f"{folder}{'' if folder.endswith('/') else '/'}{file[len(base) :]}{query}{parameters}"


def _glob_expression(pattern: str) -> str:
    """A glob as a regular expression: ** crosses folders, * and ? do not, [...] is a set, [!...] its complement."""
    out = ""
    for part in re.findall(r"\*\*/?|\*|\?|\[[^\]]+\]|.", pattern, flags=re.DOTALL):
        special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
        is_set = len(part) > 2 and part[0] == "["
        out += special.get(part) or (re.sub(r"^\[!", "[^", part) if is_set else re.escape(part))
    return out


class _Look(NamedTuple):
    """What a look into a file shows."""

    columns: set[str]
    row_groups: int = 0


def _look(files: list[tuple[str, pafs.FileInfo]], kind: str) -> dict[str, _Look]:
    """Look into every Parquet file, into some files of JSON Lines spread over all, and into no text file."""
    uris = [uri for uri, _ in files]
    if kind == "text":
        return {}
    if kind == "jsonl":
        uris = [uris[i * len(uris) // _FILES_SAMPLED] for i in range(_FILES_SAMPLED)]
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        uris = list(dict.fromkeys(uris))
        return dict(zip(uris, pool.map(_parquet_look if kind == "parquet" else _json_look, uris), strict=True))


def _parquet_look(uri: str) -> _Look:
    filesystem, path = open_filesystem(uri)
    try:
        with pq.ParquetFile(filesystem.open_input_file(path)) as file:
            return _Look(set(file.schema_arrow.names), file.num_row_groups)
    except (OSError, pa.ArrowInvalid) as error:
        raise UnreadableFile(f"corpus.source: {uri}: can't be read as Parquet: {error}") from error


def _json_look(uri: str) -> _Look:
    """Keys of the first readable rows."""
    keys: set[str] = set()
    try:
        for _, (_, line) in zip(range(_ROWS_SAMPLED), open_lines(Piece(uri, "jsonl", 0, 0, 2**62)), strict=False):
            row, _ = parse_json_line(line)
            keys |= set(row or {})
    except READ_ERRORS as error:
        raise UnreadableFile(f"corpus.source: {uri}: can't be read: {error}") from error
    return _Look(keys)


def _pieces(uri: str, info: pafs.FileInfo, kind: str, order: int, looks: dict[str, _Look]) -> list[Piece]:
    """Cut a file into parts that are read independently."""
    if kind == "parquet":
        groups = looks[uri].row_groups
        size = info.size // max(1, groups)
        return [Piece(uri, kind, order, start, min(start + 1, groups), size) for start in range(max(1, groups))]
    if kind == "jsonl" and not compression_of(uri) and info.size > _PIECE_BYTES:
        return [
            Piece(uri, kind, order, start, min(start + _PIECE_BYTES, info.size), min(_PIECE_BYTES, info.size - start))
            for start in range(0, info.size, _PIECE_BYTES)
        ]
    return [Piece(uri, kind, order, 0, info.size, info.size)]


def packs_of(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Neighbouring pieces put together to about 1 MiB: a task for each of a million small files would take hours."""
    packs: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if not packs or piece.size > room or len(packs[-1]) >= _FILES_TOGETHER:
            packs.append([])
            room = _PACK_BYTES
        packs[-1].append(piece)
        room -= piece.size
    return packs


def _columns(corpus: Corpus, kind: str, looks: dict[str, _Look]) -> dict[str, str]:
    """Which column plays which role; the named ones must be there."""
    if kind == "text":
        named = {role: v for role in ("id", "sentences", "counterpart", "split") if (v := getattr(corpus, role))}
        if named:
            role, value = named.popitem()
            raise ValueError(f"corpus.{role} = {value!r}: text files have no columns; leave it out")
        return {"id": "id", "text": "text"} if corpus.text_files == "document" else {"text": "text"}
    there = set().union(*(look.columns for look in looks.values()))
    it_has = ", ".join(sorted(there)) or "none"
    where = next(iter(looks)) if len(looks) == 1 else f"{next(iter(looks))} and {len(looks) - 1} more"
    columns: dict[str, str] = {}
    for role in ("id", "text", "sentences", "counterpart", "split"):
        named = getattr(corpus, role)
        if named is not None and named not in there:
            raise ValueError(f"corpus.{role} = {named!r}: {where}: no such column; there is {it_has}")
        if named or role in there:
            columns[role] = named or role
    if corpus.text and not corpus.sentences:
        columns.pop("sentences", None)
    if "sentences" in columns:
        columns.pop("text", None)
    elif "text" not in columns:
        raise ValueError(
            f"corpus.text: {where}: neither a `text` nor a `sentences` column; name one of {it_has} with corpus.text "
            "or corpus.sentences"
        )
    if kind == "parquet":
        for role in columns.keys() - {"counterpart", "split"}:
            for uri, look in looks.items():
                if columns[role] not in look.columns:
                    raise ValueError(f"corpus.{role}: {uri} has no column {columns[role]!r}, which other files have")
    return columns
