"""An encoder in training by any method, as a worker has it; a corpus for it; settings of every method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import AutoTokenizer
from transformers.utils import logging

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.distributed import collectives as collective
from infocse_ray.encoder.dropout import set_dropout
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.chance import mix
from infocse_ray.methods.idc import Idc
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.methods.labelled import Labelled
from infocse_ray.methods.mixed import Mixed
from infocse_ray.methods.opened import Opened
from infocse_ray.methods.registry import method_of
from infocse_ray.sampling.mixed_stream import MixedStream, Stream
from infocse_ray.sampling.shards import Shards
from infocse_ray.sampling.stream import Batch, ExampleStream
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from infocse_ray.train.loop import LABELS
from infocse_ray.train.state import TrainState
from infocse_ray.train.step import StepReport, train_step
from tests.conftest import make_documents
from tests.unit.stores import SPEC, Written, counted, numbered, write_annotations

logging.disable_progress_bar()  # one for each encoder that is loaded

LANES = SHARDS = 4

CASES: dict[str, dict[str, Any]] = {
    "idc": {"train": {"method": "idc"}},
    "simcse": {"train": {"method": "simcse"}},
    "consert": {"train": {"method": "consert"}},
    "consert others": {
        "train": {"method": "consert"},
        "consert": {"first": "token_cutoff", "second": "dropout"},
    },
    "mirror_bert": {"train": {"method": "mirror_bert"}},
    "ict": {"train": {"method": "ict"}, "ict": {"projection": 8, "query_tokens": 10, "block_tokens": 30}},
    "ict sentences": {"train": {"method": "ict"}, "ict": {"projection": 0, "block": "sentences"}},
    "cpc": {"train": {"method": "cpc"}},
    "declutr": {"train": {"method": "declutr"}, "declutr": {"min_tokens": 4, "max_tokens": 12, "mask": 0.3}},
    "conpono": {"train": {"method": "conpono"}},
    "tsdae": {"train": {"method": "tsdae"}},
    "conpono margin": {"train": {"method": "conpono"}, "conpono": {"form": "margin"}},
}
"""Settings of every method and of its variants, small enough for the tiny encoder."""


LABELLED = "labelled"
"""Fine-tuning, which is no method that settings name."""

MIXED = "mixed"
"""InfoCSE's pairs with labels among them, neither."""

TRAINED = [*CASES, LABELLED, MIXED]


def settings_for(case: str, model: object = "unused", **train: Any) -> Settings:
    """Settings of a case."""
    content = CASES.get(case, {})
    base = {"batch_size": 14, "learning_rate": 1e-3, "chunk_tokens": 64, "similarity": "dot"}
    base |= {"temperature": 1.0, "distillation": 0.0}
    return Settings.model_validate(
        {
            "name": "run",
            "corpus": {"source": "unused"},
            "encoder": {"model": str(model), "max_length": 16, "precision": "fp32"},
            **content,
            "train": base | content.get("train", {}) | train,
        }
    )


