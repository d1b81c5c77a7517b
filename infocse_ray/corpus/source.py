"""Find the corpus' files and check, before anything runs, that they have the columns asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import unquote

import pyarrow.fs as pafs

from infocse_ray.corpus import label_files
from infocse_ray.corpus.kind import CorpusPlan, Files
from infocse_ray.corpus.made_here import made_here
from infocse_ray.corpus.read import DOCUMENTS, Piece, is_array, naming
from infocse_ray.corpus.registry import KINDS
from infocse_ray.corpus.streams import compression_of, plain_name
from infocse_ray.errors import SourceChanged
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Corpus, fingerprint
from infocse_ray.storage.errors import explanation
from infocse_ray.storage.folder import Storage, is_remote, open_filesystem, without_query
from infocse_ray.storage.redact import redacted, without_credentials
from infocse_ray.storage.s3 import is_plain_key, uri_of_key

CONTENT = "fingerprint"
"""A file in a folder of documents that were given from Python: what they are, whenever they were written."""
_CUT_AT_LINES = ("jsonl", "tsv")
_PIECE_BYTES = 32 * 2**20
_MOST_PIECES, _MOST_PIECE_BYTES = 8192, 384 * 2**20
"""Pieces are larger where there would be more than that, up to so many bytes."""
_PACK_BYTES, _FILES_TOGETHER = 2**20, 1_000
_PACKS, _MOST_PACK_BYTES = 256, 256 * 2**20
"""Packs hold more text where there would be more than that, up to so many bytes."""
_TYPICAL_COMPRESSION = 4
_READ, _READ_WITH_LABELS = 2, 3
"""Counted up when what is read of the same files changes, of documents alone and with label files."""
_READ_ANEW = re.compile(r"\.(json|csv|tsv)(\.\w+)?(\?.*)?$")
"""Files that an earlier version read less of, or more."""
_WITH_TEXTS = frozenset({".doc", ".docx", ".epub", ".htm", ".html", ".markdown", ".md", ".odt", ".pdf", ".rst", ".xml"})
"""Endings of files that people have their documents in."""
_SHOWN = 6
"""Of these."""
_UNCOMMITTED = "_temporary"
"""The folder in which tasks of Spark and Hadoop write; what they commit is moved out of it."""


@dataclass(frozen=True)
class Source:
    """The files of a corpus and which columns make a document."""

    kind: str
    """Of the documents' files: one of `DOCUMENTS`."""
    pieces: list[Piece]
    columns: dict[str, str]
    """Role (id, text, sentences, counterpart, split) to column, for the roles there are."""
    fingerprint: str
    text_bytes: int
    """About how many bytes the documents' files hold once decompressed."""
    companions: list[Piece] = field(default_factory=list)
    """The files that go with the documents, each whole; `kind` says what it is to the kind of corpus."""
    versions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Bytes and time (ns since 1970) of each file, by its URI; none of documents that were given from Python."""
    unseen: frozenset[str] = frozenset()
    """Roles of `columns` that no row plays that was looked at; see `CorpusPlan`."""

    def has(self, role: str) -> bool:
        """Whether documents can be counted on to have it, as far as was looked."""
        return role in self.columns and role not in self.unseen


def changed_since(corpus: Corpus, source: Source) -> list[str]:
    """Files that are others now than when the source was found, or gone; what came since is no matter."""
    if not source.versions:
        return []
    named: list[tuple[str, str | list[str], Files]] = [
        ("source", corpus.source, KINDS[corpus.kind]),
        ("labels", corpus.labels or [], label_files),
    ]
    now = {
        file: _version(info)
        for setting, uris, kind in named
        for uri in ([uris] if isinstance(uris, str) else uris)
        for file, info in _found(f"corpus.{setting}", uri, kind)[0].items()
    }
    return sorted(uri for uri, version in source.versions.items() if now.get(uri) != version)


def refuse_changed(corpus: Corpus, source: Source, *read: Storage) -> None:
    """Make sure that all was of one version.

    Args:
        corpus: the settings.
        source: its files, all of which have been read by now.
        read: what was made of them; gone where they changed, for they may become again what they were.

    Raises:
        SourceChanged: it wasn't.
    """
    if changed := changed_since(corpus, source):
        for folder in read:
            folder.delete()
        more = f" and {len(changed) - 1:,} more" if changed[1:] else ""
        raise SourceChanged(
            redacted(f"corpus.source: {changed[0]}{more} changed while the corpus was read; run this again once the ")
            + "files stay as they are"
        )


def _version(info: pafs.FileInfo) -> tuple[int, int]:
    return info.size, info.mtime_ns


def find_source(corpus: Corpus) -> Source:
    """Expand paths, globs and folders, and let the kind of corpus settle how the files are read.

    Raises:
        ValueError: nothing matches, file kinds are mixed or unknown, or a file or column that is needed is missing.
        UnreadableFile: a file can't be read at all.
    """
    kind = KINDS[corpus.kind]
    infos, below = _expand_all("source", corpus.source, kind)
    of_labels, labels_below = _expand_all("labels", corpus.labels, label_files) if corpus.labels else ({}, [])
    if both := sorted(infos.keys() & of_labels.keys()):
        raise ValueError(
            f"corpus.labels: {redacted(both[0])} is a file of corpus.source too; leave corpus.labels out, or name it "
            "alone"
        )
    files = [(uri, infos[uri], kind.part_of(uri)) for uri in sorted(infos)]
    files += [(uri, of_labels[uri], label_files.part_of(uri)) for uri in sorted(of_labels)]
    of_part: dict[str, list[str]] = {}
    for uri, _, part in files:
        of_part.setdefault(part, []).append(uri)
    readable = sorted(of_part.keys() & DOCUMENTS)
    asked = redacted(f"corpus.source = {corpus.source!r}")
    if len(readable) != 1:
        raise ValueError(
            f"{asked}: has files of several kinds ({', '.join(readable)}); name one kind"
            if readable
            else f"{asked}: no documents for what is there; add {kind.FILES}"
        )
    plan = kind.plan(corpus, of_part)
    names = _names(sorted(infos), below) + _names(sorted(of_labels), labels_below)
    content = _content(corpus.source)

    def version(uri: str, info: pafs.FileInfo) -> tuple[str | int, ...]:
        return (content,) if content is not None and uri in infos else _version(info)

    whole = [
        Piece(uri, part, order, 0, info.size, info.size, names[order], corpus.encoding)
        for order, (uri, info, part) in enumerate(files)
    ]
    documents = [piece for piece in whole if piece.kind in DOCUMENTS]
    text_bytes = sum(map(text_bytes_of, documents))
    piece_bytes = max(_PIECE_BYTES, min(_MOST_PIECE_BYTES, text_bytes // _MOST_PIECES))
    return Source(
        kind=readable[0],
        pieces=[piece for file in documents for piece in _pieces(file, plan, piece_bytes)],
        columns=plan.columns,
        fingerprint=fingerprint(
            [(name, *version(uri, i)) for name, (uri, i, _) in zip(names, files, strict=True)],
            *(["labels", len(of_labels)] if of_labels else []),
            *(["encoding", corpus.encoding] if corpus.encoding != "utf-8" else []),
            *(["read", _READ_WITH_LABELS] if of_labels else ["read", _READ] if any(map(_is_read_anew, infos)) else []),
        ),
        text_bytes=text_bytes,
        companions=[piece for piece in whole if piece.kind not in DOCUMENTS],
        versions={} if content is not None else {uri: _version(info) for uri, info, _ in files},
        unseen=plan.unseen,
    )


def _is_read_anew(uri: str) -> bool:
    return _READ_ANEW.search(uri) is not None


def _content(source: str | list[str]) -> str | None:
    """The fingerprint of documents that were given from Python; None of files that are a user's own."""
    if not isinstance(source, str):
        return None
    with suppress(ValueError, OSError):
        folder = Storage.open(source)
        if re.fullmatch("[0-9a-f]{32}", folder.name) and (content := (folder / CONTENT).read_bytes().decode()):
            return content
    return None


