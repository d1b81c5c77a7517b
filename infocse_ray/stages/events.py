"""What TensorBoard shows of a run: event files under `<run>/events/`, on any storage.

1. A training stage keeps the curve of its steps in its checkpoints and its result; its event file is a function of
   that. Worker 0 writes it again and again while it trains, the driver once the stage is finished: a resumed run has
   every point once, a run that found the stage finished has them all.
2. What every other stage counted comes from its summary, over the number of the iteration.
3. A file is written whole, under a name that follows from the stage; a local one that only gets longer is added to in
   place, for a TensorBoard that has it open.
"""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import pyarrow.fs as pafs
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.record_writer import RecordWriter

from infocse_ray.settings import Metric
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.checksums import read_checked
from infocse_ray.storage.folder import Storage

_EVERY_SECONDS = 30.0
"""Between two writings of a curve that grows."""

_AN_OCTAVE = 256
"""Points a curve has at most between a step and the step of twice its number."""

_SUMMED = ("documents", "labelled", "rejected", "leaks")
"""Counts that a stage has by split or reason."""

_SHOWN_AS = {"rejected": "bad_rows"}

Point = tuple[int, float, Mapping[str, float]]
"""A step, when it was (seconds since 1970), and values by tag."""


def event_file(points: Iterable[Point]) -> bytes:
    """The content of an event file; values that are no finite number are left out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events"
        writer = RecordWriter(str(path))
        # The number of the format; with it TensorBoard takes steps as they come.
        writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
        for step, at, values in points:
            shown = [
                Summary.Value(tag=tag, simple_value=value) for tag, value in values.items() if math.isfinite(value)
            ]
            writer.write(Event(wall_time=at, step=step, summary=Summary(value=shown)).SerializeToString())
        writer.close()
        return path.read_bytes()


def curve_folder(run: Storage, name: str) -> Storage:
    """Where the curve of the training of `name`, such as `iteration_1`, goes."""
    return run / "events" / name


def write_curve(folder: Storage, progress: Mapping[str, Any]) -> None:
    """Write the event file of a training stage's `curve` and `history`."""
    target, content = folder / "events.out.tfevents.0.train", event_file(_points(progress))
    if isinstance(target.filesystem, pafs.LocalFileSystem) and target.exists():
        there = target.read_bytes()
        # Also what a crash cut off in the middle of an event is a beginning.
        if content.startswith(there):
            with open(target.path, "ab") as file:
                file.write(content[len(there) :])
            return
    target.write_bytes(content)


def _points(progress: Mapping[str, Any]) -> Iterable[Point]:
    validations = {entry["step"]: entry for entry in progress["history"]}
    for point in progress["curve"]:
        scores = {
            f"validation/{name}": value
            for name, value in validations.get(point["step"], {}).items()
            if name in get_args(Metric)
        }
        values = {f"train/{name}": value for name, value in point.items() if name not in ("step", "at")}
        yield point["step"], point["at"], values | scores


class Curve:
    """The curve of a training under way: part of its progress, and so of its checkpoints."""

    def __init__(self, folder: Storage | None, progress: dict[str, Any]) -> None:
        """Continue `progress["curve"]`; it is shown in `folder`, by worker 0 alone, elsewhere None."""
        self._folder, self._progress = folder, progress
        progress.setdefault("curve", [])
        self._written = time.monotonic()
        self._writing: threading.Thread | None = None

    def add(self, step: int, report: Any = None, seconds: float = 0.0, validated: bool = False) -> None:
        """Add a step, if it is one of those that are shown.

        Args:
            step: which.
            report: its StepReport; None before the first.
            seconds: it took.
            validated: whether there is a validation to go with it.
        """
        # Which steps are shown depends on nothing but their number, so that a resumed curve is the same.
        between = max(1, 2 ** (step.bit_length() - 1) // _AN_OCTAVE)
        if not validated and step % between:
            return
        point: dict[str, Any] = {"step": step, "at": round(time.time(), 3)}
        if report is not None:
            point |= {
                "loss": report.loss,
                "gradient_norm": report.gradient_norm,
                "spread": report.spread,
                "tokens_per_second": round(report.tokens / max(seconds, 1e-9), 1),
                "padding_share": 1.0 - report.tokens / max(report.padded, 1),
            }
        self._progress["curve"].append(point)

    def show(self) -> None:
        """Write the event file now and then, in the background: no step waits for a storage that is slow."""
        if self._folder is None or time.monotonic() - self._written < _EVERY_SECONDS:
            return
        if self._writing is not None and self._writing.is_alive():
            return
        self._written = time.monotonic()
        so_far = {name: list(self._progress[name]) for name in ("curve", "history")}
        self._writing = threading.Thread(target=self._write, args=(so_far,), daemon=True)
        self._writing.start()

    def close(self) -> None:
        """Wait for what is being written: what comes next writes the same file."""
        if self._writing is not None:
            self._writing.join()

    def _write(self, so_far: dict[str, Any]) -> None:
        assert self._folder is not None
        try:
            write_curve(self._folder, so_far)
        except OSError:  # a look at it is never worth a run, and the driver writes it in the end
            return


def show_stage(run: Storage, name: str, stage: Stage) -> None:
    """Write the event files of a finished stage.

    Args:
        run: its folder.
        name: of the stage in the run, such as `iteration_2/annotations`.
        stage: finished, by this run or another.
    """
    owner, _, part = name.partition("/")
    word, _, number = owner.rpartition("_")
    step, group = (int(number), f"{word}s") if number.isdigit() else (0, "run")
    tag = part if group != "run" else name
    values = {f"{tag}/{key}": value for key, value in stage_values(stage.summary or {}).items()}
    file = f"events.out.tfevents.{step:05d}.{tag.replace('/', '.')}"
    (run / "events" / group / file).write_bytes(event_file([(step, 0.0, values)]))
    if stage.kind == "train" and (result := stage.folder / "result.json").exists():
        progress = read_checked(result)
        if "curve" in progress:
            write_curve(curve_folder(run, owner), progress)


def stage_values(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a stage's summary, by the name of their curve."""
    found: dict[str, float] = {}
    for name, value in summary.items():
        shown = _SHOWN_AS.get(name, name)
        if isinstance(value, Mapping) and name in _SUMMED:
            found[shown] = float(sum(value.values()))
            found |= {f"{shown}/{key}": float(count) for key, count in value.items()}
        elif name == "metrics":
            found |= {key: float(score) for key, score in value.items()}
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[shown] = float(value)
    if summary.get("padded_tokens"):
        found["padding_share"] = 1.0 - summary["tokens"] / summary["padded_tokens"]
    return found
