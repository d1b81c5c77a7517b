"""How fast this cluster embeds and trains, found out by doing some of it.

1. Actors embed sentences of the corpus for some seconds, as many as annotate; one process, where that is to annotate.
2. One process in place of a node's training workers, with the cores of all of them, or with a GPU, takes some steps on
   their part of a batch: what a training token costs in embedded ones depends on the machine as much as on the passes
   that are made over it.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np
import torch

from infocse_ray.annotate.actor import in_actors, is_small, told
from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.documents import TrainingDocuments, joined
from infocse_ray.annotate.enough import sentence_length
from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import concatenate
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE
from infocse_ray.loop.run import Run
from infocse_ray.loop.speed import Speed, speed_of
from infocse_ray.methods.chance import mixed
from infocse_ray.methods.method import Method
from infocse_ray.runtime.cluster import assigned_cores, quiet_data, worker_device
from infocse_ray.runtime.kept_process import of_one
from infocse_ray.runtime.tasks import in_one_task
from infocse_ray.sampling.stream import Batch
from infocse_ray.settings import Settings
from infocse_ray.train.state import TrainState
from infocse_ray.train.step import train_step

_WARM = 256
"""Sentences that are embedded before time is taken."""

_BLOCK = 512
"""Sentences that are embedded at first while time is taken; then twice as many, and so on."""

_SECONDS = 3.0
"""That an actor embeds of each group of shards: on a slow machine a group takes a minute."""

_STEPS = 3
"""The first is slower, for what it meets for the first time; of the others the fastest counts, as other work may be
done beside."""

_LONG = 10.0
"""Seconds: a step that took them is the last."""

_TIMED = {False: 2_048, True: 65_536}
"""Tokens of a timed step at most, on CPUs and on GPUs; with more neither is faster."""


class TimeEmbedding(NamedTuple):
    """Embeds some of a group's sentences, and takes the time."""

    documents: TrainingDocuments

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """Return `tokens` and `seconds`."""
        read = [documents.sentences for shard in shards for documents in self.documents.read(shard)]
        if not read:
            return []
        sentences = concatenate(read)
        sentences = sentences.take(_first(len(sentences), SENTENCES_AT_ONCE))
        annotator.embed(sentences.take(_first(len(sentences), _WARM)))
        before, begun, done, block, seconds = annotator.tokens, time.monotonic(), 0, _BLOCK, 0.0
        while done < len(sentences) and seconds < _SECONDS:
            rows = np.arange(done, min(done + block, len(sentences)))
            annotator.embed(sentences.take(rows))[:1].cpu()  # waits for the device
            done, block, seconds = done + block, 2 * block, time.monotonic() - begun
        return [{"tokens": annotator.tokens - before, "seconds": seconds}]


class TimeTraining(NamedTuple):
    """Trains a copy of the encoder on one batch, and takes the time."""

    encoder: EncoderFolder
    method: Method
    settings: Settings
    examples: int
    """At most, of a batch: the part of those that this stands for."""

    def __call__(self, documents: TrainingDocuments, shards: list[int]) -> float | None:
        """Return tokens a second; None where the documents give no example."""
        torch.set_num_threads(assigned_cores())
        read = [one for shard in shards for one in documents.read(shard)]
        return self.on(joined(read), worker_device()) if read else None

    def on(self, documents: Documents, device: torch.device) -> float | None:
        """The same, of these documents."""
        if (batch := self.batch(documents)) is None:
            return None
        state = TrainState(self.encoder.load().to(device), self.method, self.settings, self.settings.seed)
        tokens, took = 0, []
        for step in range(1, _STEPS + 1):
            begun = time.monotonic()
            tokens = train_step(state, batch, self.settings.seed, step).tokens  # waits for the device
            took.append(time.monotonic() - begun)
            if took[-1] > _LONG:
                break
        return tokens / min(took[1:] or took)

    def batch(self, documents: Documents) -> Batch | None:
        """Examples of as many documents as there are, as training deals them; None: they give none."""
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


def _first(there: int, most: int) -> np.ndarray:
    return np.arange(min(there, most))


def measured(run: Run) -> Speed:
    """How fast the run's workers embed and train."""
    where, settings = run.iteration_stages.where["annotate"], run.settings
    documents = TrainingDocuments(run.store, run.iteration_stages.splits)
    groups, there = documents.groups(), told(documents.tokens, settings.annotate.num_workers)
    small = there is not None and is_small(there, run.start, where)
    actors = 1 if small else min(where.workers, len(groups))
    quiet_data()
    begun = time.monotonic()
    work, precision = TimeEmbedding(documents), settings.encoder.precision
    rows = list(in_actors(groups[: 2 * actors], run.start, precision, where, work, tokens=there))
    took = time.monotonic() - begun
    tokens, busy = (sum(row[name] for row in rows) for name in ("tokens", "seconds"))
    speed = speed_of(tokens, busy, actors, took, of_one(where) if small else 1.0)
    return speed._replace(trained_per_second=_training(run, documents, groups))


def _training(run: Run, documents: TrainingDocuments, groups: list[list[int]]) -> float | None:
    """Tokens a second, by all workers that train; None: nothing is trained so."""
    where, method, train = run.iteration_stages.where["train"], run.inputs.method, run.settings.train
    if method is None:
        return None
    part = math.ceil(train.batch_size / of_one(where))
    a_pair = 2 * sentence_length(run.store, run.inputs.encoder.max_length)
    examples = max(2, min(part, int(_TIMED[where.use_gpu] / a_pair)))
    # As many as have so many sentences; a group has some 2,000.
    shards = [shard for group in groups[: 1 + 2 * examples // 1000] for shard in group]
    work = TimeTraining(run.start, method, run.settings, examples)
    one = in_one_task(work, documents, shards, where=where, title="timing a step of training")
    return None if one is None else one * of_one(where)
