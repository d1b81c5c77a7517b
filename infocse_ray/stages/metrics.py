"""What a run counts while it works, as Ray metrics, and the points of a training's curves on their way to the driver.

1. Ray metrics (`ray_infocse_...` on Ray's dashboard and for Prometheus): `METRICS`, tagged with the run and the stage,
   which are told by the folder that the stage writes. The corpus, which runs share, counts as that of `corpora`.
2. Worker 0 hands points of the same names to the driver's progress board, which passes them on (`tracking/`): a curve
   has at most 256 of them per doubling of steps, and no step waits.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import ray
from ray.util.metrics import Counter, Gauge

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

_HAND_OVER_SECONDS, _CLOSE_SECONDS = 1.0, 5.0
_AN_OCTAVE = 256
"""Points a curve has at most between a step and the step of twice its number."""


def count_prepared(folder: Storage, row: Mapping[str, Any]) -> None:
    """Count a shard of the corpus; `row` is what its writer returned."""
    documents, rejected = (sum(row[name].values()) for name in ("documents", "rejected"))
    _count(
        folder, {"documents": documents, "sentences": row["sentences"], "tokens": row["tokens"], "bad_rows": rejected}
    )


def count_annotated(folder: Storage, counts: Mapping[str, Any]) -> None:
    """Count a shard of annotations; `counts` is what `counts_of` returned."""
    names = ("documents", "sentences", "clusters", "pairs", "tokens")
    _count(folder, {name: counts.get(name, 0) for name in names} | _padding(counts))


class Begun(NamedTuple):
    """A training starts at the step `first`, or goes on there from a checkpoint: what came of later ones is void."""

    first: int


class Points(NamedTuple):
    """A step's points of a training's curves."""

    group: str
    """`train` or `validation`."""
    step: int
    values: dict[str, float]
    """By name."""


class TrainingMetrics:
    """Of a training under way, as worker 0 sees it; `close` it."""

    def __init__(self, stage: Storage, board: Any, first: int) -> None:
        """Nothing is shown yet.

        Args:
            stage: folder of the train stage.
            board: handle of the progress board that takes points; None: nobody does.
            first: step to come, 0 before the first validation.
        """
        self._stage, self._board = stage, board
        self._waiting: list[Begun | Points] = [Begun(first)]
        self._handed_over = time.monotonic()
        self._last: Any = None

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
        if step % max(1, 2 ** (step.bit_length() - 1) // _AN_OCTAVE) == 0:
            self._waiting.append(Points("train", step, shown))
        if time.monotonic() - self._handed_over > _HAND_OVER_SECONDS:
            self._hand_over()

    def validation(self, step: int, scores: Mapping[str, float]) -> None:
        """Show what the validation after a step found."""
        _count(self._stage, _gauges(scores))
        self._waiting.append(Points("validation", step, scores_of(scores)))
        self._hand_over()

    def close(self) -> None:
        """Hand over what isn't yet, and wait until the board has it: this process may end right after."""
        self._hand_over()
        if isinstance(self._last, ray.ObjectRef):
            ray.wait([self._last], timeout=_CLOSE_SECONDS)

    def _hand_over(self) -> None:
        if self._board is not None and self._waiting:
            self._last = self._board.points.remote(self._waiting)
        self._waiting, self._handed_over = [], time.monotonic()


def count_stage(run: Storage, name: str, stage: Stage) -> None:
    """Count what a finished stage took and, of an evaluation, found.

    Args:
        run: its folder.
        name: of the stage in the run, such as `iteration_2/annotations`.
        stage: finished, by this run or another.
    """
    _count(run / name, {"stage_seconds": stage.seconds or 0.0} | _gauges((stage.summary or {}).get("metrics", {})))


def _padding(counts: Mapping[str, Any]) -> dict[str, float]:
    padded = counts.get("padded_tokens")
    return {"padding_share": 1.0 - counts["tokens"] / padded} if padded else {}


def scores_of(scores: Mapping[str, Any]) -> dict[str, float]:
    """Recall@k and MRR among what a validation or test found."""
    return {name: scores[name] for name in get_args(Metric) if name in scores}


def _gauges(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores under names that Prometheus takes."""
    return {name.replace("@", "_at_"): score for name, score in scores_of(scores).items()}


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
