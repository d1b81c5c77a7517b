"""What a run shows while it works: Ray metrics and TensorBoard's curves, of the same names.

1. Ray metrics (`ray_infocse_...` on Ray's dashboard and for Prometheus): `METRICS`, tagged with the run and the stage,
   which are told by the folder that the stage writes. The corpus, which runs share, counts as that of `corpora`.
2. TensorBoard's files are under `<run>/events/`, on any storage: a folder with the steps of each training, written by
   worker 0, and the summaries of all stages over the number of their iteration, written by the driver.
3. A training that goes on from a checkpoint begins a new file, whose first entry tells TensorBoard to forget the steps
   after the checkpoint (`purge_step`): every step is shown once.
4. No step waits for a storage that is slow, and what it refuses to take isn't shown. Of a stage that another run
   trained there are the validations, not the steps between.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Mapping
from typing import Any, get_args

import pyarrow.fs as pafs
import ray
from ray.util.metrics import Counter, Gauge
from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.record_writer import register_writer_factory

from infocse_ray.settings import Metric
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage

METRICS = {
    "documents": (Counter, "Documents prepared or annotated."),
    "sentences": (Counter, "Sentences prepared or annotated."),
    "clusters": (Counter, "Clusters found."),
    "pairs": (Counter, "Pairs found (annotating), pairs or other examples trained on (training)."),
    "tokens": (Counter, "Tokens prepared, embedded or trained on, padding not counted."),
    "bad_rows": (Counter, "Rows set aside."),
    "steps": (Counter, "Optimiser steps."),
    "padding_share": (Gauge, "Share of the encoded tokens that are padding."),
    "loss": (Gauge, "Training loss of the last step."),
    "gradient_norm": (Gauge, "Norm of the last step's gradient."),
    "spread": (Gauge, "1 - |mean of the normalised vectors|^2 in the last step: 0 when all vectors are the same."),
    "tokens_per_second": (Gauge, "Tokens of the last step by its seconds."),
    "recall_at_5": (Gauge, "Recall@5 of the last validation or test."),
    "recall_at_10": (Gauge, "Recall@10 of the last validation or test."),
    "recall_at_20": (Gauge, "Recall@20 of the last validation or test."),
    "mrr": (Gauge, "Mean reciprocal rank of the last validation or test."),
    "stage_seconds": (Gauge, "Seconds that a finished stage took."),
}
"""Ray metrics by name. Counters add up, from 0 in each process as Prometheus expects; gauges show the last."""

_FLUSH_SECONDS = 30
_AN_OCTAVE = 256
"""Points a curve has at most between a step and the step of twice its number."""
_BY_SPLIT_OR_REASON = ("documents", "labelled", "rejected", "leaks")


def count_prepared(folder: Storage, row: Mapping[str, Any]) -> None:
    """Count a shard of the corpus; `row` is what its task returned."""
    documents, rejected = (sum(json.loads(row[name]).values()) for name in ("documents", "rejected"))
    _count(
        folder, {"documents": documents, "sentences": row["sentences"], "tokens": row["tokens"], "bad_rows": rejected}
    )


def count_annotated(folder: Storage, counts: Mapping[str, Any]) -> None:
    """Count a shard of annotations; `counts` is what `counts_of` returned."""
    names = ("documents", "sentences", "clusters", "pairs", "tokens")
    _count(folder, {name: counts.get(name, 0) for name in names} | _padding(counts))


class TrainingMetrics:
    """Of a training under way; `close` it."""

    def __init__(self, stage: Storage, events: Storage | None, first: int) -> None:
        """Nothing is shown yet.

        Args:
            stage: folder of the train stage.
            events: see `events_folder`; None: TensorBoard shows nothing.
            first: step to come, 0 before the first validation; what was shown of it and later ones is forgotten.
        """
        self._stage = stage
        self._writer = None if events is None else _writer(_next_file(events, stage), first)

    def step(self, step: int, report: Any, seconds: float, examples: int) -> None:
        """Show a step.

        Args:
            step: from 1.
            report: its StepReport.
            seconds: it took.
            examples: of the global batch.
        """
        shown = {
            "loss": report.loss,
            "gradient_norm": report.gradient_norm,
            "spread": report.spread,
            "tokens_per_second": report.tokens / max(seconds, 1e-9),
            "padding_share": 1.0 - report.tokens / max(report.padded, 1),
        }
        _count(self._stage, {"steps": 1, "pairs": examples, "tokens": report.tokens} | shown)
        if self._writer is not None and step % max(1, 2 ** (step.bit_length() - 1) // _AN_OCTAVE) == 0:
            _add(self._writer, "train", shown, step)

    def validation(self, step: int, scores: Mapping[str, float]) -> None:
        """Show what the validation after a step found."""
        _count(self._stage, _gauges(scores))
        if self._writer is not None:
            _add(self._writer, "validation", _scores(scores), step)

    def close(self) -> None:
        """Write what isn't written yet."""
        if self._writer is not None:
            self._writer.close()


