"""A `pretrain` that scores what it is told to, and a stand-in for Ray Tune that runs trials one after the other."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from infocse_ray.corpus.source import find_source
from infocse_ray.loop.identity import run_identity
from infocse_ray.loop.inputs import Inputs
from infocse_ray.settings import Settings, fingerprint
from infocse_ray.tuning.config import Sweep
from infocse_ray.tuning.run import ToTable, run_trial, scheduler_for
from infocse_ray.tuning.table import Table
from infocse_ray.tuning.trials import Trial
from tests.conftest import make_documents, write_jsonl


def sweep_of(folder: Path, **changes: Any) -> Sweep:
    """A configuration over two Ks and two batch sizes."""
    source = folder / "a.jsonl"
    if not source.exists():
        write_jsonl(source, make_documents(8))
    content: dict[str, Any] = {
        "name": "s",
        "storage": str(folder / "runs"),
        "settings": {
            "corpus": {"source": str(source)},
            "encoder": {"model": "model"},
            "loop.max_iterations": 2,
            "validate": {"metric": "recall@5"},
        },
        "parameters": {"annotate.k": {"grid": [1, 2]}, "train.batch_size": {"grid": [4, 8]}},
    }
    return Sweep.model_validate(content | changes)


class _Found:
    """Stands for what `check` finds: the corpus is there, the encoder is its name."""

    def __init__(self, settings: Settings) -> None:
        self.source, self.tokenizer = find_source(settings.corpus), "tokenizer"
        self.fingerprint = fingerprint(settings.encoder.model)

    def identity(self, settings: Settings) -> str:
        return run_identity(settings, self.source.fingerprint, self.fingerprint, self.tokenizer)


class Finder:
    """Stands for `check`, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Settings] = []

    def __call__(self, settings: Settings) -> Inputs:
        self.asked.append(settings)
        return _Found(settings)  # pyright: ignore[reportReturnType]


Scores = Callable[[Settings], list[float]]


class Runs:
    """Stands for `pretrain`: its iterations have the scores given, from iteration 0 on."""

    def __init__(self, scores: Scores = lambda settings: [0.1, 0.1 * settings.annotate.k, 0.2]) -> None:
        self.scores = scores
        self.calls: list[tuple[int, int]] = []
        """K and batch size of each."""
        self.failing: dict[tuple[int, int], BaseException] = {}
        """What is raised after the first iteration."""
        self.never_worse = False
        """Whether an iteration that trained something worse than its start has that start's scores, as by default."""

    def __call__(
        self, settings: Settings, after_iteration: Callable[[list[dict[str, Any]]], None], at_once: int
    ) -> dict[str, Any]:
        key = settings.annotate.k, settings.train.batch_size
        self.calls.append(key)
        iterations: list[dict[str, Any]] = []
        scores = self.scores(settings)
        for t, score in enumerate(scores):
            metrics = {"recall@5": score, "recall@10": 1 - score, "recall@20": 0.5, "mrr": 0.5, "queries": 100}
            entry: dict[str, Any] = {"iteration": t, "validation": metrics}
            if t:
                entry |= {"annotations": {"pairs": 1000 * t}, "examples": {"examples": 7}, "train": {"steps": 3}}
                entry |= {"seconds": {"annotations": 1.5, "examples": None, "train": 2.0}}
                start = iterations[-1]["validation"]
                entry["history"] = [start, metrics | {"recall@5": score - 0.01}, metrics]
                if self.never_worse and start["recall@5"] >= score:
                    entry["validation"] = start
            iterations.append(entry)
            if 0 < t < len(scores) - 1:
                after_iteration(json.loads(json.dumps(iterations)))
                if key in self.failing:
                    raise self.failing[key]
        best = max(range(len(scores)), key=lambda t: scores[t])
        for entry in iterations:
            entry["test"] = entry["validation"] | {"recall@5": entry["validation"]["recall@5"] / 2}
        return {"best_iteration": best, "iterations": iterations}


class OneByOne:
    """Stands for Ray Tune: asks the scheduler after each report, and ends a trial as Tune does."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def __call__(self, table: Table, todo: list[Trial]) -> None:
        scheduler: Any = scheduler_for(table)
        for trial in todo:
            self._run(scheduler, ToTable(table), trial)

    def _run(self, scheduler: Any, notes: ToTable, trial: Trial) -> None:
        tuned: Any = SimpleNamespace(trial_id=f"tune-{trial.number}", config={"trial": trial.number})
        if scheduler is not None:
            scheduler.on_trial_add(None, tuned)

        def tell(result: dict[str, Any]) -> None:
            notes.on_trial_result(0, [], tuned, result)
            if scheduler is not None and scheduler.on_trial_result(None, tuned, result) == "STOP":
                raise SystemExit(0)

        with contextlib.suppress(SystemExit):
            run_trial(trial.settings, tell, pretrain=self.runs)
        notes.on_trial_complete(0, [], tuned)
