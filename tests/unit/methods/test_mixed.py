"""Labelled examples among InfoCSE's pairs: what a batch has of each, for any workers, and who holds on to what."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.layout import write_layout
from infocse_ray.encoder.prompts import Prompts
from infocse_ray.loop.mix import Mix, check_mix
from infocse_ray.methods.idc import Idc
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.methods.labelled import Labelled
from infocse_ray.methods.mixed import Mixed
from infocse_ray.sampling.examples import Examples
from infocse_ray.sampling.mixed_stream import MixedStream
from infocse_ray.sampling.shards import Shards
from infocse_ray.sampling.stream import Batch
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from infocse_ray.train.loop import Training
from infocse_ray.train.loss import Reference, contrastive_loss
from tests.unit.encoder.test_encoder_prompts import copy_of
from tests.unit.methods.test_losses import batch_of
from tests.unit.stores import SPEC, Written, counted, write_annotations
from tests.unit.trainees import MIXED, Run, annotated, method_for, settings_for, stream_of

QUOTA = method_for(MIXED).quota
assert QUOTA == 5  # of a batch of 14


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """Documents of one pair and, one in two, a label."""
    documents = [Written(f"d{i}", [[5, i], [6, i]], [0, 0], [[9, i]] * (i % 2)) for i in range(30)]
    return write_annotations(Storage.open(str(tmp_path_factory.mktemp("source"))), documents, 4, 4)


def views_of(batches: list[Batch], view: int) -> Counter[str]:
    """How often each document has a text that is this view."""
    return Counter(b.doc_ids[i] for b in batches for i in b.owner[b.labels == view].tolist())


def test_a_batch_has_so_many_labels_and_the_rest_are_pairs(source: Shards):
    stream = stream_of(source, method_for(MIXED), 15, 1)
    batches = [stream.next_batch() for _ in range(3)]
    for batch in batches:
        assert views_of([batch], 0).total() == 15 - QUOTA
        assert views_of([batch], 4).total() == QUOTA
        assert np.array_equal(np.unique(batch.owner), np.arange(15))
        assert len(batch.keys) == len(batch.doc_ids) == 15
        for name in ("labels", "text_ids", "seeds", "texts"):
            assert len(getattr(batch, name)) == len(batch.owner)
    assert views_of(batches, 0) == dict.fromkeys([f"d{i}" for i in range(30)], 1), "a pass of pairs"
    assert views_of(batches, 4) == dict.fromkeys([f"d{i}" for i in range(1, 30, 2)], 1), "and one of labels"


def content(batches: list[Batch]) -> list[str]:
    """What workers have of a batch, text by text."""
    return sorted(
        repr((b.doc_ids[owner], label, b.texts.values[slice(*b.texts.offsets[row : row + 2])].tolist()))
        for b in batches
        for row, (owner, label) in enumerate(zip(b.owner.tolist(), b.labels.tolist(), strict=True))
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_are_the_same_for_any_workers_and_after_an_interruption(source: Shards, workers: int):
    method = method_for(MIXED)
    alone = stream_of(source, method, 14, 1)
    expected = [content([alone.next_batch()]) for _ in range(9)]
    group = [stream_of(source, method, 14, 1, rank, workers) for rank in range(workers)]
    assert [content([stream.next_batch() for stream in group]) for _ in range(4)] == expected[:4]
    state = {name: value for stream in group for name, value in stream.state().items()}
    resumed = [stream_of(source, method, 14, 1, rank, 2) for rank in range(2)]
    for stream in resumed:
        stream.next_batch()
        stream.restore(state)
    assert [content([stream.next_batch() for stream in resumed]) for _ in range(5)] == expected[4:]


def test_only_pairs_hold_on(source: Shards):
    method, encoded, _ = batch_of(source, MIXED)
    before = encoded._replace(vectors=torch.randn(encoded.vectors.shape, dtype=torch.float64))
    unread = torch.isin(before.labels, torch.tensor(sorted(method.unreferred)))
    assert unread.any()
    other = torch.where(unread[:, None], 0.0, before.vectors)

    def loss(vectors: torch.Tensor, **changed: Any) -> float:
        reference = Reference(method.contrast(before._replace(vectors=vectors), torch.nn.Identity()), 0.5)
        contrast = method.contrast(encoded, torch.nn.Identity())
        return contrastive_loss(contrast._replace(**changed), reference).item()

    assert loss(other) == loss(before.vectors), "labelled documents are rows, and none of what is held on to"
    assert loss(other, held=None) != pytest.approx(loss(before.vectors, held=None))
    counterparts = before.labels == 4
    moved = torch.where(counterparts[:, None], -before.vectors, before.vectors)
    assert loss(moved) != pytest.approx(loss(before.vectors)), "counterparts are columns of the pairs' rows"


def test_what_is_held_on_to_was_asked_with_the_same_prompts(tiny_encoder: Path, tmp_path: Path):
    prompted = copy_of(tiny_encoder, tmp_path)
    prompts = Prompts({"query": "a ", "document": "the ship, "})
    write_layout(prompted, 32, "mean", False, 16, prompts=prompts)
    source = annotated(tmp_path / "source", prompted)
    run = Run(prompted, source, case=MIXED, dropout=False, distillation=0.5)
    batch = run.stream.next_batch()
    found = run.state.reference(batch)
    assert found is not None
    encoder = run.encoder.eval()
    for role, views in (("document", [0, 1]), ("query", [4])):
        rows = np.flatnonzero(np.isin(batch.labels, views))
        expected = embed(encoder, batch.texts.take(rows), role=role).vectors  # pyright: ignore[reportArgumentType]
        torch.testing.assert_close(found[torch.from_numpy(rows)], expected, atol=1e-5, rtol=1e-4)
        assert len(rows)
    assert not found[torch.from_numpy(np.isin(batch.labels, [3, 5]))].any(), "nobody asks for these"


@pytest.mark.parametrize("copied", [True, False])
def test_what_was_copied_out_of_the_corpus_is_read_on_this_machine(
    source: Shards, monkeypatch: pytest.MonkeyPatch, copied: bool
):
    """It is dealt again and again; a whole corpus of labels stays where it is."""
    asked: list[tuple[Storage, str]] = []

    def local_copy(storage: Storage, key: str) -> Path:
        asked.append((storage, key))
        return Path(storage.path)

    monkeypatch.setattr(Storage, "local_copy", local_copy)
    method, nothing = method_for(MIXED), cast(Any, None)
    store = cast(Any, SimpleNamespace(fingerprint="store"))
    named = "copy" if copied else "store"
    labels = counted(source._replace(fingerprint=named, annotations=None), method.labels)
    pairs, place = counted(source, method.pairs), (nothing, nothing, 1, nothing, cast(Any, "counterpart"))
    training = Training(settings_for(MIXED), store, pairs, method, *place)
    stream = training._replace(labels=labels).stream()
    assert asked == ([(source.folder, "copy")] if copied else [])
    training._replace(examples=labels, method=method.labels).stream()  # as fine-tuning does
    assert asked == ([(source.folder, "copy")] * 2 if copied else [])
    size = training.settings.train.batch_size
    assert content([stream.next_batch()]) == content([stream_of(source, method, size, 1).next_batch()])
    assert not isinstance(training._replace(method=method.pairs).stream(), MixedStream)


def mixing(method: str = "idc", share: float = 0.5, size: int = 128) -> Settings:
    sections = {"plusplus": {"label_share": share}, "train": {"method": method, "batch_size": size}}
    return Settings.model_validate({"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}, **sections})


@pytest.mark.parametrize(
    ("share", "size", "documents", "quota", "said"),
    [
        (0.5, 128, 100, 64, "64 of a batch's 128 examples are labelled ones\n"),
        (0.25, 10, 100, 2, "2 of a batch's 10 examples are labelled ones\n"),
        (0.01, 10, 100, 1, "1 of a batch's 10 examples are labelled ones\n"),
        (0.9, 4, 100, 2, "2 of a batch's 4 examples are labelled ones\n"),
        (0.5, 3200, 100, 100, "ones, as many as there are labelled documents: 1,600 were to be\n"),
    ],
)
def test_the_share_of_a_batch(
    share: float, size: int, documents: int, quota: int, said: str, capsys: pytest.CaptureFixture[str]
):
    source: Any = SimpleNamespace()
    mix = Mix(LabelSample(0, 5), Examples(source, "f", {"documents": documents}), SPEC)
    method = mix.among(
        Idc(settings_for("idc", temperature=0.3, similarity="cosine").train, SPEC), mixing("idc", share, size)
    )
    assert (method.quota, method.labels.drawn) == (quota, LabelSample(0, 5))
    assert (method.labels.temperature, method.labels.cosine) == (0.3, True)
    assert capsys.readouterr().out.endswith(said)


def test_its_parts_name_its_results():
    settings = settings_for("idc")

    def named(quota: int = 2, drawn: int = 1, **train: Any) -> tuple[Any, ...]:
        labels = Labelled(LabelSample(0, drawn), 1.0, False, SPEC)
        return Mixed(Idc(settings.train.model_copy(update=train), SPEC), labels, quota).identity()

    assert len({named(), named(quota=3), named(drawn=2), named(temperature=0.5)}) == 4


def test_labels_are_mixed_with_pairs_alone():
    check_mix(mixing())
    check_mix(mixing("simcse", share=0.0))
    with pytest.raises(ValueError, match=r"^plusplus\.label_share = 0\.5: .*train\.method is simcse; set it to 0"):
        check_mix(mixing("simcse"))
    with pytest.raises(
        ValueError, match=r"^train\.batch_size = 3: plusplus\.label_share = 0\.5 .*; set it to 4 or more"
    ):
        check_mix(mixing(size=3))
