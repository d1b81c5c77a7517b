"""How long a run takes: what there is to embed and to train on, by the speed of embedding on this cluster.

1. What a training token costs in embedded ones is measured where `minutes` are given (`pace`). Otherwise it is THREE: a
   step goes forwards and backwards, which is twice as much again. With gradient caching (a batch of more tokens than
   `train.chunk_tokens`) it goes forwards twice, and costs FOUR. With `train.distillation` the encoder that training
   began with goes forwards too, or once over the texts of a training that reads them TIMES. On CPUs each of these
   passes takes twice as long as embedding's (docs/measurements.md).
2. A pair, or another method's example, is two sentences of average length, and a counterpart is one.
3. Every stage starts its workers, and that takes as long as it took where the speed was measured.
Stages that stop early, or that other runs have done, make a run shorter; a machine
that does other work beside makes it longer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from infocse_ray.annotate.enough import sentence_length
from infocse_ray.loop.run import Run
from infocse_ray.loop.speed import Speed
from infocse_ray.methods.recipes import RECIPES
from infocse_ray.retrieval.documents import whole_length
from infocse_ray.retrieval.refit import CHOOSING_DOCUMENTS, Sample, whole_sample
from infocse_ray.runtime.placement import Placement
from infocse_ray.runtime.progress import duration
from infocse_ray.train.start_vectors import TIMES, most_kept

THREE, FOUR = 3.0, 4.0
"""Passes over a training token, without and with gradient caching."""
SLOWER_ON_CPU = 2.0
"""What a pass of training takes there for what one of embedding takes: weights are in bf16 for that alone."""

_CHUNK = {False: 8_192, True: 65_536}
"""`train.chunk_tokens = auto`, on CPUs and on GPUs."""


class Estimate(NamedTuple):
    """Seconds."""

    annotating: float
    training: float
    validating: float

    @property
    def seconds(self) -> float:
        """Of all."""
        return sum(self)

    def line(self) -> str:
        """For people: `some 12 min: annotating 2 min, training 8 min, validating 2 min`."""
        parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in self._asdict().items())
        return f"some {duration(self.seconds)}: {parts}"


class Work(NamedTuple):
    """The work of a run; sizes in tokens."""

    annotations: int
    trainings: int
    annotated: float
    """In one annotation."""
    step: float
    """In a training step."""
    look: float
    """Embedded in one validation, the sample that the encoder is whitened anew on among them."""
    looks: int
    """Validations of a training whatever its length."""
    between: float
    """Trained on between two validations."""
    tested: float
    """Embedded once training is done."""
    passes: float
    """Embedded tokens that a training token costs on one processor, by the passes that are made over it."""
    cached: float
    """By how much gradient caching makes them more."""
    beside: float
    """The processors that train for each that embeds."""
    started: float = 0.0
    """The part of a training token's passes, without caching, that is the encoder's with which training began."""
    texts: float = math.inf
    """Embedded before the first step instead, where a training has TIMES as many tokens."""
    pilots: int = 0
    """Short trainings that choose among recipes."""
    piloted: float = 0.0
    """Trained on in each."""

    def cost(self, speed: Speed, once: bool = False) -> float:
        """Embedded tokens that a training token costs, by the processors that train beside those that embed.

        Args:
            speed: of embedding, and of training where that is known.
            once: whether the encoder that training began with embeds no batch, but all texts before the first step.
        """
        step = self.cached - self.started if once else self.cached
        if speed.trained_per_second is None:
            return step * self.passes / self.cached / self.beside
        return step * speed.tokens_per_second / speed.trained_per_second

    def training(self, speed: Speed, tokens: float) -> float:
        """Embedded tokens that a training of so many tokens costs."""
        if tokens < TIMES * self.texts:
            return tokens * self.cost(speed)
        return tokens * self.cost(speed, once=True) + self.texts / self.beside

    def estimate(self, speed: Speed, tokens: float) -> Estimate:
        """Of a run whose every training has so many tokens."""
        second, start = speed.tokens_per_second, speed.start_seconds
        piloted = min(self.piloted, tokens)
        looks = self.trainings * (self.looks + tokens / self.between)
        looks += self.pilots * (1 + piloted / self.between)  # at the end; the start's is known
        trained = self.trainings * self.training(speed, tokens) + self.pilots * self.training(speed, piloted)
        return Estimate(
            self.annotations * (self.annotated / second + start),
            trained / second + (self.trainings + self.pilots) * start,
            (looks * self.look + self.tested) / second + 2 * start,  # before training and after
        )


def work_of(run: Run) -> Work:
    """What the run has to do."""
    settings, iteration_stages, method = run.settings, run.iteration_stages, run.inputs.method
    train, validate, counts = settings.train, settings.validate, run.store.summary
    documents = counts["documents"]
    sentence = sentence_length(run.store, run.inputs.encoder.max_length)
    document = sentence * counts["sentences"] / max(sum(documents.values()), 1)
    own = run.store.documents(iteration_stages.splits) * document
    share = iteration_stages.share(1)
    step = 2 * train.batch_size * sentence
    annotates = method is not None and method.annotated
    iterations = settings.loop.max_iterations if annotates else int(method is not None)
    trainings = iterations + (run.inputs.initialization is not None)
    whole = min(counts["tokens"] / max(sum(documents.values()), 1), float(whole_length(run.inputs.encoder)))
    tokens_read = {"sentences": document, "whole": whole, "both": document + whole}
    read = tokens_read[validate.reading]
    asks = {"counterpart": read, "readings": tokens_read["both"]}.get(run.judged_on, document)
    asked = asked_documents(run) * asks
    labels = sum(counts["labelled"].values())
    if run.judged_on == "counterpart":
        asked += min(labels, validate.max_candidates) * sentence
    look = asked
    if (plan := iteration_stages.whitening) is not None:
        sample = Sample.of(run.store, plan.splits, run.inputs.encoder.base_dimension)
        look += own * sample.share * sample.limit / 2**63
        if plan.whole:
            there = run.store.documents(plan.splits)
            texts = whole_sample(run.store, plan.splits, run.inputs.encoder.base_dimension)
            look += whole * there * texts.limit / 2**63
        look += min(documents["valid"], CHOOSING_DOCUMENTS) * document if plan.power is None else 0.0
    tests = 1 + trainings if counts["labelled"]["test"] else 0  # whitened and not whitened, an encoder embeds once
    a_test = documents["test"] * read + labels * sentence
    where = iteration_stages.where["train"]
    chunk = train.chunk_tokens if train.chunk_tokens != "auto" else _CHUNK[where.use_gpu]
    distils = method is not None and bool(method.distillation)
    once = THREE + float(distils)
    passes = once + (FOUR - THREE if step / where.workers > chunk else 0.0)
    slower = 1.0 if where.use_gpu else SLOWER_ON_CPU
    read_from = own * (1.0 if share is None else share.of_all(run.store))
    kept = most_kept(settings.encoder.dimensions or run.inputs.encoder.base_dimension) if distils else 0
    return Work(
        annotations=iterations if annotates else 0,
        trainings=trainings,
        annotated=read_from,
        step=step,
        look=look,
        looks=1 + bool(train.interpolation),  # of weights between, mostly the first are no better, and the last tried
        between=float(validate.every_tokens or validate.every * step),
        tested=2 * asked + tests * a_test,  # the start and the result
        pilots=len(RECIPES) if settings.recipe else 0,
        piloted=settings.loop.pilot_steps * step,
        passes=slower * passes,
        cached=passes / once,
        beside=_beside(where, iteration_stages.where["annotate"]),
        started=distils / once,
        texts=read_from if read_from <= kept * where.workers * sentence else math.inf,
    )


def asked_documents(run: Run) -> int:
    """Documents that validation asks, or labels of theirs, at most."""
    kind = "labelled" if run.judged_on == "counterpart" else "documents"
    return min(run.store.summary[kind]["valid"], run.settings.validate.max_documents)


def _beside(where: Placement, embedding: Placement) -> float:
    """The processors that train for each that embeds; 1 where they aren't of one kind."""
    if where.use_gpu != embedding.use_gpu:
        return 1.0
    each = (1, 1) if where.use_gpu else (where.cores, embedding.cores)
    return where.workers * each[0] / (embedding.workers * each[1])
