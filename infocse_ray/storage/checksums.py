"""What makes damage noticed: every file of a stage carries, or lies beside, a digest that its writer knew.

1. Parquet: a BLAKE2b digest of the whole file, between its last page and its footer, where no reader looks. Opening
   compares it; pages have CRCs besides, for what is read later.
2. JSON: `checksum`, of the rest.  Arrays: a digest at their end.
3. Folders of an encoder: `checksums.json`, of every file in it.
So a file is checked by whoever reads it, wherever that is, and the driver re-reads nothing. What a reader finds damaged
gets a mark beside it, `<file>.damaged`, by which the stage is seen to be unfinished and the file is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from infocse_ray.errors import DamagedFile
from infocse_ray.storage.redact import redacted_json

if TYPE_CHECKING:
    from infocse_ray.storage.folder import Storage

MARK = ".damaged"
"""Ends the name of the mark beside a damaged file."""

FOLDER = "checksums.json"
"""In an encoder's folder: the size and digest of each of its files."""

_BYTES = 16
_SEAL = b"infocse1"
_SEALED = b"infocse_ray.sealed"
"""Parquet metadata: says that there is a digest, should it not be found."""

_IN_MEMORY = 8 * 2**20
"""Bytes of a Parquet file up to which it is read at once; a larger one is read twice: for its digest, then by group."""

_AT_ONCE = 2**20

_OTHER = "its content isn't what was written"


def mark_of(file: Storage) -> Storage:
    """The mark of a file."""
    return type(file)(file.root, file.relative + MARK)


def damaged(file: Storage, why: str) -> DamagedFile:
    """The error to raise; marks the file, so that its stage makes it again."""
    with contextlib.suppress(OSError):  # the error that is raised says more
        mark_of(file).write_bytes(why.encode())
    return DamagedFile(f"{file} is damaged ({why}); the same command makes it again")


def digest(content: Any) -> bytes:
    """16 bytes that name the content (bytes-like)."""
    return hashlib.blake2b(content, digest_size=_BYTES).digest()


def parquet_bytes(table: pa.Table, row_group_rows: list[int]) -> bytes:
    """A Parquet file in row groups of the given sizes (rows), with its digest."""
    schema = table.schema.with_metadata({**(table.schema.metadata or {}), _SEALED: b"blake2b"})
    table = table.replace_schema_metadata(schema.metadata)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        start = 0
        for rows in row_group_rows:
            writer.write_table(table.slice(start, rows), row_group_size=max(rows, 1))
            start += rows
    content = memoryview(sink.getvalue())
    footer = len(content) - _footer_bytes(content[-8:])
    return b"".join((content[:footer], _SEAL, digest(content), content[footer:]))


def _footer_bytes(end: Any) -> int:
    """Bytes from the footer's start to the end of the file, of whose last 8 the first 4 are the footer's size."""
    return int.from_bytes(end[:4], "little") + 8


class _Parquet(pq.ParquetFile):
    """A Parquet file whose damaged pages name it."""

    file: Storage

    def read_row_group(self, *arguments: Any, **named: Any) -> pa.Table:
        try:
            return super().read_row_group(*arguments, **named)
        except OSError as error:
            if "checksum" in str(error):
                raise damaged(self.file, _OTHER) from error
            raise


def open_parquet(file: Storage) -> pq.ParquetFile:
    """Open what `parquet_bytes` made, to be read row group by row group.

    Raises:
        DamagedFile: it isn't as it was written.
        FileNotFoundError: it isn't there.
    """
    source = file.filesystem.open_input_file(file.path)
    try:
        size = source.size()
        if size <= _IN_MEMORY:
            content = source.read()
            source.close()
            source, size = pa.BufferReader(content), len(content)
        sealed = _seal_holds(source, size)
        if sealed is False:
            raise damaged(file, _OTHER)
        source.seek(0)
        try:
            found = _Parquet(source, page_checksum_verification=True)
        except pa.ArrowInvalid as error:
            raise damaged(file, _why(error)) from error
        except OSError as error:
            if sealed is None:  # else it is the storage's error
                raise damaged(file, _why(error)) from error
            raise
        found.file = file
        # Files of versions before this one have neither digest nor word of one.
        if sealed is None and _SEALED in (found.metadata.metadata or {}):
            raise damaged(file, _OTHER)
        return found
    except BaseException:
        source.close()
        raise


