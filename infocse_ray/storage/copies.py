"""Copies of folders of an object store on this machine, in its temporary folder: made once a user, whole or not at all.

Whoever tidies up a temporary folder may remove files of a copy and leave others: the names of all are in a list beside
it, and a copy that lacks one is made anew. What nobody asked for in a week goes when another copy is made.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from infocse_ray.storage.errors import explained

_LIST = ".files"
_UNUSED_SECONDS = 7 * 24 * 3600.0


def kept_copy(name: str, files: Callable[[], Iterable[str]], read: Callable[[str], bytes]) -> Path:
    """The folder of a copy.

    Args:
        name: of the copy: what it is of, and its content.
        files: lists the names of what is copied, relative and with slashes.
        read: gives a file's content.

    Raises:
        NoSpace: this machine's temporary folder has no room.
    """
    target = _own_folder() / name
    listed = target.with_name(name + _LIST)
    if _is_whole(target, listed):
        os.utime(listed)
        return target
    _drop_unused(target.parent)
    temporary = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        names = sorted(files())
        for file in names:
            data = read(file)
            with explained(temporary / file, len(data)):
                (temporary / file).parent.mkdir(parents=True, exist_ok=True)
                (temporary / file).write_bytes(data)
        (temporary / _LIST).write_text(json.dumps(names))
    except BaseException:
        shutil.rmtree(temporary)
        raise
    # The list comes first: another process takes a folder without one for what is left of an old copy.
    (temporary / _LIST).replace(listed)
    if target.exists() and not _is_whole(target, listed):
        shutil.rmtree(target, ignore_errors=True)
    try:
        temporary.rename(target)
    except OSError:  # another process of this machine was faster
        shutil.rmtree(temporary)
    return target


def _own_folder() -> Path:
    """Of this user alone: what is in it is trusted, and encoders may be nobody else's business."""
    folder = Path(tempfile.gettempdir()) / f"infocse_ray-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    there = folder.stat()
    if there.st_uid != os.getuid() or there.st_mode & 0o022:
        raise PermissionError(f"{folder}: others may write there; remove it, or set TMPDIR to a folder of your own")
    return folder


def _is_whole(folder: Path, listed: Path) -> bool:
    try:
        names = json.loads(listed.read_text())
    except (OSError, ValueError):
        return False
    return folder.is_dir() and all((folder / name).exists() for name in names)


def _drop_unused(folder: Path) -> None:
    """Remove copies, and what processes that died left of such, that weren't asked for in a week."""
    before = time.time() - _UNUSED_SECONDS
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):  # another process removes it, too
            if entry.name.endswith(_LIST) or entry.stat().st_mtime >= before:
                continue
            listed = entry.with_name(entry.name + _LIST)
            if not listed.exists() or listed.stat().st_mtime < before:
                listed.unlink(missing_ok=True)
                shutil.rmtree(entry)
