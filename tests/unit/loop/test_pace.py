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
from infocse_ray.loop.pace import TimeEmbedding, TimeTraining
from infocse_ray.loop.speed import Speed
from infocse_ray.runtime import kept_process
from infocse_ray.runtime.placement import Nodes, Placement
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


def steps_of(case: str, model: Path, examples: int = 9) -> TimeTraining:
    settings = settings_for(case, model)
    folder: Any = SimpleNamespace(load=lambda: load_encoder(model, settings.encoder, cosine=True))
    return TimeTraining(folder, method_for(case, EncoderSpec.of(folder.load()), settings), settings, examples)


def test_embedding_is_timed_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(pace, "time", clock)
    embedded: list[list[int]] = []
    per_sentence = 0.0

    def embed(sentences: Any) -> torch.Tensor:
        embedded.append([int(sentences.values[first]) for first in sentences.offsets[:-1]])
        annotator.tokens += len(sentences.values)
        clock.now += per_sentence * len(sentences)
        return torch.zeros(len(sentences), 2)

    annotator: Any = SimpleNamespace(tokens=0, embed=embed)
    group = SimpleNamespace(sentences=ragged([[number, 1] for number in range(4_000)]))
    documents: Any = SimpleNamespace(read=lambda shard: [group] if shard == 7 else [])

    def timed() -> list[dict[str, Any]]:
        embedded.clear()
        return TimeEmbedding(documents)(annotator, [3, 7])

    assert timed() == [{"tokens": 8_000, "seconds": 0.0}]
    assert [len(one) for one in embedded] == [256, 512, 1024, 2048, 416], "the first without time being taken"
    assert [number for one in embedded[1:] for number in one] == list(range(4_000)), "each once"
    per_sentence = 0.004
    assert timed() == [{"tokens": 3_072, "seconds": 1_536 * per_sentence}], "what began in three seconds"
    assert TimeEmbedding(documents)(annotator, [3]) == []


@pytest.mark.parametrize(("asked", "actors", "times"), [("auto", 1, 2.0), (3, 3, 1.0)])
def test_embedding_is_timed_as_annotating_will_embed(
    asked: Any, actors: int, times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, float | None]] = []

    def in_actors(groups: list[list[int]], *_: Any, tokens: float | None) -> list[dict[str, Any]]:
        told.append((len(groups), tokens))
        clock.now += 10.0
        return [{"tokens": 60, "seconds": 3.0} for _ in groups]

    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    documents = SimpleNamespace(groups=lambda: [[0], [1], [2], [3], [4], [5], [6]], tokens=500.0)
    monkeypatch.setattr(pace, "time", clock)
    monkeypatch.setattr(pace, "in_actors", in_actors)
    monkeypatch.setattr(pace, "TrainingDocuments", lambda *_: documents)
    monkeypatch.setattr(pace, "is_small", lambda tokens, *_: tokens == 500.0)
    monkeypatch.setattr(pace, "of_one", lambda _: 2.0)
    monkeypatch.setattr(pace, "_training", lambda *_: 7.0)
    run: Any = SimpleNamespace(
        iteration_stages=SimpleNamespace(where={"annotate": Placement(3, False, 2)}, splits=["train"]),
        store="store",
        start="start",
        settings=SimpleNamespace(
            annotate=SimpleNamespace(num_workers=asked), encoder=SimpleNamespace(precision="auto")
        ),
    )
    assert pace.measured(run) == Speed(20.0 * actors * times, 4.0, 7.0)
    assert told == [(2 * actors, 500.0 if asked == "auto" else None)]


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_every_method_is_timed(case: str, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, texts = steps_of(case, tiny_encoder), documents(tiny_encoder)
    taken: list[tuple[int, int, int]] = []
    step = pace.train_step

    def slow(state: Any, batch: Any, seed: int, number: int) -> Any:
        report = step(state, batch, seed, number)
        taken.append((number, len(batch.keys), report.tokens))
        clock.now += {1: 5.0, 2: 2.0, 3: 1.0}[number]
        return report

    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(pace, "time", clock)
    monkeypatch.setattr(pace, "train_step", slow)
    found = steps.on(texts, CPU)
    assert [(number, examples) for number, examples, _ in taken] == [(1, 9), (2, 9), (3, 9)]
    assert found == taken[2][2] / 1.0, "of the fastest step but the first"
    monkeypatch.setattr(pace, "_LONG", 4.0)
    taken.clear()
    assert steps.on(texts, CPU) == taken[0][2] / 5.0
    assert [number for number, *_ in taken] == [1], "one that takes long is enough"


def test_documents_share_a_batch_as_training_deals_them(tiny_encoder: Path) -> None:
    texts = documents(tiny_encoder)
    batch = steps_of("idc", tiny_encoder).batch(texts)
    assert batch is not None
    assert sorted(batch.keys.tolist()) == list(range(9)), "a document each while there are others"
    assert batch.doc_ids == [str(key) for key in batch.keys]
    twice = steps_of("idc", tiny_encoder, examples=15).batch(texts)
    assert twice is not None
    assert np.bincount(twice.keys).tolist() == [2] * 3 + [1] * 9
    assert len(np.unique(twice.text_ids)) > 20, "other examples of the same documents"


def test_no_example_is_nothing_to_time(tiny_encoder: Path) -> None:
    assert steps_of("idc", tiny_encoder).on(document([[7, 8]])._replace(clusters=None), CPU) is None


def test_one_in_place_of_a_node_s_workers_has_their_part_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def in_one_task(work: TimeTraining, *arguments: Any, where: Placement, title: str) -> float:
        asked.append((work.examples, *arguments, where))
        return 100.0

    monkeypatch.setattr(pace, "in_one_task", in_one_task)
    monkeypatch.setattr(kept_process, "nodes_there", lambda: Nodes([8, 8], [0, 1]))
    documents: Any = "documents"

    def training(train: Placement, size: int = 10, method: Any = "method") -> float | None:
        run: Any = SimpleNamespace(
            iteration_stages=SimpleNamespace(where={"train": train}),
            inputs=SimpleNamespace(method=method, encoder=SimpleNamespace(max_length=32)),
            store=SimpleNamespace(summary={"tokens": 1000, "sentences": 100}),
            settings=SimpleNamespace(train=SimpleNamespace(batch_size=size)),
            start="start",
        )
        return pace._training(run, documents, [[0, 1], [2], [3], [4], [5], [6], [7], [8]])

    of_a_node, of_two, gpus = Placement(4, False, 2), Placement(8, False, 2), Placement(2, True, 1)
    assert training(of_a_node) == 100.0, "it had the cores of all four"
    assert training(of_two) == 200.0, "of the four on one node"
    assert training(of_two, 10_000) == 200.0
    assert training(gpus, 10_000) == 200.0
    assert [one[0] for one in asked] == [10, 5, 2048 // 20, 65_536 // 20], "no more than time takes"
    assert [one[2] for one in asked][1:] == [[0, 1], [0, 1], [0, 1, 2, 3, 4, 5, 6, 7]], "with as many sentences"
    assert [one[3] for one in asked] == [of_a_node, of_two, of_two, gpus]
    assert training(of_two, method=None) is None
