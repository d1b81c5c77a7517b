"""What distillation holds on to, of texts that a training reads again and again: embedded once, and the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from infocse_ray.corpus.tokens import Tokens, concatenate
from infocse_ray.encoder.embed import embed
from infocse_ray.sampling.mixed_stream import MixedStream, Stream
from infocse_ray.sampling.stream import ExampleStream
from infocse_ray.sampling.texts import different_texts
from infocse_ray.storage.folder import Storage
from infocse_ray.train import loop, start_vectors
from infocse_ray.train.checkpoints import OfOneProcess
from infocse_ray.train.loop import Training, TrainingWorker
from infocse_ray.train.schedule import Budget
from infocse_ray.train.start_vectors import StartVectors
from tests.unit.passes import small_store
from tests.unit.stores import counted
from tests.unit.train.test_resume_whitened import begun, whitened_start
from tests.unit.train.test_training_worker import asked_at
from tests.unit.trainees import Run, annotated, ragged

CPU = torch.device("cpu")


@pytest.fixture
def run(tiny_encoder: Path, tmp_path: Path) -> Run:
    source = annotated(tmp_path / "source", tiny_encoder, count=20)
    return Run(tiny_encoder, source, similarity="cosine", temperature=0.05, distillation=0.5)


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts were embedded by each call."""
    counts: list[int] = []

    def counting(encoder, tokens, **how):
        counts.append(len(tokens))
        return embed(encoder, tokens, **how)

    monkeypatch.setattr(start_vectors, "embed", counting)
    return counts


