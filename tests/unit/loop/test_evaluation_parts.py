"""A worker of the evaluation, in this process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

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
        self.scored: list[tuple[str, list[Any]]] = []

    def questions_for(
        self, store: Any, *asked: Any, device: torch.device, seed: int, max_candidates: int | None, reading: str
    ) -> Any:
        assert max_candidates is None
        self.read.append((*asked, seed, reading))
        return SimpleNamespace(doc_ids=["a"], question_keys=np.array([7]), asked=asked)

    def score(self, encoder: str, maps: list[Any], questions: Any, top: int) -> list[Any]:
        self.scored.append((encoder, [None if one is None else one.name for one in maps]))
        return [
            SimpleNamespace(
                metrics={"of": encoder, "under": one and one.name, "asked": list(questions.asked)},
                ranks=np.array([len(encoder)]),
                top_keys=np.array([[9, 5, 0]]),
            )
            for one in maps
        ]

    def work(self, todo: list[tuple[Asked, Storage]]) -> None:
        shown = SimpleNamespace(remote=lambda done, _: self.shown.append(done))
        board = SimpleNamespace(begin=SimpleNamespace(remote=lambda: None), set=shown)
        evaluate._evaluate_worker(evaluate._Evaluation(cast(Any, None), "fp32", 5, todo, board))


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker()
    monkeypatch.setattr(evaluate, "assigned_cores", torch.get_num_threads)
    monkeypatch.setattr(evaluate, "worker_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(evaluate, "questions_for", made.questions_for)
    monkeypatch.setattr(evaluate, "for_inference", lambda encoder, *_: encoder)
    monkeypatch.setattr(evaluate, "score_under", made.score)
    return made


class Map(NamedTuple):
    """A whitening."""

    name: str

    def to(self, device: torch.device) -> Map:
        assert device.type == "cpu"
        return self


def encoder(name: str, whitening: str | None = None) -> Any:
    plain = SimpleNamespace(load=lambda: name)
    return SimpleNamespace(
        before_whitening=lambda: name,
        without_whitening=lambda: plain,
        whitening=lambda: None if whitening is None else Map(whitening),
    )


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
    kinds = [
        ("valid", "sentence", 100, "sentences"),
        ("test", "counterpart", None, "sentences"),
        ("valid", "sentence", None, "sentences"),
        ("test", "counterpart", None, "both"),
    ]
    todo = [
        (Asked(encoder(name), *cast(Any, kind[:3]), reading=cast(Any, kind[3])), root / fingerprint(name, kind))
        for name in ("one", "three")
        for kind in kinds
    ]
    worker.work(todo)
    assert sorted(worker.read, key=repr) == sorted(((*kind[:3], 5, kind[3]) for kind in kinds), key=repr)
    assert worker.shown == list(range(1, 9))
    for name in ("one", "three"):
        for kind in kinds:
            found = (root / fingerprint(name, kind) / "metrics.json").read_json()["metrics"]
            assert found == {"of": name, "under": None, "asked": list(kind[:3])}


def test_encoders_that_differ_in_their_whitening_alone_embed_once_what_they_are_asked(tmp_path: Path, worker: Worker):
    root = Storage.open(str(tmp_path))
    encoders = [("start", None), ("trained", "a"), ("start", "b"), ("trained", None), ("start", "c")]
    todo = [(Asked(encoder(*one), "test", "halves"), root / repr(one)) for one in encoders]
    worker.work([*todo, (Asked(encoder("start", "b"), "valid", "halves"), root / "valid")])
    assert worker.scored == [("start", [None, "b", "c"]), ("trained", ["a", None]), ("start", ["b"])]
    for one in encoders:
        found = (root / repr(one) / "metrics.json").read_json()["metrics"]
        assert (found["of"], found["under"]) == one