def show_stage(run: Storage, name: str, stage: Stage) -> None:
    """Show what a finished stage counted, took and, of an evaluation, found.

    Args:
        run: its folder.
        name: of the stage in the run, such as `iteration_2/annotations`.
        stage: finished, by this run or another.
    """
    summary = stage.summary or {}
    _count(run / name, {"stage_seconds": stage.seconds or 0.0} | _gauges(summary.get("metrics", {})))
    owner, _, part = name.partition("/")
    word, _, number = owner.rpartition("_")
    step, group, tag = (int(number), f"{word}s", part) if number.isdigit() else (0, "run", name)
    file = f"events.out.tfevents.{step:05d}.{tag.replace('/', '.')}"
    with _writer(run / "events" / group / file) as writer:
        _add(writer, tag, summary_values(summary), step)
    events = events_folder(run, owner)
    if stage.kind == "train" and not max(events.files(), default="").endswith(_suffix(stage.folder)):
        with _writer(_next_file(events, stage.folder), purge_step=0) as writer:
            for entry in summary["history"]:
                _add(writer, "validation", _scores(entry), entry["step"])


def summary_values(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a stage's summary, by the name of their curve."""
    values: dict[str, float] = {}
    for name, value in summary.items():
        shown = "bad_rows" if name == "rejected" else name
        if isinstance(value, Mapping) and name in _BY_SPLIT_OR_REASON:
            values[shown] = float(sum(value.values()))
            values |= {f"{shown}/{key}": float(count) for key, count in value.items()}
        elif name == "metrics":
            values |= {key: float(score) for key, score in value.items()}
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            values[shown] = float(value)
    return values | _padding(summary)


def events_folder(run: Storage, name: str) -> Storage:
    """Where the steps of the training of `name`, such as `iteration_1`, are shown."""
    return run / "events" / name


def _padding(counts: Mapping[str, Any]) -> dict[str, float]:
    padded = counts.get("padded_tokens")
    return {"padding_share": 1.0 - counts["tokens"] / padded} if padded else {}


def _scores(scores: Mapping[str, float]) -> dict[str, float]:
    return {name: scores[name] for name in get_args(Metric) if name in scores}


def _gauges(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores under names that Prometheus takes."""
    return {name.replace("@", "_at_"): score for name, score in _scores(scores).items()}


def _count(folder: Storage, values: Mapping[str, float]) -> None:
    if not ray.is_initialized():
        return
    run, _, stage = folder.relative.partition("/")
    tags = {"run": run or folder.name, "stage": stage}
    for name, value in values.items():
        if METRICS[name][0] is Gauge:
            _metric(name).set(float(value), tags)
        elif value > 0:  # Ray refuses to add nothing
            _metric(name).inc(value, tags)


@functools.cache
def _metric(name: str) -> Any:
    kind, description = METRICS[name]
    return kind(f"infocse_{name}", description, ("run", "stage"))


def _add(writer: SummaryWriter, group: str, values: Mapping[str, float], step: int) -> None:
    finite = {f"{group}/{name}": value for name, value in values.items() if math.isfinite(value)}
    # `add_scalar` would make another letter of the @ in recall@5.
    points = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in finite.items()])
    assert writer.file_writer is not None
    writer.file_writer.add_summary(points, step)


def _suffix(stage: Storage) -> str:
    return f".{stage.relative.replace('/', '.')}"


def _next_file(events: Storage, stage: Storage) -> Storage:
    """The file that TensorBoard, which goes by names, reads after those that are there."""
    return events / f"events.out.tfevents.{len(events.files()):05d}{_suffix(stage)}"


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
