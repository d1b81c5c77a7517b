"""The files of a run, written by hand: finished with all that this version keeps, or as far as it got."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from infocse_ray.corpus.schema import rejected_schema
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import write_parquet
from infocse_ray.tracking.sink import TrackedRun, Trained
from infocse_ray.tracking.tensorboard import TensorBoard

EVIL = '<script>alert("x")</script>'
"""A text of a corpus that a page must show, not obey."""


def training_events(
    run: Storage, name: str, first: int, steps: dict[int, dict[str, float]], validations: dict[int, dict[str, float]]
) -> None:
    """What TensorBoard's files have of a training that goes on at the step `first`."""
    sink = TensorBoard()
    sink.open(TrackedRun(run.relative, "pretrain", run, {}, None))
    trained = Trained(name, Stage("train", f"of_{name}", run / name / "train"))
    sink.begin(trained, first)
    for group, points in (("train", steps), ("validation", validations)):
        for step, values in points.items():
            sink.points(trained, group, step, values)
    sink.close("stopped")


def scores(value: float, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"queries": 30, "candidates": 200}
    for name in ("recall@5", "recall@10", "recall@20", "mrr"):
        found |= {name: value, f"{name}_low": value - 0.1, f"{name}_high": value + 0.08}
    return found | more


HISTORY = [
    scores(0.5, step=0, tokens_done=0),
    scores(0.6, step=24, tokens_done=10, loss=3.0, gradient_norm=8.0, spread=0.9),
    scores(0.55, step=48, tokens_done=20, loss=2.5, gradient_norm=7.0, spread=0.8),
]
CHOSEN = scores(0.6, kind="trained", whitening={"power": 0.75, "dimension": 4})
CURVES = {
    "spectrum": [0.4, 0.2, 0.1, 0.05],
    "plain": scores(0.4),
    "powers": {power: scores(0.5) for power in ("0", "0.5", "0.75")},
    "cuts": {"4": scores(0.5), "2": scores(0.45), "1": scores(0.3)},
}
CORPUS = {
    "shards": 1,
    "lanes": 1,
    "sentences": 70,
    "tokens": 700,
    "longest": 40,
    "documents": {"train": 10, "valid": 5, "test": 0},
    "labelled": {"train": 0, "valid": 5, "test": 0},
    "rejected": {"not JSON": 1, "no text": 2},
    "lengths": {"sentences_a_document": {"3": 5, "4": 10}, "tokens_a_sentence": {"8": 30, "23": 30, "45": 10}},
    "seconds": 3.0,
}
MOVED = {
    "before": "the encoder as it came",
    "split": "valid",
    "on": "counterpart",
    "questions": {"up": 2, "down": 1, "same": 27},
    "moved": [
        {
            "doc_id": f"one {EVIL}",
            "document": f"about {EVIL}",
            "true": f"the title {EVIL}",
            "ranks": [12, 1],
            "tops": [
                [{"text": f"another {EVIL}", "true": False}],
                [{"text": "the title", "true": True}, {"text": "next", "true": False}],
            ],
        },
        *({"doc_id": f"two{i}", "document": "b", "true": "c", "ranks": [1, 9], "tops": [[], []]} for i in range(4)),
    ],
}
EXPLORER = {
    "histogram": {
        number: {"bin_edges": [-1.0, 0.0, 1.0], "kept": [1, 20], "chained": [2, 5], "dropped": [30, 4]}
        for number in ("1", "2")
    }
}
LEAD = {"metric": "recall@5", "difference": 0.1, "low": 0.02, "high": 0.2, "questions": 30, "documents": 5}
VERDICT = {
    "line": "WIN, against the encoder as it came, whitened: validation recall@5 0.5000 to 0.6000",
    "label": "WIN",
    "over": "whitened",
    "judged_on": "validation",
    "validation": {"label": "WIN", "before": 0.5, "after": 0.6, "no_lead": 0.01, **LEAD},
}