def _names(uris: list[str], named: list[str]) -> list[str]:
    """Paths of files below the folder that all that was named is in: told apart, and the same wherever that is.

    They name documents and the corpus, so that credentials, which may change, have no place in them; nor have files
    that come to a folder a say in what the others are called.
    """
    paths, folders = ([_place(uri) for uri in each] for each in (uris, named))
    # By characters is right: the last slash ends the common folder.
    start = os.path.commonprefix(folders).rfind("/") + 1  # noqa: RUF071
    return [path[start:] for path in paths]


def _place(uri: str) -> str:
    """A URI without credentials and parameters; a key's letters as they are."""
    place = without_credentials(without_query(uri))
    return unquote(place) if uri.startswith("s3://") else place


def _expand_all(setting: str, uris: str | list[str], kind: Files) -> tuple[dict[str, pafs.FileInfo], list[str]]:
    """Files of paths, globs and folders by their URI, and the folders, each with a slash behind, that these name."""
    infos: dict[str, pafs.FileInfo] = {}
    named = []
    for uri in [uris] if isinstance(uris, str) else uris:
        found, folder = _expand(f"corpus.{setting}", uri, kind)
        infos |= found
        named.append(folder)
    return infos, named


def _expand(setting: str, uri: str, kind: Files) -> tuple[dict[str, pafs.FileInfo], str]:
    """What `_found` finds, all of which can be read."""
    infos, folder, others = _found(setting, uri, kind)
    asked = redacted(f"{setting} = {uri!r}")
    if not infos:
        there = f", but {len(others):,} of other kinds" if others else ""
        raise ValueError(
            f"{asked}: no such file{there}; give an existing path, glob or folder of {kind.FILES}{_of_texts(others)}"
        )
    for file, info in infos.items():
        if not kind.part_of(info.path):
            raise ValueError(
                f"{setting}: {redacted(file)}: unknown kind of file; use {kind.FILES}{_of_texts([info.path])}"
            )
    if setting == "corpus.source" and (passed := [path for path in others if not _is_marker(path)]):
        say(f"note: {asked}: {len(passed):,} files of other kinds aren't read ({_kinds(passed)}){_of_texts(passed)}")
    return infos, folder


