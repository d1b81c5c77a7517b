"""How fast this cluster embeds and trains, found out by doing some of it.

Actors embed sentences of the corpus, and take two steps on its documents, of which the second counts. What a training
token costs in embedded ones depends on the machine as much as on the passes that are made over it.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import torch

from infocse_ray.annotate.actor import in_actors
from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.documents import TrainingDocuments, joined
from infocse_ray.corpus.store import Documents
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE
from infocse_ray.loop.estimate import sentence_length
from infocse_ray.loop.run import Run
from infocse_ray.loop.speed import Speed, speed_of
from infocse_ray.methods.chance import mixed
from infocse_ray.methods.method import Method
from infocse_ray.runtime.cluster import quiet_data
from infocse_ray.sampling.stream import Batch
from infocse_ray.settings import Settings
from infocse_ray.train.state import TrainState
from infocse_ray.train.step import train_step

_WARM = 256
"""Sentences that are embedded before time is taken."""

_LONG = 10.0
"""Seconds: a first step that took them counts, and there is no second."""

_TIMED = {False: 2_048, True: 65_536}
"""Tokens of a timed step at most, on CPUs and on GPUs; with more neither is faster."""


class TimeSteps(NamedTuple):
    """Trains a copy of the encoder on one batch, and takes the time."""

    encoder: EncoderFolder
    method: Method
    settings: Settings
    examples: int
    """At most, of a batch: a worker's part."""

    def __call__(self, documents: Documents, device: torch.device) -> dict[str, float]:
        """Return `trained`, tokens, and `training_seconds`; nothing where the documents give no example."""
        if (batch := self._batch(documents)) is None:
            return {}
        state = TrainState(self.encoder.load().to(device), self.method, self.settings, self.settings.seed)
        tokens, took = 0, 0.0
        for step in (1, 2):
            begun = time.monotonic()
            tokens = train_step(state, batch, self.settings.seed, step).tokens  # waits for the device
            if (took := time.monotonic() - begun) > _LONG:
                break
        return {"trained": tokens, "training_seconds": took}

    def _batch(self, documents: Documents) -> Batch | None:
        if self.method.annotated:  # as if all of a document were one cluster: pairs are of two sentences either way
            documents = documents._replace(clusters=np.zeros(len(documents.sentences), np.int32))
        opened = self.method.open(documents)
        there = np.flatnonzero(opened.examples)
        if not len(there):
            return None
        row = np.arange(min(self.examples, int(opened.examples.sum())))
        chosen = there[row % len(there)]
        numbers = row // len(there) % opened.examples[chosen]
        doc_ids = [str(number) for number in chosen]
        return Batch.of_examples(self.method, opened, chosen, numbers, mixed(0, row), doc_ids, documents.keys[chosen])


class TimeWork(NamedTuple):
    """Embeds some of a group's sentences and trains on some of its documents, and takes the time of each."""

    documents: TrainingDocuments
    steps: TimeSteps | None
    """None: training has other processors."""

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """Return `tokens` and `seconds` of embedding, and what TimeSteps returns."""
        read = [documents for shard in shards for documents in self.documents.read(shard)]
        if not read:
            return []
        documents = joined(read)
        sentences = documents.sentences.take(_first(len(documents.sentences), SENTENCES_AT_ONCE))
        annotator.embed(sentences.take(_first(len(sentences), _WARM)))
        before, begun = annotator.tokens, time.monotonic()
        annotator.embed(sentences)[:1].cpu()  # waits for the device
        row = {"tokens": annotator.tokens - before, "seconds": time.monotonic() - begun}
        return [row | (self.steps(documents, annotator.encoder.device) if self.steps is not None else {})]


def _first(there: int, most: int) -> np.ndarray:
    return np.arange(min(there, most))


def measured(run: Run) -> Speed:
    """How fast the run's workers embed and train."""
    iteration_stages, where = run.iteration_stages, run.iteration_stages.where["annotate"]
    documents = TrainingDocuments(run.store, iteration_stages.splits)
    groups = documents.groups()
    actors = min(where.workers, len(groups))
    quiet_data()
    begun = time.monotonic()
    work = TimeWork(documents, _steps(run))
    rows = list(in_actors(groups[: 2 * actors], run.start, run.settings.encoder.precision, where, work))
    took = time.monotonic() - begun
    tokens, busy, trained, training = (
        sum(row.get(name, 0) for row in rows) for name in ("tokens", "seconds", "trained", "training_seconds")
    )
    speed = speed_of(tokens, busy, actors, took - training / actors)
    return speed._replace(passes=training / trained * tokens / busy) if trained and tokens else speed


def _steps(run: Run) -> TimeSteps | None:
    """What is timed of training; None: nothing, for it isn't done where sentences are embedded, or isn't at all."""
    where, method, settings = run.iteration_stages.where, run.inputs.method, run.settings
    if method is None or where["train"].use_gpu != where["annotate"].use_gpu:
        return None
    part = -(-settings.train.batch_size // where["train"].workers)
    fits = _TIMED[where["train"].use_gpu] // round(2 * sentence_length(run))
    return TimeSteps(run.start, method, settings, max(2, min(part, fits)))