def settings(name: str, **sections: Any) -> dict[str, Any]:
    content = {"name": name, "corpus": {"source": f"docs/{EVIL}.jsonl"}, "encoder": {"model": "m"}}
    content |= {"validate": {"metric": "recall@5"}} | sections
    return Settings.model_validate(content).model_dump(mode="json", exclude={"storage"})


def iterations(count: int) -> list[dict[str, Any]]:
    made = [{"iteration": 0, "validation": scores(0.5), "test": scores(0.45)}]
    return made + [
        {"iteration": t, "validation": CHOSEN, "test": scores(0.55), "history": HISTORY} for t in range(1, count + 1)
    ]


def write_run(
    root: Storage, name: str = "news", finished: bool = True, trainings: int = 2, begun: int = 0, **more: Any
) -> Storage:
    """A run of `pretrain`; its folder.

    Args:
        root: the storage.
        name: of the run.
        finished: with metrics, moved questions and the explorer's figures.
        trainings: iterations that are done.
        begun: iterations besides whose training is under way.
        more: sections of the settings.
    """
    folder, stages = root / name, {}

    def stage(at: str, kind: str, summary: dict[str, Any], where: Storage | None = None) -> Storage:
        place = where or folder / at
        content = {"kind": kind, "fingerprint": at, "files": {}, "summary": {"seconds": 12.5} | summary}
        (place / "stage.json").write_json(checked(content))
        stages[at] = {"kind": kind, "fingerprint": at, "folder": place.relative, "seconds": 12.5, "starting": 3.75}
        return place

    corpus = stage("corpus", "prepare", CORPUS, root / "corpora" / "c")
    rows = [{"doc_id": None, "file": f"a{EVIL}.jsonl", "row": 3, "reason": "not JSON"}]
    write_parquet(corpus / "rejected" / "shard-000000.parquet", pa.Table.from_pylist(rows, rejected_schema()), [1])
    whitened = {"power": 0.75, "sentences": 70, "whole": 9, "dimension": 4, "scores": {"0": 0.4, "0.75": 0.5}}
    place = stage("iteration_0/whitening", "whitening", whitened)
    (place / "whitening.json").write_json(checked(whitened | {"curves": CURVES}))
    stage("start/valid", "evaluate", {"metrics": scores(0.4)})
    stage("whitened/valid", "evaluate", {"metrics": scores(0.5)})
    for t in range(1, trainings + 1 + begun):
        counts = {"documents": 10, "sentences": 50, "clusters": 12, "pairs": 40, "copies": 1}
        stage(f"iteration_{t}/annotations", "annotate", counts | {"cluster_sizes": {"2": 8, "4": 4}})
        if t > trainings:
            steps = {step: {"loss": 3.0 / step, "gradient_norm": 2.0, "spread": 0.5} for step in range(1, 25)}
            training_events(folder, f"iteration_{t}", 0, steps, {0: scores(0.5)})
            continue
        stage(f"iteration_{t}/train", "train", {"history": HISTORY, "chosen": CHOSEN})
    manifest = {
        "format": 2,
        "job": "pretrain",
        "settings": settings(name, **more),
        "inputs": {"corpus": "c1"},
        "stages": stages,
    }
    if finished:
        manifest["finished"] = "f"
        metrics = {
            "name": name,
            "validate_on": "sentence",
            "best_iteration": 1,
            "iterations": iterations(trainings),
            "start": {"validation": scores(0.4)},
            "whitened": {"validation": scores(0.5)},
            "verdict": VERDICT,
            "warnings": [f"only 31 questions {EVIL}"],
            "settings": settings(name, **more),
            "versions": {"ray": "2.60.0", "torch": "2.13.0"},
        }
        (folder / "metrics.json").write_json(metrics)
        (folder / "moved.json").write_json(MOVED)
        shown = [{"iteration": t, "annotations": f"iteration_{t}/annotations"} for t in range(1, trainings + 1)]
        (folder / "explorer.json").write_json(EXPLORER | {"iterations": shown})
    (folder / "manifest.json").write_json(checked(manifest))
    return folder
