"""What Ray costs: a worker's work in a plain process, on Ray by one worker, and on Ray by two."""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.annotate.idc import cluster
from infocse_ray.annotate.shards import AnnotateShards
from infocse_ray.annotate.stage import annotate
from infocse_ray.benchmarks.annotate import annotate_once, pace
from infocse_ray.benchmarks.corpora import LANES, MAX_LENGTH, encoder_in, make_store, read_documents
from infocse_ray.benchmarks.measure import default_device, in_fresh_process, local_ray
from infocse_ray.benchmarks.report import notes, spread, table
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.registry import method_of
from infocse_ray.runtime.cluster import Placement, placement
from infocse_ray.sampling.examples import Examples, count_examples
from infocse_ray.sampling.prefetch import Prefetcher
from infocse_ray.sampling.shards import Shards
from infocse_ray.sampling.stream import ExampleStream
from infocse_ray.settings import Annotate, Corpus, Encoder, Settings, Train
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.train.loop import Training
from infocse_ray.train.schedule import Budget
from infocse_ray.train.state import TrainState
from infocse_ray.train.step import begin_step
from infocse_ray.train.trainer import train

WARM_UP_STEPS = 3
CORES = 1
"""Of every worker, and of the plain process."""


class Prepared(NamedTuple):
    """What is measured on."""

    work: str
    model: str
    store: TokenStore
    examples: Examples
    settings: Settings
    steps: int
    """Training steps, those of the warm-up included."""


def prepare_once(work: str, model: str, documents: list[list[str]], batch_size: int, steps: int) -> Prepared:
    """The corpus, its annotations and its counted pairs, in a Ray of their own."""
    settings = Settings.model_validate(
        {
            "name": "benchmark",
            "corpus": Corpus(source="unused"),
            "encoder": Encoder.model_validate({"model": model, "max_length": MAX_LENGTH}),
            "train": Train(batch_size=batch_size),
            "validate": {"every": 10**9, "max_documents": 100, "on": "halves"},
        }
    )
    with local_ray():
        store = make_store(work, model, documents)
        stage = Stage("annotate", "benchmark", Storage.open(work) / "annotations")
        where = placement(Annotate())
        annotate(stage, store, list(SPLITS), encoder_in(model), Annotate(), 0, "auto", where, "annotating")
        source = Shards(store.folder / "documents", "benchmark", store.shards, LANES, list(SPLITS))
        source = source._replace(annotations=stage.folder)
        method = method_of("idc", settings, EncoderSpec.of(encoder_in(model).load()))
        assert method is not None
        examples = Examples(source, "benchmark", count_examples(source, method, "counting"))
    return Prepared(work, model, store, examples, settings, WARM_UP_STEPS + steps)


def annotate_plainly(prepared: Prepared) -> dict[str, float]:
    """What an annotate actor does, in this process."""
    torch.set_num_threads(CORES)
    documents = TrainingDocuments(prepared.store, list(SPLITS))
    with tempfile.TemporaryDirectory(dir=prepared.work) as out:
        begun = time.time()
        annotator = Annotator(encoder_in(prepared.model), "auto", default_device())
        work = AnnotateShards(documents, Storage.open(out), functools.partial(cluster, k=1))
        for shards in documents.groups():
            work(annotator, shards)
        first, steady, _ = pace(prepared.store, out, 1)
    return {"steady": steady, "start": first - begun}


def annotate_on_ray(prepared: Prepared, workers: int) -> dict[str, float]:
    """The annotate stage with so many actors."""
    return annotate_once(prepared.work, prepared.model, prepared.store, _where(workers))


def train_plainly(prepared: Prepared) -> dict[str, float]:
    """What a training worker does at each step, in this process."""
    torch.set_num_threads(CORES)
    begun = time.time()
    settings = prepared.settings
    encoder = encoder_in(prepared.model).load().to(default_device())
    method = method_of("idc", settings, EncoderSpec.of(encoder))
    assert method is not None
    state = TrainState(encoder, method, settings, 0)
    batches = Prefetcher(
        ExampleStream(prepared.examples, method, settings.train.batch_size, 0, 0, 1),
        state.prepare,
        lambda: state.memory.tokens,
    )
    ended = []
    for step in range(1, prepared.steps + 1):
        ready = batches.next_batch()
        batches.deal_next(keep_state=False)
        begin_step(state, ready, state.agree(ready), 0, step).report()
        ended.append(time.time())
    batches.close()
    return _paced(prepared, begun, ended)


