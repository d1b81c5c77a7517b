"""Save checkpoints beside training: the step that is due leaves a snapshot, a thread writes it and hands it on.

The best encoders go to storage by the same thread: one after the other, and a checkpoint after the encoder it names.
Every worker has one snapshot under way at most, and takes them after the same steps: so all report equally often and in
one order, and Ray counts a checkpoint once every worker has reported its part. Until then the one before is the newest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from infocse_ray.storage.errors import explained
from infocse_ray.train.checkpoint import Snapshot
from infocse_ray.train.checkpoints import Checkpoints


class Saver:
    """Saves a worker's checkpoints and encoders in a thread; as a context manager it ends once the last is saved."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        """Save where these are."""
        self._checkpoints = checkpoints
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._under_way: Future[None] | None = None
        self._model: Future[None] | None = None

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown()
        if error is None:  # else that is what went wrong
            self.wait()

    def save(self, step: int, snapshot: Snapshot) -> None:
        """Begin to save what was taken after a step; `wait_for_checkpoint` came before.

        It counts once the encoder is in storage that `bring` brings there.

        Not by Ray's own asynchronous reports: their errors go past the training loop and log a traceback each, and
        writing the local files would still hold up training.
        """
        if self._under_way is not None:
            raise RuntimeError("wait for the checkpoint before")
        self._under_way = self._pool.submit(self._save, step, snapshot, self._model)

    def bring(self, model: Callable[[], None] | None) -> None:
        """Begin to bring an encoder to storage, once the one before is there; None: another worker does."""
        self.wait_for_model()
        if model is not None:
            self._model = self._pool.submit(model)

    def check(self) -> None:
        """Raise what `wait` raises, if that is known already."""
        if self._model is not None and self._model.done():
            self.wait_for_model()
        if self._under_way is not None and self._under_way.done():
            self.wait_for_checkpoint()

    def wait(self) -> None:
        """Wait until nothing is under way.

        Raises:
            NoSpace, StorageUnavailable: of a save that was; the message names the folder.
        """
        self.wait_for_model()
        self.wait_for_checkpoint()

    def wait_for_checkpoint(self) -> None:
        """Wait for the one under way; raises as `wait` does."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def wait_for_model(self) -> None:
        """Wait for the encoder under way; raises as `wait` does."""
        model, self._model = self._model, None
        if model is not None:
            model.result()

    def _save(self, step: int, snapshot: Snapshot, model: Future[None] | None) -> None:
        if model is not None:
            model.result()  # there before, and else this checkpoint would name what isn't
        with tempfile.TemporaryDirectory() as folder:
            with explained(folder, snapshot.nbytes):
                snapshot.write(Path(folder))
            self._checkpoints.add(Path(folder), step)