def _is_marker(path: str) -> bool:
    """Whether it is a file that says something of others, such as _SUCCESS, or what documents from Python are."""
    place = PurePosixPath(path)
    of_documents = place.name == CONTENT and re.fullmatch("[0-9a-f]{32}", place.parent.name)
    return place.name.startswith("_") or bool(of_documents)


def _kinds(paths: Iterable[str]) -> str:
    """Endings of files, some of them, for people."""
    endings = sorted({PurePosixPath(path).suffix.lower() or "without an ending" for path in paths})
    return ", ".join(endings[:_SHOWN] + ["..."] * (len(endings) > _SHOWN))


def _of_texts(paths: Iterable[str]) -> str:
    """What to do with files that have texts, but not as such; nothing where there are none of these."""
    endings = sorted({PurePosixPath(plain_name(path)).suffix.lower() for path in paths} & _WITH_TEXTS)
    return f"; texts of {', '.join(endings)} are to be extracted first (docs/corpora.md shows how)" if endings else ""


def _found(setting: str, uri: str, kind: Files) -> tuple[dict[str, pafs.FileInfo], str, list[str]]:
    """Files of a path, glob or folder by their URI, none if there are none, the folder, and paths passed over in it."""
    asked = redacted(f"{setting} = {uri!r}")
    try:
        filesystem, path = open_filesystem(uri)
    except ValueError as error:
        raise ValueError(f"{asked}: {error}") from error
    try:
        base, infos = _listed(filesystem, path)
    except re.error as error:
        raise ValueError(f"{asked}: not a glob: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{asked}: the name of a file there isn't UTF-8; rename it ({error})") from error
    except OSError as error:
        raise explanation(error, asked) or ValueError(redacted(f"{asked}: can't be reached: {error}")) from error

    def named(file: str) -> str:
        return _uri_of(uri, path, base, file) if is_remote(uri) else file

    # In a folder, whose name is all of the files' beginning, what is of no part is passed over; else it is named.
    others = [i.path for i in infos if not kind.part_of(i.path)] if base == path.rstrip("/") + "/" else []
    there = infos if not others else [i for i in infos if kind.part_of(i.path)]
    return {named(i.path): i for i in there}, without_query(named(base)).rpartition("/")[0] + "/", others


