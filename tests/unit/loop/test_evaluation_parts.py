"""A worker of the evaluation, in this process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from infocse_ray.loop import evaluate
from infocse_ray.loop.evaluate import Asked
from infocse_ray.retrieval.questions import read_ranks
from infocse_ray.settings import fingerprint
from infocse_ray.storage.folder import Storage


class Worker:
    """What the worker reads and scores; an encoder is its name, a score says whose it is and what was asked."""

    def __init__(self) -> None:
        self.read: list[tuple[Any, ...]] = []
        self.shown: list[int] = []

    def questions_for(
        self, store: Any, *asked: Any, device: torch.device, seed: int, max_candidates: int | None
    ) -> Any:
        assert max_candidates is None
        self.read.append((*asked, seed))
        return SimpleNamespace(doc_ids=["a"], question_keys=np.array([7]), asked=asked)

    def score(self, encoder: str, questions: Any, top: int) -> Any:
        metrics = {"of": encoder, "asked": list(questions.asked)}
        return SimpleNamespace(metrics=metrics, ranks=np.array([len(encoder)]), top_keys=np.array([[9, 5, 0]]))

    def work(self, todo: list[tuple[Asked, Storage]]) -> None:
        board = SimpleNamespace(set=SimpleNamespace(remote=lambda done, _: self.shown.append(done)))
        evaluate._evaluate_worker(evaluate._Evaluation(cast(Any, None), "fp32", 5, todo, board))


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker()
    monkeypatch.setattr(evaluate, "assigned_cores", torch.get_num_threads)
    monkeypatch.setattr(evaluate, "worker_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(evaluate, "questions_for", made.questions_for)
    monkeypatch.setattr(evaluate, "for_inference", lambda encoder, *_: encoder)
    monkeypatch.setattr(evaluate, "score", made.score)
    return made


def encoder(name: str) -> Any:
    return SimpleNamespace(load=lambda: name, fingerprint=name)


def test_no_ranks_stay_of_workers_that_a_smaller_group_has_not(tmp_path: Path, worker: Worker):
    place = Storage.open(str(tmp_path))
    for rank in (0, 1, 12):
        (place / "ranks" / f"part-{rank:05d}.parquet").write_bytes(b"of the group before")
    worker.work([(Asked(encoder("one"), "test", "halves"), place)])
    assert list((place / "ranks").files()) == ["part-00000.parquet"]
    assert read_ranks(place, top=True).to_pylist() == [
        {"doc_id": "a", "key": 7, "rank": 3, "top_key": 9, "second_key": 5, "third_key": 0}
    ]


def test_questions_are_read_once_for_all_encoders(tmp_path: Path, worker: Worker):
    root = Storage.open(str(tmp_path))
    kinds = [("valid", "sentence", 100), ("test", "counterpart", None), ("valid", "sentence", None)]
    todo = [
        (Asked(encoder(name), *cast(Any, kind)), root / fingerprint(name, kind))
        for name in ("one", "three")
        for kind in kinds
    ]
    worker.work(todo)
    assert sorted(worker.read, key=repr) == sorted(((*kind, 5) for kind in kinds), key=repr)
    assert worker.shown == [1, 2, 3, 4, 5, 6]
    for name in ("one", "three"):
        for kind in kinds:
            found = (root / fingerprint(name, kind) / "metrics.json").read_json()["metrics"]
            assert found == {"of": name, "asked": list(kind)}
