"""A folder that is replaced while others may read it, such as a run's model, which is served from night to night.

1. On local disk the new one is written beside the old, and takes its name: who opens the folder finds the one or the
   other whole, or, for the moment between two renames, none; who opens its files one by one may meet that moment.
2. Object stores have no names to take: the file without which nobody reads the folder goes first and comes back last,
   so that readers find the old one, the new one or an error, never a part of either.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pyarrow.fs as pafs

from infocse_ray.storage.errors import explained
from infocse_ray.storage.folder import UNFINISHED, Storage


def replace_folder(target: Storage, files: Mapping[str, Path], key: str, keep: Collection[str] = ()) -> None:
    """Make a folder hold these files and no others but those to keep.

    Args:
        target: the folder; it needn't be there.
        files: local ones by the name that each gets.
        key: the name of the one without which the folder isn't read.
        keep: names of files there that stay, where no new one has the name.

    Raises:
        NoSpace, StorageUnavailable: on local disk the old folder is as it was then.
    """
    if isinstance(target.filesystem, pafs.LocalFileSystem):
        _rename_over(target, files, [name for name in keep if name not in files])
        return
    (target / key).delete()
    for name in target.files(unfinished=True).keys() - files.keys() - set(keep):
        (target / name).delete()
    for name in sorted(files, key=lambda name: (name == key, name)):
        (target / name).write_bytes(files[name].read_bytes())


def _rename_over(target: Storage, files: Mapping[str, Path], keep: Iterable[str]) -> None:
    new, old = (_beside(target) for _ in range(2))
    try:
        for name, file in files.items():
            (new / name).write_bytes(file.read_bytes())
        for name in keep:
            os.makedirs(os.path.dirname((new / name).path), exist_ok=True)
            _copy((target / name).path, (new / name).path)
    except BaseException:
        new.delete()
        raise
    with explained(target):
        if os.path.lexists(target.path):
            os.rename(target.path, old.path)
        try:
            os.rename(new.path, target.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.rename(old.path, target.path)
            raise
    old.delete()


def _copy(source: str, target: str) -> None:
    """The same file under another name, or a copy where the file system has no such thing."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _beside(target: Storage) -> Storage:
    """A name for what is being written, which `infocse clean` knows."""
    parent, _, name = target.relative.rpartition("/")
    unfinished = f"{UNFINISHED}{secrets.token_hex(4)}-{name}"
    return Storage(target.root, f"{parent}/{unfinished}" if parent else unfinished)