def _listed(filesystem: pafs.FileSystem, path: str) -> tuple[str, list[pafs.FileInfo]]:
    """What a path, glob or folder names, and the part of the path that all of it is below."""
    info = filesystem.get_file_info(path)
    if info.type == pafs.FileType.File:
        return path, [info]
    if info.type == pafs.FileType.Directory:
        base = path.rstrip("/") + "/"
        infos = _documents_in(filesystem.get_file_info(pafs.FileSelector(path, recursive=True)))
        return base, [i for i in infos if not _hidden(base, i)]
    # Only a path that isn't there is a glob: brackets and the like may be part of a name.
    if not (mark := re.search(r"[*?\[]", path)):
        return path, []
    base = path[: path.rfind("/", 0, mark.start()) + 1]
    wanted = re.compile(_glob_expression(path))
    every = filesystem.get_file_info(pafs.FileSelector(base or ".", recursive=True, allow_not_found=True))
    infos = _documents_in(every)
    found = [i for i in infos if wanted.fullmatch(i.path)]
    return base, found if "/." in f"/{path[len(base) :]}" else [i for i in found if not _hidden(base, i)]


def _documents_in(infos: list[pafs.FileInfo]) -> list[pafs.FileInfo]:
    """Files but those of runs and of embedded vectors: what was written there is no part of a corpus the next time."""
    files = [info for info in infos if info.type == pafs.FileType.File]
    made = made_here(info.path for info in files)
    return [info for info in files if not info.path.startswith(made)] if made else files


def _hidden(base: str, info: pafs.FileInfo) -> bool:
    """Whether a file is an editor's copy, or the like, or not committed: such must not stand in for documents.

    The names of the former begin with a dot, or those of a folder below `base` that they are in.
    """
    return any(part.startswith(".") or part == _UNCOMMITTED for part in info.path[len(base) :].split("/"))


def _uri_of(uri: str, path: str, base: str, file: str) -> str:
    """The URI of `file`, found below `base` by `uri`, whose own path is `path`."""
    # A question mark that got into the path is part of a glob.
    head, query, parameters = (uri, "", "") if "?" in path else uri.partition("?")
    if file == path:
        return uri
    if uri.startswith("s3://") and not is_plain_key(file):
        return uri_of_key(uri, file)
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


def text_bytes_of(piece: Piece) -> int:
    """About how many bytes a piece of a documents' file holds once decompressed."""
    packed = compression_of(piece.uri) or piece.kind == "parquet"
    return piece.size * (_TYPICAL_COMPRESSION if packed else 1)


def _pieces(file: Piece, plan: CorpusPlan, most: int) -> list[Piece]:
    """Cut a file into parts of about `most` bytes of text at most, that are read independently."""
    if file.kind == "parquet":
        groups = max(1, plan.row_groups[file.uri])
        together = max(1, most * groups // max(1, text_bytes_of(file)))
        starts = range(0, groups, together)
        ends = [min(start + together, plan.row_groups[file.uri]) for start in starts]
        return [
            file._replace(start=a, end=b, size=file.size * max(1, b - a) // groups)
            for a, b in zip(starts, ends, strict=True)
        ]
    if file.size > most and _can_be_cut(file, plan):
        starts = range(0, file.size, most)
        ends = [min(start + most, file.size) for start in starts]
        return [file._replace(start=a, end=b, size=b - a, cut=True) for a, b in zip(starts, ends, strict=True)]
    return [file]


def _can_be_cut(file: Piece, plan: CorpusPlan) -> bool:
    """Whether reading can begin at any line of the file."""
    if file.kind not in _CUT_AT_LINES or compression_of(file.uri) or file.encoding != "utf-8":
        return False
    with naming(file.uri):
        return not (plan.arrays and file.kind == "jsonl" and is_array(file.uri))


def packs_of(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Neighbouring pieces put together to 1 MiB of text, or more of a large corpus, for a task each.

    A task for each of a million small files would take hours, and each task writes a file for the shuffle.
    """
    most = max(_PACK_BYTES, min(_MOST_PACK_BYTES, sum(map(text_bytes_of, pieces)) // _PACKS))
    packs: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if not packs or text_bytes_of(piece) > room or len(packs[-1]) >= _FILES_TOGETHER:
            packs.append([])
            room = most
        packs[-1].append(piece)
        room -= text_bytes_of(piece)
    return packs
