"""Where training goes on: from the newest checkpoint that is whole, on every worker the same one.

1. The last checkpoint that is known of is offered (`train/checkpoints.py`); the one before is kept, too.
2. Every worker looks at each file as it will read it. If any finds damage, all go on to the one before.
3. If none is whole, training begins at its first step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
from ray.train import Checkpoint

from infocse_ray.distributed.collectives import all_gather_list, rank
from infocse_ray.runtime.progress import say
from infocse_ray.storage.folder import Storage
from infocse_ray.train.checkpoint import damage
from infocse_ray.train.checkpoints import RAYS_RECORD


def drop_unreadable(checkpoints: Storage) -> None:
    """Delete Ray Train's folder where its record of checkpoints can't be read: Ray would fail on it for ever."""
    record = checkpoints / RAYS_RECORD
    with contextlib.suppress(FileNotFoundError):
        try:
            record.read_json()
        except ValueError:
            say(f"{record} is damaged (not JSON); training restarts at its first step")
            checkpoints.delete()


def kept(offered: Checkpoint) -> list[Checkpoint]:
    """A checkpoint, then those before it that are kept, as their names have it."""
    folder, _, name = offered.path.rstrip("/").rpartition("/")
    filesystem = offered.filesystem or pafs.LocalFileSystem()
    earlier: list[str] = []
    if rank() == 0:  # one worker looks: a listing is not the same everywhere at once
        entries = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        names = [info.base_name for info in entries if info.type == pafs.FileType.Directory]
        earlier = sorted((n for n in names if n.startswith("checkpoint_") and n < name), reverse=True)
    return [offered, *(Checkpoint(f"{folder}/{one}", filesystem) for one in all_gather_list(earlier))]


def newest_whole(offered: Checkpoint, tell: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that every worker finds whole; called by all of them.

    Args:
        offered: the last one.
        tell: is given a line for each that is damaged.

    Returns:
        None if there is no such checkpoint.
    """
    for checkpoint in kept(offered):
        try:
            with checkpoint.as_directory() as folder:
                why = damage(Path(folder))
        except OSError as error:
            why = str(error)
        if not (wrong := all_gather_list([why] if why is not None else [])):
            return checkpoint
        tell(f"the checkpoint {checkpoint.path} is damaged ({wrong[0]}); the one before it is looked at")
    tell("no checkpoint is whole: training begins at its first step")
    return None