@pytest.fixture
def training(tmp_path: Path, tiny_encoder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Training:
    """Forty steps of it."""
    for name, fake in {"worker_device": lambda: CPU, "assigned_cores": lambda: 1}.items():
        monkeypatch.setattr(loop, name, fake)
    asked_at(None, monkeypatch)
    store, source = small_store(tmp_path / "store", count=60, by_key=True), annotated(tmp_path, tiny_encoder, count=20)
    start = whitened_start(run.settings, store, tiny_encoder, tmp_path / "start")
    examples, method = counted(source, run.state.method), run.state.method
    folder = Storage.open(str(tmp_path / "stage"))
    return Training(run.settings, store, examples, method, Budget(40, None, 99), start, 5, folder, "sentence")


def texts_of(stream: Stream) -> Tokens:
    texts = stream.texts(10**6)
    assert texts is not None
    return texts


def start_of(run: Run) -> StartVectors:
    assert run.state.start is not None
    return run.state.start


def test_every_text_of_a_batch_is_among_those_embedded_once(run, embedded):
    start_of(run).embed_once(texts_of(run.stream))
    embedded.clear()
    batches = [run.stream.next_batch() for _ in range(8)]
    found = [run.state.reference(batch) for batch in batches]
    assert not embedded
    plain = StartVectors(start_of(run)._encoder)
    for batch, vectors in zip(batches, found, strict=True):
        assert torch.allclose(vectors, plain.of(batch.texts, batch.text_ids, "document"), atol=1e-6)


def test_others_are_embedded_when_they_are_asked_for(run, embedded):
    start, texts = start_of(run), texts_of(run.stream)
    start.embed_once(texts.take(np.arange(0, len(texts), 2)))
    embedded.clear()
    more = concatenate([texts, ragged([[5, 6, 7]])])
    found = start.of(more, more.hashes(), "document")
    assert embedded == [len(texts) // 2 + 1]
    assert torch.allclose(found, StartVectors(start._encoder).of(more, more.hashes(), "document"), atol=1e-6)


def test_they_are_embedded_some_at_a_time_and_asked_between_whether_to_stop(run, embedded, monkeypatch):
    start, texts, answers = start_of(run), texts_of(run.stream), [False] * 40
    monkeypatch.setattr(start_vectors, "_AT_ONCE", 30)
    assert not start.embed_once(texts, lambda: answers.pop())
    parts = -(-len(texts) // 30)
    assert len(answers) == 40 - parts
    assert embedded == [30] * (parts - 1) + [len(texts) - 30 * (parts - 1)]
    plain = StartVectors(start._encoder)
    assert torch.allclose(
        start.of(texts, texts.hashes(), "document"), plain.of(texts, texts.hashes(), "document"), atol=1e-6
    )
    answers = [True, False, False]
    embedded.clear()
    assert plain.embed_once(texts, lambda: answers.pop())
    assert embedded == [30, 30]
    assert not plain.known


def test_queries_are_no_documents(run, embedded):
    start, texts = start_of(run), texts_of(run.stream)
    start.embed_once(texts)
    start.of(texts, texts.hashes(), "query")
    assert embedded == [len(texts)] * 2


def test_each_text_once_and_none_where_there_are_more(run):
    texts = texts_of(run.stream)
    assert len(np.unique(texts.hashes())) == len(texts)
    assert run.stream.texts(len(texts)) is not None
    assert run.stream.texts(len(texts) - 1) is None


def test_no_shards_have_no_texts(run, tmp_path, tiny_encoder):
    assert different_texts(annotated(tmp_path, tiny_encoder, count=20), run.state.method, [], 5) is None


def known(worker: TrainingWorker) -> int:
    assert worker._state.start is not None
    return worker._state.start.known


def known_with(training: Training, budget: Budget) -> int:
    return known(TrainingWorker(training._replace(budget=budget), OfOneProcess(training.folder)))


def test_a_training_that_reads_each_text_twice_embeds_them_once(training, run):
    texts, batch = texts_of(run.stream), 2 * training.settings.train.batch_size
    enough = -(-2 * len(texts) // batch)
    assert known_with(training, Budget(enough, None, 99)) == len(texts)
    assert not known_with(training, Budget(enough - 1, None, 99))


def test_a_worker_embeds_those_of_its_lanes_where_it_reads_each_twice(training, run, monkeypatch):
    texts = texts_of(run.stream)
    own = [texts_of(ExampleStream(training.examples, training.method, 14, 5, rank, 2)) for rank in (0, 1)]
    assert set(own[0].hashes()) | set(own[1].hashes()) == set(texts.hashes())
    assert len(own[0]) < len(texts)
    monkeypatch.setattr(loop, "workers", lambda: 2)
    enough = -(-2 * len(own[0]) // training.settings.train.batch_size)
    assert known_with(training, Budget(enough, None, 99)) == len(own[0])
    assert not known_with(training, Budget(enough - 1, None, 99))
    tokens = 2 * int(run.encoder.lengths(own[0]).sum())
    assert known_with(training, Budget(enough, 2 * tokens, 99))
    assert not known_with(training, Budget(enough, 2 * tokens - 2, 99))


def test_among_labels_they_are_those_of_the_pairs(training, run):
    none = training.examples._replace(source=training.examples.source._replace(drawn=[]))
    assert isinstance(run.stream, ExampleStream)
    mixed = texts_of(MixedStream(run.stream, ExampleStream(none, run.state.method, 7, 6)))
    assert np.array_equal(mixed.hashes(), texts_of(run.stream).hashes())


def test_tokens_end_it_too(training, run):
    tokens = int(run.encoder.lengths(texts_of(run.stream)).sum())
    assert known_with(training, Budget(40, 2 * tokens, 99))
    assert not known_with(training, Budget(40, 2 * tokens - 2, 99))


def test_no_more_are_kept_than_memory_is_for_them(training, run, monkeypatch):
    texts, a_vector = texts_of(run.stream), 4 * start_of(run).dimension
    enough = Budget(40, 2 * int(run.encoder.lengths(texts).sum()), 99)
    monkeypatch.setattr(start_vectors, "_BYTES", a_vector * len(texts))
    assert known_with(training, enough) == len(texts)
    monkeypatch.setattr(start_vectors, "_BYTES", a_vector * len(texts) - 1)
    assert not known_with(training, enough)


def test_it_learns_what_it_would_and_resumes_as_uninterrupted(training, tmp_path, monkeypatch):
    whole = begun(training, tmp_path / "whole")
    assert known(whole)
    whole.run()
    asked_at(36, monkeypatch)  # in its 35th step, for it asks before embedding, too; the rest alone isn't worth that
    begun(training, tmp_path / "again").run()
    asked_at(None, monkeypatch)
    resumed = begun(training, tmp_path / "again")
    assert resumed.progress["step"] == 35
    resumed.run()
    monkeypatch.setattr(start_vectors, "_BYTES", 0)
    plain = begun(training, tmp_path / "plain")
    assert not known(plain)
    plain.run()
    for name, tensor in whole._encoder.state_dict().items():
        assert torch.equal(tensor, resumed._encoder.state_dict()[name]), name
        assert torch.allclose(tensor, plain._encoder.state_dict()[name], atol=1e-4), name


def test_who_is_asked_to_stop_meanwhile_ends_before_the_first_step(training, tmp_path, monkeypatch):
    monkeypatch.setattr(start_vectors, "_AT_ONCE", 7)
    asked_at(2, monkeypatch)
    stopped = begun(training, tmp_path / "again")
    stopped.run()
    assert (stopped.progress["step"], stopped.progress["history"], known(stopped)) == (0, [], 0)
    assert not list(tmp_path.glob("again/[cr]*")), "neither a checkpoint nor a result"
    asked_at(None, monkeypatch)
    assert known(begun(training, tmp_path / "again")) > 7


def test_all_workers_stop_where_one_is_asked_to(training, tmp_path, monkeypatch):
    asked_at(None, monkeypatch)
    monkeypatch.setattr(loop, "any_worker", lambda here: True)
    other = begun(training, tmp_path / "other")
    assert known(other), "it has embedded its own"
    other.run()
    assert other.progress["step"] == 0
