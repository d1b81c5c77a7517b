"""A worker of the evaluation, in this process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from infocse_ray.loop import evaluate
from infocse_ray.storage import Storage


def test_no_ranks_stay_of_workers_that_a_smaller_group_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = Storage.open(str(tmp_path))
    for rank in (0, 1, 12):
        (place / "ranks" / f"part-{rank:05d}.parquet").write_bytes(b"of the group before")
    found = SimpleNamespace(metrics={"mrr": 1.0}, ranks=np.array([1]), top_keys=np.array([7]))
    questions = SimpleNamespace(doc_ids=["a"], true_keys=np.array([7]))
    monkeypatch.setattr(evaluate, "assigned_cores", torch.get_num_threads)
    monkeypatch.setattr(evaluate, "worker_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(evaluate, "questions_for", lambda *_, **__: questions)
    monkeypatch.setattr(evaluate, "for_inference", lambda *_: None)
    monkeypatch.setattr(evaluate, "score", lambda *_: found)
    encoder = cast(Any, SimpleNamespace(load=lambda: None))
    board = SimpleNamespace(set=SimpleNamespace(remote=lambda *_: None))
    evaluate._evaluate_worker(
        evaluate._Evaluation(cast(Any, None), "test", "halves", "fp32", [(encoder, place)], board)
    )
    assert list((place / "ranks").files()) == ["part-00000.parquet"]
    assert (place / "metrics.json").read_json()["metrics"] == {"mrr": 1.0}
