"""TensorBoard's files under `<run>/events/`, on any storage.

1. A folder with the steps and validations of each training, and a file with the numbers of each stage, over iterations.
2. A training that goes on from a checkpoint begins a new file, whose first entry tells TensorBoard to forget the steps
   after the checkpoint (`purge_step`): no step is shown twice. What a killed command had not written yet is missing.
3. What storage refuses to take isn't shown. Of a stage that another run trained there are the validations, not the
   steps between.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pyarrow.fs as pafs
from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.record_writer import register_writer_factory

from infocse_ray.stages.metrics import scores_of
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.tracking.event_files import file_suffix, suffixes, whole_records
from infocse_ray.tracking.sink import Place, Sink, Status, TrackedRun, Trained
from infocse_ray.tracking.values import finite

_FLUSH_SECONDS = 30


class TensorBoard(Sink):
    """Writes event files."""

    name = "tensorboard"

    def __init__(self) -> None:
        self._writer: SummaryWriter | None = None

    def open(self, run: TrackedRun) -> None:
        """See `Sink`."""
        self._events = run.folder / "events"

    def begin(self, trained: Trained, first: int) -> None:
        """See `Sink`."""
        self._end_training()
        self._writer = _writer(self._next_file(trained), first)

    def points(self, trained: Trained, group: str, step: int, values: Mapping[str, float]) -> None:
        """See `Sink`."""
        if self._writer is None:  # the news of the beginning got lost
            self.begin(trained, step)
        assert self._writer is not None
        _add(self._writer, group, values, step)

    def stage(self, name: str, stage: Stage, values: Mapping[str, float]) -> None:
        """See `Sink`; a file of the same name is replaced."""
        group, tag, step = Place.of(name)
        file = f"events.out.tfevents.{step:05d}.{tag.replace('/', '.')}"
        with _writer(self._events / group / file) as writer:
            _add(writer, tag, values, step)
        if stage.kind != "train":
            return
        self._end_training()
        trained = Trained(name.partition("/")[0], stage)
        folder = self._events / trained.name
        files = sorted(folder.files())
        own = [name for name in files if name.endswith(suffixes(stage.folder.relative, stage.fingerprint))]
        if own and own[-1] == files[-1]:
            return
        if own:  # another training has been shown since: this one's steps are shown again
            again = b"".join(whole_records((folder / name).read_bytes()) for name in own)
            self._next_file(trained).write_bytes(again)
            return
        with _writer(self._next_file(trained), purge_step=0) as writer:
            for entry in (stage.summary or {})["history"]:
                _add(writer, "validation", finite(scores_of(entry)), entry["step"])

    def close(self, status: Status) -> None:
        """See `Sink`."""
        self._end_training()

    def _end_training(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _next_file(self, trained: Trained) -> Storage:
        """The file that TensorBoard, which goes by names, reads after those that are there."""
        folder = self._events / trained.name
        its = file_suffix(trained.stage.folder.relative, trained.stage.fingerprint)
        return folder / f"events.out.tfevents.{len(folder.files()):05d}{its}"


def _add(writer: SummaryWriter, group: str, values: Mapping[str, float], step: int) -> None:
    # `add_scalar` would make another letter of the @ in recall@5.
    points = [Summary.Value(tag=f"{group}/{name}", simple_value=value) for name, value in values.items()]
    assert writer.file_writer is not None
    writer.file_writer.add_summary(Summary(value=points), step)


_files: dict[str, Storage] = {}
_numbers = itertools.count()


def _writer(file: Storage, purge_step: int | None = None) -> SummaryWriter:
    """A writer of one event file, of this name and on this storage, in a thread of its own that is never waited for."""
    number = str(next(_numbers))
    _files[number] = file
    return SummaryWriter(f"storage:{number}", purge_step=purge_step, max_queue=2**20, flush_secs=_FLUSH_SECONDS)


class _EventFile:
    """What tensorboardX writes to: whole at first, so that it replaces one of its name, then only longer."""

    def __init__(self, file: Storage) -> None:
        self._file, self._content, self._written = file, bytearray(), 0

    def write(self, data: bytes) -> None:
        self._content += data

    def flush(self) -> None:
        content, written = bytes(self._content), self._written
        if len(content) == written:
            return
        try:
            if written and isinstance(self._file.filesystem, pafs.LocalFileSystem):
                with open(self._file.path, "r+b") as file:  # for a TensorBoard that has it open
                    file.seek(written)  # a disk that was full may have taken a part
                    file.write(content[written:])
            else:
                self._file.write_bytes(content)
            self._written = len(content)
        except OSError:  # tensorboardX's thread would end, and its queue fill up
            return

    close = flush


class _OnStorage:
    """tensorboardX's way to other filesystems: paths of ours are `storage:<number>/...`."""

    def open(self, path: str) -> _EventFile:
        return _EventFile(_files.pop(path.removeprefix("storage:").partition("/")[0]))

    def directory_check(self, path: str) -> None:
        """Storage makes its folders itself."""


register_writer_factory("storage", _OnStorage())
