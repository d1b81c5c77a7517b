"""A `pretrain` that scores what it is told to, and the settings that the tables set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from infocse_ray.report.config import Tables
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import write_parquet
from tests.conftest import make_documents, write_jsonl


def tables(folder: Path, **changes: Any) -> Tables:
    """A configuration with one small corpus `a` and one seed."""
    source = folder / "a.jsonl"
    if not source.exists():
        write_jsonl(source, make_documents(8))
    content: dict[str, Any] = {
        "name": "t",
        "storage": str(folder / "runs"),
        "seeds": [1],
        "tokens": 600,
        "learning_rates": [2e-5],
        "encoder": "model",
        "corpora": [
            {
                "name": "a",
                "settings": {
                    "corpus": {"source": str(source)},
                    "validate": {"metric": "recall@5"},
                    "finetune": {"batch_size": 2},
                },
            }
        ],
        "tables": ["zero_shot"],
    }
    return Tables.model_validate(content | changes)


Ranks = Callable[[str, int, int], list[int]]


class Runs:
    """Stands for `pretrain`: writes metrics, manifest and ranks, and remembers what it was called for."""

    def __init__(self, ranks: Ranks, best: int | None = None, iterations: int = 1, plain: Ranks | None = None) -> None:
        self.ranks, self.best, self.iterations = ranks, best, iterations
        self.plain = plain or (lambda method, seed, iteration: [30] * len(ranks(method, seed, iteration)))
        self.calls: list[str] = []
        self.failing: dict[str, BaseException] = {}
        self.keys: list[int] | None = None
        self.began = 0.05
        """Validation score of the encoder that an initialisation begins with."""
        self.steps = 60
        """Of each iteration's training."""
        self.liked: dict[float, float] = {}
        """By learning rate, what validation says of iterations it likes best; 0.9 where it isn't said."""

    def __call__(self, settings: Settings) -> dict[str, Any]:
        """`ranks(method, seed, iteration)` has the rank of each question; validation likes `best` best, or the last."""
        method, seed = self._called(settings)
        trained = 0 if method == "start" else 3 if method == "infocse_3_iterations" else self.iterations
        best = trained if self.best is None else min(self.best, trained)
        root = Storage.open(settings.storage)
        stages, iterations = {}, []
        for t in range(trained + 1):
            tested = self._tested(root / settings.name, f"iteration_{t}", settings, (method, seed, t), stages)
            # By any other score than that of validate.metric the first iteration were the best.
            validation = {"step": 3} | dict.fromkeys(("recall@10", "recall@20", "mrr"), 1 - t / 10)
            entry: dict[str, Any] = {"iteration": t, **tested}
            liked = self.liked.get(settings.train.learning_rate, 0.9)
            entry["validation"] = validation | {"recall@5": liked if t == best else (1 + t) / 10}
            if t == 0 and settings.loop.initialization != "none" and method.startswith("infocse"):
                entry["history"] = [validation | {"recall@5": self.began}, entry["validation"]]
            if t:
                entry["history"] = [entry["validation"]]
                entry |= {"train": {"tokens": 100 * t, "steps": self.steps}, "seconds": {"annotate": 2.0, "train": 3.0}}
                entry |= {"annotations": {"tokens": 7}} if method.startswith("infocse") else {}
            iterations.append(entry)
        metrics = {"best_iteration": best, "iterations": iterations, "versions": {"infocse_ray": "0"}}
        (root / settings.name / "manifest.json").write_json({"stages": stages})
        return json.loads(json.dumps(metrics))

    def few_shot(self, settings: Settings) -> dict[str, Any]:
        """Stands for fine-tuning and InfoCSE++: a round's ranks are those of its number, the last is the best."""
        method, seed = self._called(settings)
        root = Storage.open(settings.storage)
        rounds, stages = [], {}
        for r in range(1, (1 if settings.train.method == "none" else settings.plusplus.max_rounds) + 1):
            place = f"round_{r}/fine_tuned"
            tuned = self._tested(root / settings.name, place, settings, (method, seed, r), stages)
            validation = dict.fromkeys(("recall@10", "recall@20", "mrr"), 1 - r / 10) | {"recall@5": (1 + r) / 10}
            began = validation | {"recall@5": self.began}
            train = {"tokens": 100, "steps": self.steps}
            without = [{"iteration": r, "train": train, "annotations": {"tokens": 7}, "seconds": {"train": 3.0}}]
            tuned |= {"validation": validation, "history": [began, validation], "train": {"tokens": 9}}
            tuned |= {"seconds": {"train": 1.0, "examples": None}}
            rounds.append({"round": r, "iterations": without, "fine_tuned": tuned})
        (root / settings.name / "manifest.json").write_json({"stages": stages})
        return json.loads(json.dumps({"rounds": rounds, "versions": {"infocse_ray": "0"}}))

    def _called(self, settings: Settings) -> tuple[str, int]:
        name = settings.name.partition("-")[2]  # without that of the tables
        self.calls.append(name)
        if name in self.failing:
            raise self.failing[name]
        _, method, seed, *_ = name.split("-")
        return method, int(seed)

    def _tested(
        self, run: Storage, place: str, settings: Settings, of: tuple[str, int, int], stages: dict[str, Any]
    ) -> dict[str, Any]:
        """Test metrics as a run has them, whitened and plain; its test stages are written, and added to `stages`."""
        if settings.encoder.whiten == "off":
            return {"test": self._stage(run, f"{place}/test", self.ranks(*of), stages)}
        return {
            "test": self._stage(run, f"{place}/test", self.ranks(*of), stages),
            "plain": {"test": self._stage(run, f"{place}/test_plain", self.plain(*of), stages)},
            "whitening": {"power": 0.75, "dimension": 8},
        }

    def _stage(self, run: Storage, name: str, ranks: list[int], stages: dict[str, Any]) -> dict[str, Any]:
        """Metrics of these ranks, which are written as a test stage writes them."""
        folder = run / name.replace("/", "-")
        stages[name] = {"folder": folder.relative}
        columns: dict[str, Any] = {"doc_id": [f"d{i // 2}" for i in range(len(ranks))], "rank": ranks}
        columns |= {} if self.keys is None else {"key": self.keys}
        # Two parts, the later questions first: workers write in no order.
        half = len(ranks) // 2
        for part, rows in enumerate((slice(half, None), slice(None, half))):
            table = pa.table({c: v[rows] for c, v in columns.items()})
            write_parquet(folder / "ranks" / f"part-{part:05d}.parquet", table, [len(table)])
        test = {f"recall@{k}": sum(r <= k for r in ranks) / len(ranks) for k in (5, 10, 20)}
        return test | {"mrr": sum(1 / r for r in ranks) / len(ranks), "queries": len(ranks), "candidates": 50}
