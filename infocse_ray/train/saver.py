"""Save checkpoints beside training: the step that is due leaves a snapshot, a thread writes it and hands it on.

Every worker has one snapshot under way at most, and takes them after the same steps: so all report equally often and in
one order, and Ray counts a checkpoint once every worker has reported its part. Until then the one before is the newest.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from infocse_ray.storage.errors import explained
from infocse_ray.train.checkpoint import Snapshot
from infocse_ray.train.checkpoints import Checkpoints


class CheckpointSaver:
    """Saves a worker's checkpoints in a thread; as a context manager it ends once the last is saved."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        """Save where these are."""
        self._checkpoints = checkpoints
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._under_way: Future[None] | None = None

    def __enter__(self) -> CheckpointSaver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown()
        if error is None:  # else that is what went wrong
            self.wait()

    def save(self, step: int, snapshot: Snapshot) -> None:
        """Begin to save what was taken after a step; `wait` came before.

        Not by Ray's own asynchronous reports: their errors go past the training loop and log a traceback each, and
        writing the local files would still hold up training.
        """
        if self._under_way is not None:
            raise RuntimeError("wait for the checkpoint before")
        self._under_way = self._pool.submit(self._save, step, snapshot)

    def check(self) -> None:
        """Raise what `wait` raises, if that is known already."""
        if self._under_way is not None and self._under_way.done():
            self.wait()

    def wait(self) -> None:
        """Wait until nothing is under way.

        Raises:
            NoSpace, StorageUnavailable: of the save that was; the message names the folder.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def _save(self, step: int, snapshot: Snapshot) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with explained(folder, snapshot.nbytes):
                snapshot.write(Path(folder))
            self._checkpoints.add(Path(folder), step)
