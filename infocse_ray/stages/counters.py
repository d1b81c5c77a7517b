"""What a run does, as Ray metrics: on Ray's dashboard, and for Prometheus as `ray_infocse_...`.

The driver counts what a stage's tasks and actors have finished, as it learns of it; worker 0 of a training what every
step did. Each is tagged with the run and the stage, which are told by the folder that the stage writes; the corpus,
which runs share, counts as that of `corpora`. A process that starts again counts from 0, as Prometheus expects.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import ray
from ray.util.metrics import Counter, Gauge

from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage

COUNTERS = {
    "documents": "Documents prepared or annotated.",
    "sentences": "Sentences prepared or annotated.",
    "clusters": "Clusters found.",
    "pairs": "Pairs found (annotating), pairs or other examples trained on (training).",
    "tokens": "Tokens prepared, embedded or trained on, padding not counted.",
    "bad_rows": "Rows set aside.",
    "steps": "Optimiser steps.",
}
GAUGES = {
    "padding_share": "Share of the encoded tokens that are padding.",
    "loss": "Training loss of the last step.",
    "gradient_norm": "Norm of the last step's gradient.",
    "spread": "1 - |mean normalised vector|^2 of the last step: 0 when all vectors are one.",
    "tokens_per_second": "Tokens of the last step by its seconds.",
    "recall_at_5": "Recall@5 of the last validation or test.",
    "recall_at_10": "Recall@10 of the last validation or test.",
    "recall_at_20": "Recall@20 of the last validation or test.",
    "mrr": "Mean reciprocal rank of the last validation or test.",
    "stage_seconds": "Seconds that a finished stage took.",
}
_TAGS = ("run", "stage")


def count_prepared(folder: Storage, row: Mapping[str, Any]) -> None:
    """Count a shard of the corpus; `row` is what its task returned."""
    documents, rejected = (sum(json.loads(row[name]).values()) for name in ("documents", "rejected"))
    _count(folder, documents=documents, sentences=row["sentences"], tokens=row["tokens"], bad_rows=rejected)


def count_annotated(folder: Storage, counts: Mapping[str, Any]) -> None:
    """Count a shard of annotations; `counts` is what `counts_of` returned."""
    names = ("documents", "sentences", "clusters", "pairs", "tokens")
    _count(folder, **{name: counts.get(name, 0) for name in names})
    if counts.get("padded_tokens"):
        _show(folder, padding_share=1.0 - counts["tokens"] / counts["padded_tokens"])


def count_step(folder: Storage, report: Any, seconds: float, examples: int) -> None:
    """Count a training step of all workers; one of them calls.

    Args:
        folder: of the train stage.
        report: its StepReport.
        seconds: it took.
        examples: of the global batch.
    """
    _count(folder, steps=1, pairs=examples, tokens=report.tokens)
    _show(
        folder,
        loss=report.loss,
        gradient_norm=report.gradient_norm,
        spread=report.spread,
        padding_share=1.0 - report.tokens / max(report.padded, 1),
        tokens_per_second=report.tokens / max(seconds, 1e-9),
    )


def count_scores(folder: Storage, scores: Mapping[str, float]) -> None:
    """Show what a validation or a test found; one worker calls."""
    _show(folder, **{name: value for key, value in scores.items() if (name := key.replace("@", "_at_")) in GAUGES})


def count_stage(run: Storage, name: str, stage: Stage) -> None:
    """Show what a finished stage took and, of an evaluation, found."""
    there = run / name
    _show(there, stage_seconds=stage.seconds or 0.0)
    count_scores(there, (stage.summary or {}).get("metrics", {}))


def tags_of(folder: Storage) -> dict[str, str]:
    """The run and the stage that a folder is of."""
    run, _, stage = folder.relative.partition("/")
    return {"run": run or folder.name, "stage": stage}


def _count(folder: Storage, **values: float) -> None:
    if ray.is_initialized():
        for name, value in values.items():
            if value > 0:
                _counter(name).inc(value, tags_of(folder))


def _show(folder: Storage, **values: float) -> None:
    if ray.is_initialized():
        for name, value in values.items():
            _gauge(name).set(float(value), tags_of(folder))


@functools.cache
def _counter(name: str) -> Counter:
    return Counter(f"infocse_{name}", COUNTERS[name], _TAGS)


@functools.cache
def _gauge(name: str) -> Gauge:
    return Gauge(f"infocse_{name}", GAUGES[name], _TAGS)
