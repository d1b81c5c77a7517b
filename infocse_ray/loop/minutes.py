"""`minutes`: training sized so that the run takes about so long on this cluster, and the estimate before the work.

1. Actors embed some sentences of the corpus; how fast they were gives the tokens of each training (see `estimate`).
2. That is a stage of its own, named by the run's inputs and `minutes`: a run that goes on, here or on another cluster,
   finds the tokens that were settled, and so the same trainings.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from infocse_ray.annotate.actor import in_actors
from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.corpus.tokens import concatenate
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE
from infocse_ray.loop.estimate import work_of
from infocse_ray.loop.run import Run
from infocse_ray.loop.speed import Speed, speed_of
from infocse_ray.runtime.cluster import quiet_data
from infocse_ray.runtime.progress import duration, say
from infocse_ray.settings import fingerprint
from infocse_ray.stages.stage import Stage, run_stage

_FORMAT = 1
_WARM = 256
"""Sentences that are embedded before time is taken."""


def sized(run: Run, begun: float) -> Run:
    """Say how long the run takes, and with `minutes` size its trainings first.

    Args:
        run: about to work.
        begun: when it was, by `time.monotonic()`: what went before counts.

    Returns:
        The run, with `train.max_tokens` settled where `minutes` is set.
    """
    if not run.trains:
        return run
    settings, work, speed = run.settings, work_of(run), run.speed
    if settings.minutes is not None:
        settled = _settled(run, begun)
        run.manifest.add("minutes", settled)
        summary = settled.summary or {}
        speed, tokens = Speed(*summary["speed"]), summary["max_tokens"]
        # A step has a token at least: tokens alone end a training.
        train = settings.train.model_copy(update={"max_tokens": tokens, "max_steps": tokens})
        settings = settings.model_copy(update={"train": train})
        run = run._replace(settings=settings, iteration_stages=run.iteration_stages._replace(settings=settings))
        say(f"minutes = {settings.minutes:g}: {tokens:,} tokens ({tokens / work.step:,.0f} steps) in each training")
    if speed is not None:
        train = settings.train
        steps = train.max_steps * work.step  # far more than max_tokens where these are settled
        say(work.estimate(speed, min(float(train.max_tokens or steps), steps)).line())
    return run


def _settled(run: Run, begun: float) -> Stage:
    """The stage whose summary has `max_tokens` of each training, and the `speed` that it follows from."""
    settings = run.settings
    assert settings.minutes is not None
    seconds = 60 * settings.minutes

    def measure(_: Stage) -> dict[str, Any]:
        speed, work = _measured(run), work_of(run)
        rest = seconds - (time.monotonic() - begun)
        tokens = work.tokens(speed, rest)
        if (least := work.estimate(speed, tokens).seconds) > 1.1 * rest:
            say(
                f"warning: minutes = {settings.minutes:g}: with one step in each training the run still takes about "
                f"{duration(least + seconds - rest)}; raise it, lower loop.max_iterations or validate.max_documents, "
                "or set train.interpolation to []"
            )
        return {"speed": list(speed), "max_tokens": tokens}

    identity = fingerprint("minutes", _FORMAT, run.identity, settings.minutes)
    return run_stage(run.iteration_stages.root, run.folder / "minutes", "minutes", identity, measure)


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
        before, begun = annotator.tokens, time.monotonic()
        annotator.embed(sentences)[:1].cpu()  # waits for the device
        return [{"tokens": annotator.tokens - before, "seconds": time.monotonic() - begun}]


def _first(there: int, most: int) -> np.ndarray:
    return np.arange(min(there, most))


def _measured(run: Run) -> Speed:
    iteration_stages, where = run.iteration_stages, run.iteration_stages.where["annotate"]
    documents = TrainingDocuments(run.store, iteration_stages.splits)
    groups = documents.groups()
    actors = min(where.workers, len(groups))
    quiet_data()
    begun = time.monotonic()
    work = TimeEmbedding(documents)
    rows = list(in_actors(groups[: 2 * actors], run.start, run.settings.encoder.precision, where, work))
    took = time.monotonic() - begun
    tokens, busy = (sum(row[name] for row in rows) for name in ("tokens", "seconds"))
    return speed_of(tokens, busy, actors, took)
