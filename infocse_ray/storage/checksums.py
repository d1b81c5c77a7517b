"""What makes damage noticed: every file of a stage carries, or lies beside, a digest that its writer knew.

1. Parquet: BLAKE2b digests of each row group, and of the footer (see `parquet`).
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
from typing import Any

from infocse_ray.errors import DamagedFile
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted_json

MARK = ".damaged"
"""Ends the name of the mark beside a damaged file."""

FOLDER = "checksums.json"
"""In an encoder's folder: the size and digest of each of its files."""

_BYTES = 16

OTHER = "its content isn't what was written"
"""Why a file is damaged that has another digest."""

SAME_COMMAND = "; the same command makes it again"
"""Ends what is said of a damaged file; whoever only reads what another command made says which that is instead."""


def mark_of(file: Storage) -> Storage:
    """The mark of a file."""
    return Storage(file.root, file.relative + MARK)


def damaged(file: Storage, why: str) -> DamagedFile:
    """The error to raise; marks the file, so that its stage makes it again."""
    with contextlib.suppress(OSError):  # the error that is raised says more
        mark_of(file).write_bytes(why.encode())
    return DamagedFile(f"{file} is damaged ({why}){SAME_COMMAND}")


def digest(content: Any) -> bytes:
    """16 bytes that name the content (bytes-like)."""
    return hashlib.blake2b(content, digest_size=_BYTES).digest()


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
        raise damaged(file, OTHER)
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
        raise damaged(file, OTHER)
    return content


def sign_folder(folder: Path) -> None:
    """Write the sizes and digests of a local folder's files beside them."""
    names = [f.relative_to(folder).as_posix() for f in sorted(folder.rglob("*")) if f.is_file()]
    (folder / FOLDER).write_text(json.dumps(checked({"files": sizes(folder, names)}), indent=1) + "\n")


def sizes(folder: Path, names: list[str]) -> dict[str, list[int | str]]:
    """The size and digest of files of a local folder."""
    return {name: [(folder / name).stat().st_size, file_digest(folder / name)] for name in names}


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
        if file_digest(file) != expected:
            return path, OTHER
    return None


def file_digest(file: Path) -> str:
    """`digest` of a local file's content, in hexadecimal, without holding it in memory."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=_BYTES)).hexdigest()
