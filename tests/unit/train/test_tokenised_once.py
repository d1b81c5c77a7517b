"""After the corpus stage no text is tokenised again: everything works on an encoder whose tokenizer can't be used."""

from __future__ import annotations

import functools
from typing import Any, get_args

import pytest
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.idc import cluster
from infocse_ray.corpus.store import documents_of
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.registry import method_of
from infocse_ray.retrieval.validation import questions_for, score
from infocse_ray.sampling.stream import ExampleStream
from infocse_ray.settings import Baseline, Settings
from infocse_ray.storage.folder import Storage
from infocse_ray.train.state import TrainState
from infocse_ray.train.step import train_step
from tests.unit.stores import Written, counted, write_annotations, write_store

DOCUMENTS = [
    Written(f"d{i}", [[7 + i, 20 + j, 30] for j in range(4)], [0, 0, 1, 1], [[7 + i, 40]], "valid") for i in range(12)
]


class Unusable:
    def __deepcopy__(self, _: object) -> Unusable:
        return self  # a copy of an encoder has one, and uses it no more

    def __getattr__(self, name: str) -> Any:
        pytest.fail(f"the tokenizer's {name} was asked for")

    def __call__(self, *_: object, **__: object) -> Any:
        pytest.fail("the tokenizer was called")


@pytest.fixture
def folder(tiny_encoder) -> EncoderFolder:
    return EncoderFolder(Storage.open(str(tiny_encoder)), "x", 16)


def test_annotating(folder, tmp_path):
    store = write_store(Storage.open(str(tmp_path)), DOCUMENTS, 1)
    annotator = Annotator(folder, "fp32", torch.device("cpu"))
    annotator.encoder.tokenizer = Unusable()
    for table in store.read(0, ["valid"]):
        assert len(annotator.clusters(documents_of(table), functools.partial(cluster, k=1))[0]) == 4 * len(table)


def test_validating(folder, tmp_path):
    encoder = folder.load()
    encoder.tokenizer = Unusable()
    store = write_store(Storage.open(str(tmp_path)), DOCUMENTS, 1)
    assert score(encoder, questions_for(store, "valid", "counterpart")).metrics["queries"] == 12


@pytest.mark.parametrize("name", [name for name in get_args(Baseline) if name != "none"] + ["idc"])
def test_training(name, folder, tmp_path):
    encoder = folder.load()
    spec = EncoderSpec.of(encoder)
    encoder.tokenizer = Unusable()
    settings = Settings.model_validate(
        {"name": "run", "corpus": {"source": "unused"}, "encoder": {"model": "unused"}, "train": {"batch_size": 8}}
    )
    method = method_of(name, settings, spec)
    assert method is not None
    documents = [document._replace(split="train") for document in DOCUMENTS]
    examples = counted(write_annotations(Storage.open(str(tmp_path)), documents, 1, 1), method)
    batch = ExampleStream(examples, method, 8, 0).next_batch()
    assert train_step(TrainState(encoder, method, settings, 0), batch, 0, 1).tokens > 0
