"""What is timed of training before a run that is given minutes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import AutoTokenizer

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import offsets_of
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.loop import pace
from infocse_ray.loop.pace import TimeSteps
from infocse_ray.runtime.placement import Placement
from tests.conftest import make_documents
from tests.unit.trainees import CASES, document, method_for, ragged, settings_for

CPU = torch.device("cpu")


def documents(encoder: Path, count: int = 12) -> Documents:
    """As the actors read them: not annotated."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    ids = [tokenizer(row["sentences"], add_special_tokens=False)["input_ids"] for row in make_documents(count)]
    names, sizes = [f"d{row}" for row in range(count)], np.array([len(sentences) for sentences in ids])
    sentences = ragged([sentence for one in ids for sentence in one])
    return Documents(pa.array(names), np.arange(count), offsets_of(sizes), sentences)


def steps_of(case: str, model: Path, examples: int = 9) -> TimeSteps:
    settings = settings_for(case, model)
    folder: Any = SimpleNamespace(load=lambda: load_encoder(model, settings.encoder, cosine=True))
    return TimeSteps(folder, method_for(case, EncoderSpec.of(folder.load()), settings), settings, examples)


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_every_method_is_timed(case: str, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, texts = steps_of(case, tiny_encoder), documents(tiny_encoder)
    taken: list[tuple[int, int, int]] = []
    step = pace.train_step

    def slow(state: Any, batch: Any, seed: int, number: int) -> Any:
        report = step(state, batch, seed, number)
        taken.append((number, len(batch.keys), report.tokens))
        clock.now += 5.0 if number == 1 else 1.0
        return report

    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(pace, "time", clock)
    monkeypatch.setattr(pace, "train_step", slow)
    found = steps(texts, CPU)
    assert [(number, examples) for number, examples, _ in taken] == [(1, 9), (2, 9)]
    assert found["trained"] == taken[1][2] > 0
    assert found["training_seconds"] == 1.0, "of the second step"
    monkeypatch.setattr(pace, "_LONG", 4.0)
    taken.clear()
    assert steps(texts, CPU)["training_seconds"] == 5.0
    assert [number for number, *_ in taken] == [1], "one that takes long is enough"


def test_documents_share_a_batch_as_training_deals_them(tiny_encoder: Path) -> None:
    texts = documents(tiny_encoder)
    batch = steps_of("idc", tiny_encoder)._batch(texts)
    assert batch is not None
    assert sorted(batch.keys.tolist()) == list(range(9)), "a document each while there are others"
    assert batch.doc_ids == [str(key) for key in batch.keys]
    twice = steps_of("idc", tiny_encoder, examples=15)._batch(texts)
    assert twice is not None
    assert np.bincount(twice.keys).tolist() == [2] * 3 + [1] * 9
    assert len(np.unique(twice.text_ids)) > 20, "other examples of the same documents"


def test_no_example_is_nothing_to_time(tiny_encoder: Path) -> None:
    assert steps_of("idc", tiny_encoder)(document([[7, 8]])._replace(clusters=None), CPU) == {}


def test_training_is_timed_where_sentences_are_embedded() -> None:
    method: Any = SimpleNamespace()

    def run(train: Placement, method: Any = method, size: int = 10) -> Any:
        settings = SimpleNamespace(train=SimpleNamespace(batch_size=size))
        counts = {"tokens": 1000, "sentences": 100}
        return SimpleNamespace(
            iteration_stages=SimpleNamespace(where={"train": train, "annotate": Placement(2, False, 1)}),
            inputs=SimpleNamespace(method=method, encoder=SimpleNamespace(max_length=32)),
            store=SimpleNamespace(summary=counts),
            settings=settings,
            start="start",
        )

    cpus = Placement(4, False, 1)
    assert pace._steps(run(cpus)) == TimeSteps("start", method, run(cpus).settings, 3)  # pyright: ignore
    [*_, examples] = pace._steps(run(cpus, size=10_000)) or []
    assert examples == 2048 // 20, "no more than time takes"
    assert pace._steps(run(Placement(1, True, 1))) is None, "a GPU trains, CPUs embed"
    assert pace._steps(run(cpus, method=None)) is None
