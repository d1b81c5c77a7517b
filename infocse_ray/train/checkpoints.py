"""Where a training's checkpoints go, and which one it goes on from: Ray Train's, or one process's own.

Both are in the stage's folder `checkpoints`, in one form, so that Ray Train's workers go on from what one process left.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Protocol

import pyarrow.fs as pafs
import ray.train

from infocse_ray.distributed.collectives import all_gather_list, rank
from infocse_ray.storage.errors import explained
from infocse_ray.storage.folder import Storage
from infocse_ray.train.checkpoint import WHOLE

CHECKPOINTS = "checkpoints"
"""Their folder in a train stage."""

RAYS_RECORD = "checkpoint_manager_snapshot.json"
"""Ray Train's record of its checkpoints, in that folder."""

_KEPT = 2
"""Checkpoints: the last one, and one should that be damaged."""


class Checkpoints(Protocol):
    """Where workers' checkpoints go; all workers of a training call the same."""

    def last(self) -> ray.train.Checkpoint | None:
        """The one to go on from; those before it, that are kept, are beside it, and their names come before its own."""
        ...

    def add(self, folder: Path, step: int) -> None:
        """Keep this worker's part, of after `step`, which lies in a local folder; it counts once all parts are there.

        Raises:
            NoSpace, StorageUnavailable: it can't be kept.
        """
        ...


class OfRayTrain:
    """Ray Train's: it brings the parts of all its workers together, and removes the old ones."""

    def __init__(self, stage: Storage) -> None:
        """Those of the train stage in this folder."""
        self._stage = stage

    def last(self) -> ray.train.Checkpoint | None:
        """What Ray Train has recorded; before it has anything, what one process had kept."""
        return ray.train.get_checkpoint() or OfOneProcess(self._stage).last()

    def add(self, folder: Path, step: int) -> None:
        """See `Checkpoints`."""
        with explained(self._stage, _size(folder)):
            ray.train.report({"step": step}, checkpoint=ray.train.Checkpoint.from_directory(folder))


class OfOneProcess:
    """Those of a training that one process does without Ray Train."""

    def __init__(self, stage: Storage) -> None:
        """Those of the train stage in this folder."""
        self._stage, self._folder = stage, stage / CHECKPOINTS

    def last(self) -> ray.train.Checkpoint | None:
        """The last whose list of files is there, which is written last; worker 0 looks for all."""
        for name in all_gather_list(self._names()[-1:] if rank() == 0 else []):
            place = self._folder / name
            return ray.train.Checkpoint(place.path, place.filesystem)
        return None

    def add(self, folder: Path, step: int) -> None:
        """See `Checkpoints`."""
        # By the step, so that their order is no clock's; Ray Train's names have a date, and come after all of these.
        place = self._folder / f"checkpoint_{step:012d}"
        with explained(self._stage, _size(folder)):
            place.delete()  # of before a damaged one was passed over
            place.filesystem.create_dir(place.path, recursive=True)
            try:
                for file in sorted(folder.iterdir(), key=lambda file: file.name == WHOLE):
                    pafs.copy_files(
                        str(file), (place / file.name).path, pafs.LocalFileSystem(), place.filesystem, use_threads=False
                    )
            except OSError:
                with contextlib.suppress(OSError):  # room for what is to be said of it
                    place.delete()
                raise
        # Those of later steps are damaged: training went on from before them.
        kept = [name for name in self._names() if name <= place.name][-_KEPT:]
        for name in {file.split("/")[0] for file in self._folder.files()} - set(kept):
            (self._folder / name).delete()

    def _names(self) -> list[str]:
        """Of those that are whole, as far as that can be seen without reading them, in their order."""
        return sorted(file.split("/")[0] for file in self._folder.files() if file.endswith(f"/{WHOLE}"))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())
