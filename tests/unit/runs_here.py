"""A whole run in this process, without Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import torch

from infocse_ray.corpus.store import TokenStore
from infocse_ray.loop import evaluate
from infocse_ray.loop import run as run_module
from infocse_ray.runtime.cluster import Placement
from infocse_ray.sampling import examples
from infocse_ray.settings import Settings, fingerprint
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.train import loop, trainer
from tests.conftest import make_documents, write_jsonl
from tests.unit.passes import small_store


def prepared(root: Storage, corpus: object, source: Any, tokenizer: str) -> TokenStore:
    """Stands for `prepare`: the same documents whatever the source has."""

    def work(stage: Stage) -> dict[str, Any]:
        counts = small_store(Path(stage.folder.path)).summary
        return counts | {"tokens": 1, "rejected": {}, "token_type": "uint16"}

    identity = fingerprint("prepare", source.fingerprint)
    return TokenStore.of(run_stage(root, root / "corpora" / identity, "prepare", identity, work, piecewise=True))


def over_shards(source: Any, work: Callable[..., pa.Table], **arguments: Any) -> list[dict[str, Any]]:
    packs = pa.table({"shards": [list(source.numbers)]})
    return work(packs, source, **arguments).to_pylist()


def settings_here(tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a run whose every phase is in this process from now on, but for annotating (see `Passes`)."""
    monkeypatch.setattr(run_module, "connect", lambda: None)
    monkeypatch.setattr(run_module, "placement", lambda *_: Placement(1, False, 1))
    monkeypatch.setattr(run_module, "prepare", prepared)
    monkeypatch.setattr(examples, "over_shards", over_shards)
    nothing = SimpleNamespace(remote=lambda *_: None)
    says_nothing = SimpleNamespace(set=nothing, begin=nothing)
    for room, handle in ((trainer, None), (evaluate, says_nothing)):
        board = contextlib.nullcontext(SimpleNamespace(handle=handle))
        monkeypatch.setattr(room, "Board", lambda *_, shown=board, **__: shown)
    monkeypatch.setattr(trainer, "in_one_task", lambda work, argument, **_: work(argument))
    monkeypatch.setattr(evaluate, "run_one_worker", lambda work, argument, *_, **__: work(argument))
    for room in (loop, evaluate):
        monkeypatch.setattr(room, "worker_device", lambda: torch.device("cpu"))
        monkeypatch.setattr(room, "assigned_cores", lambda: 1)
    corpus = write_jsonl(tmp_path / "corpus.jsonl", make_documents(20))
    return Settings.model_validate(
        {
            "name": "run",
            "storage": str(tmp_path / "runs"),
            "corpus": {"source": str(corpus), "lanes": 6},
            "encoder": {"model": str(tiny_encoder), "max_length": 16, "precision": "fp32"},
            "train": {"batch_size": 8, "max_steps": 4, "learning_rate": 1e-3, "chunk_tokens": 256, "similarity": "dot"},
            "validate": {"every": 2},
            "loop": {"max_iterations": 1, "initialization": "none"},
        }
    )