def _why(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _seal_holds(source: pa.NativeFile, size: int) -> bool | None:
    """Whether the file's digest is that of its content; None if there is none."""
    if size < 8:
        return None
    source.seek(size - 8)
    seal = size - _footer_bytes(source.read(8)) - len(_SEAL) - _BYTES
    if seal < 0:
        return None
    source.seek(seal)
    if source.read(len(_SEAL)) != _SEAL:
        return None
    expected = source.read(_BYTES)
    found = hashlib.blake2b(digest_size=_BYTES)
    for begin, end in ((0, seal), (seal + len(_SEAL) + _BYTES, size)):
        source.seek(begin)
        while begin < end and (part := source.read(min(_AT_ONCE, end - begin))):
            found.update(part)
            begin += len(part)
    return found.digest() == expected


def checked(value: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with the checksum of itself, as `Storage.write_json` writes it: without credentials."""
    value = redacted_json(value)
    return value | {"checksum": _checksum(value)}


def read_checked(file: Storage) -> dict[str, Any]:
    """The JSON object that `checked` made and `file` has, without the checksum.

    Raises:
        DamagedFile: it isn't as it was written.
        FileNotFoundError: it isn't there.
    """
    if (value := verified(file.read_bytes())) is None:
        raise damaged(file, _OTHER)
    return value


def verified(content: bytes) -> dict[str, Any] | None:
    """What `checked` made, from its JSON, without the checksum; None if it isn't as it was written."""
    try:
        value = json.loads(content)
        return value if value.pop("checksum") == _checksum(value) else None
    except (ValueError, AttributeError, TypeError, KeyError):
        return None


def _checksum(value: dict[str, Any]) -> str:
    # As it is after a round through JSON, which makes keys text: what is read must have the same checksum.
    plain = json.loads(json.dumps(value))
    return digest(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hex()


def sealed(content: bytes) -> bytes:
    """Content with its digest at the end, for formats that don't mind."""
    return content + digest(content)


def read_sealed(file: Storage) -> bytes:
    """The content of a file that `sealed` made.

    Raises:
        DamagedFile: it isn't as it was written.
        FileNotFoundError: it isn't there.
    """
    whole = file.read_bytes()
    content = whole[:-_BYTES]
    if digest(content) != whole[-_BYTES:]:
        raise damaged(file, _OTHER)
    return content


def sign_folder(folder: Path) -> None:
    """Write the sizes and digests of a local folder's files beside them."""
    names = [f.relative_to(folder).as_posix() for f in sorted(folder.rglob("*")) if f.is_file()]
    (folder / FOLDER).write_text(json.dumps(checked({"files": sizes(folder, names)}), indent=1) + "\n")


def sizes(folder: Path, names: list[str]) -> dict[str, list[int | str]]:
    """The size and digest of files of a local folder."""
    return {name: [(folder / name).stat().st_size, _file_digest(folder / name)] for name in names}


def differs(folder: Path, signed: dict[str, Any]) -> tuple[str, str] | None:
    """The first file that isn't as it was signed, and why; None if all are.

    Args:
        folder: on this machine.
        signed: has `files`, as `sizes` returned them.
    """
    for path, (size, expected) in signed["files"].items():
        file = folder / path
        if not file.exists():
            return path, "it is missing"
        if file.stat().st_size != size:
            return path, f"it has {file.stat().st_size:,} bytes, not {size:,}"
        if _file_digest(file) != expected:
            return path, _OTHER
    return None


def _file_digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=_BYTES)).hexdigest()