def method_for(case: str, spec: EncoderSpec = SPEC, settings: Settings | None = None) -> Any:
    """The method of a case."""
    settings = settings or settings_for(case)
    if case in (LABELLED, MIXED):
        train = settings.train
        labels = Labelled(LabelSample(0, None), train.temperature, train.similarity == "cosine", spec)
        return labels if case == LABELLED else Mixed(Idc(train, spec), labels, -(-train.batch_size // 3))
    return method_of(settings.train.method, settings, spec)


def stream_of(source: Shards, method: Any, size: int, seed: int, rank: int = 0, workers: int = 1) -> Stream:
    """What deals a method's examples; labelled ones among pairs are of the same documents."""
    if isinstance(method, Mixed):
        pairs, labels = (counted(source, part) for part in (method.pairs, method.labels))
        return MixedStream(
            ExampleStream(pairs, method.pairs, size - method.quota, seed, rank, workers),
            ExampleStream(labels, method.labels, method.quota, mix(seed, LABELS), rank, workers),
        )
    return ExampleStream(counted(source, method), method, size, seed, rank, workers)


def ragged(rows: list[list[int]]) -> Tokens:
    """Rows of token ids."""
    values = np.array([token for row in rows for token in row], dtype=np.uint16)
    return Tokens(values, offsets_of(np.array([len(row) for row in rows], dtype=np.int64)))


def document(sentences: list[list[int]], clusters: list[int] | None = None, key: int = 1) -> Documents:
    """One document; by default all its sentences are in one cluster."""
    found = np.array([0] * len(sentences) if clusters is None else clusters, dtype=np.int32)
    return Documents(pa.array(["d"]), np.array([key]), np.array([0, len(sentences)]), ragged(sentences), found)


def views_of(method: Any, opened: Opened, number: int, seed: int = 0, row: int = 0) -> list[tuple[int, list[int]]]:
    """The views of example `number` of an opened document, as (label, tokens)."""
    one = method.views(opened, np.array([row]), np.array([number]), np.array([seed], np.uint64))
    assert not one.owner.any()
    rows = zip(one.texts.offsets[:-1], one.texts.offsets[1:], strict=True)
    return [(int(label), one.texts.values[a:b].tolist()) for label, (a, b) in zip(one.labels, rows, strict=True)]


def annotated(folder: Path, encoder: Path, count: int = 40, sentences: tuple[int, int] = (4, 10)) -> Shards:
    """Documents as the encoder tokenises them, with clusters drawn at random."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    draw = np.random.default_rng(0)
    documents = []
    for row in make_documents(count, sentences=sentences):
        texts = [*row["sentences"], row["counterpart"]]
        *ids, label = tokenizer(texts, add_special_tokens=False)["input_ids"]
        documents.append(Written(row["id"], ids, numbered(draw.integers(0, 2, len(ids))), [label, ids[0]]))
    return write_annotations(Storage.open(str(folder)), documents, LANES, SHARDS)


def listen(head: torch.nn.Module) -> None:
    """Let TSDAE's decoder listen to the vector: one that hasn't learnt to read it hardly tells one from another."""
    for name, tensor in head.state_dict().items():
        if "crossattention" in name and "LayerNorm" not in name:
            tensor.mul_(10.0)


class Run:
    """An encoder in training, as a worker has it."""

    def __init__(
        self, folder: Path, source: Shards, dropout: bool = True, seed: int = 5, case: str = "idc", **train: Any
    ) -> None:
        """Start training; without `dropout` there is none, whatever the method says."""
        self.settings = settings_for(case, folder, **train)
        self.encoder = load_encoder(folder, self.settings.encoder, self.settings.train.similarity == "cosine")
        method = method_for(case, EncoderSpec.of(self.encoder), self.settings)
        self.state = TrainState(self.encoder, method, self.settings, seed)
        if not dropout:
            set_dropout(self.encoder, 0.0)
        size, rank, workers = self.settings.train.batch_size, collective.rank(), collective.workers()
        self.stream = stream_of(source, method, size, seed, rank, workers)
        self.seed, self.step = seed, 0

    def next(self) -> StepReport:
        """The next step."""
        self.step += 1
        return self.take(self.stream.next_batch(), self.step)

    def take(self, batch: Batch, step: int, seed: int | None = None) -> StepReport:
        """A step on a batch."""
        return train_step(self.state, batch, self.seed if seed is None else seed, step)

    def losses(self, steps: int) -> list[float]:
        """Losses of the next steps."""
        return [self.next().loss for _ in range(steps)]

    def weights(self) -> dict[str, torch.Tensor]:
        """A copy of the encoder's and the head's weights."""
        head = {f"head.{name}": tensor for name, tensor in self.state.head.state_dict().items()}
        return {name: tensor.detach().clone() for name, tensor in (self.encoder.state_dict() | head).items()}