def train_on_ray(prepared: Prepared, workers: int) -> dict[str, float]:
    """The train stage with so many workers, timed by when each step was shown to TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import (  # pyright: ignore[reportMissingImports]
        EventAccumulator,
    )

    settings = prepared.settings
    method = method_of("idc", settings, EncoderSpec.of(encoder_in(prepared.model).load()))
    assert method is not None
    with local_ray(), tempfile.TemporaryDirectory(dir=prepared.work) as out:
        folder = Storage.open(out)
        budget = Budget(prepared.steps, None, 10**9)
        encoder = encoder_in(prepared.model)
        training = Training(settings, prepared.store, prepared.examples, method, budget, encoder, 0, folder, "halves")
        begun = time.time()
        train(training._replace(events=folder / "events"), _where(workers), "training")
        shown = EventAccumulator(f"{out}/events").Reload().Scalars("train/loss")
    return _paced(prepared, begun, [point.wall_time for point in shown])


def _paced(prepared: Prepared, begun: float, ended: list[float]) -> dict[str, float]:
    assert len(ended) == prepared.steps
    pairs = prepared.settings.train.batch_size * (len(ended) - WARM_UP_STEPS)
    return {"steady": pairs / (ended[-1] - ended[WARM_UP_STEPS - 1]), "start": ended[0] - begun}


def _where(workers: int) -> Placement:
    return Placement(workers, torch.cuda.is_available(), CORES)


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    documents = read_documents(arguments, arguments.sentences)
    most = torch.cuda.device_count() or torch.get_num_threads()
    counts = [workers for workers in (1, 2) if workers <= most]
    with tempfile.TemporaryDirectory() as work:
        prepared = in_fresh_process(
            prepare_once, work, arguments.model, documents, arguments.batch_size, arguments.steps
        )
        for what, plainly, on_ray in (
            ("annotate, sentences/s", annotate_plainly, annotate_on_ray),
            ("train, pairs/s", train_plainly, train_on_ray),
        ):
            works: dict[str, tuple[Callable[..., dict[str, float]], tuple[Any, ...]]] = {
                "a plain process": (plainly, (prepared,)),
                **{f"Ray, {n} worker{'s' * (n > 1)}": (on_ray, (prepared, n)) for n in counts},
            }
            timings: dict[str, list[dict[str, float]]] = {name: [] for name in works}
            for _ in range(arguments.repeats):
                for name, (once, given) in works.items():
                    timings[name].append(in_fresh_process(once, *given))
            _show(what, timings)
    sentences = sum(len(document) for document in documents)
    notes(
        f"{sentences:,} sentences of {len(documents):,} documents, cut at {MAX_LENGTH} tokens, K = 1; batches of "
        f"{arguments.batch_size} pairs, {arguments.steps} steps. Every worker and the plain process have {CORES} core; "
        "all do the same with the same library code, each time in a fresh process (on Ray: a fresh Ray), in turns.",
        "Steady state: from when every worker had finished its first group of shards, or from the end of step "
        f"{WARM_UP_STEPS}, to the end of the last. Until the first was finished: start-up, from the call of the stage "
        "on a running Ray, or from the loading of the encoder in a plain process whose imports are done.",
        "The cost of Ray is the plain process' rate over that of one worker, less 1. Ray's own processes and the "
        "driver run on the same cores, which two workers share with them where there are no others.",
    )


def _show(what: str, timings: dict[str, list[dict[str, float]]]) -> None:
    medians = [statistics.median(one["steady"] for one in runs) for runs in timings.values()]
    rows = []
    for (name, runs), median in zip(timings.items(), medians, strict=True):
        rates, start = [one["steady"] for one in runs], statistics.median(one["start"] for one in runs)
        alone = name == "a plain process"
        cost = f"{100 * (medians[0] / median - 1):+.1f} %" if name == "Ray, 1 worker" else ""
        scale = "" if alone else f"{median / medians[1]:.2f}"
        rows.append((name, f"{median:,.1f}", spread(rates, 1), cost, scale, f"{start:.1f}"))
    head = (what, "steady state, median", "runs", "cost of Ray", "x 1 worker", "s until the first was finished")
    table(head, rows)
