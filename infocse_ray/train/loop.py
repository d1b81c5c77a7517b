"""The training loop of one worker, from the first step to the last.

Every step: take the next global batch's rows, encode their texts (cached if they are many), contrast them with every
worker's as the method has it, step (`train.step`). Now and then (`train.schedule`): validate, keep the best encoder,
checkpoint, maybe stop.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from infocse_ray.corpus.store import TokenStore
from infocse_ray.distributed.collectives import any_worker, rank, workers
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import for_inference
from infocse_ray.errors import NonFinite
from infocse_ray.methods.chance import mix
from infocse_ray.methods.method import Method
from infocse_ray.methods.mixed import Mixed
from infocse_ray.retrieval.ranks import shown
from infocse_ray.retrieval.refit import Refit, WhiteningPlan
from infocse_ray.retrieval.validation import On, questions_for, score
from infocse_ray.runtime.cluster import assigned_cores, worker_device
from infocse_ray.runtime.interrupts import Request
from infocse_ray.sampling.examples import Examples
from infocse_ray.sampling.mixed_stream import MixedStream, Stream
from infocse_ray.sampling.prefetch import Prefetcher
from infocse_ray.sampling.stream import ExampleStream
from infocse_ray.settings import Settings
from infocse_ray.stages.metrics import TrainingMetrics
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from infocse_ray.train.checkpoint import Snapshot, load_checkpoint
from infocse_ray.train.checkpoints import Checkpoints, OfOneProcess, OfRayTrain
from infocse_ray.train.choice import WeightsChoice, between
from infocse_ray.train.early_stopping import EarlyStopping
from infocse_ray.train.memory import OutOfMemoryEverywhere
from infocse_ray.train.models import INTERPOLATED, SavedModels, model_name
from infocse_ray.train.reporter import Reporter
from infocse_ray.train.restore import newest_whole
from infocse_ray.train.saver import Saver
from infocse_ray.train.schedule import Budget, Schedule
from infocse_ray.train.start_vectors import TIMES
from infocse_ray.train.state import TrainState
from infocse_ray.train.step import StepReport, StepUnderWay, begin_step

_COLLAPSE = 0.05
"""Embedding spread under which the run warns that all sentences are getting one vector."""

BEGUN = "begun"
"""A file of the stage: training has begun in it."""

_CHECKPOINTS_BEHIND = 5
"""A checkpoint counts once it is saved, while training goes on, and Ray has recorded it, seconds later; until then a
restart takes one before, whose best model must still be there."""


LABELS = 0x1ABE1
"""Sets the order of labels apart from that of the pairs that they are among."""


def collapsing(spread: float, first: float) -> bool:
    """Whether a step's embedding spread says that sentences are getting one vector.

    Args:
        spread: of the step.
        first: of the first step: vectors of plain language models are alike to begin with, and training spreads them.
    """
    return spread < min(_COLLAPSE, first / 2)


class Training(NamedTuple):
    """Everything a worker needs for training."""

    settings: Settings
    store: TokenStore
    """Validated on."""
    examples: Examples
    method: Method
    budget: Budget
    encoder: EncoderFolder
    seed: int
    """Of the order of the examples, of the head's first weights, and of dropout."""
    folder: Storage
    """Of the stage: gets `checkpoints`, `models/step-...` and `result.json`."""
    validate_on: On
    max_candidates: int | None = None
    """As `questions_for` takes it."""
    whitening: WhiteningPlan | None = None
    """How the encoder is whitened anew when it is validated; None: it isn't."""
    scored: dict[str, Any] | None = None
    """What this validation said of the encoder before, so that it isn't asked again; None: it wasn't asked."""
    board: Any = None
    """Handle of a progress board."""
    labels: Examples | None = None
    """Labelled ones that `Mixed` has among its pairs; None: of another method."""

    def stream(self) -> Stream:
        """This worker's batches, from the first."""
        size, worker = self.settings.train.batch_size, (rank(), workers())
        if self.labels is None:
            return ExampleStream(self._near(self.examples), self.method, size, self.seed, *worker)
        assert isinstance(self.method, Mixed)
        quota = self.method.quota
        return MixedStream(
            ExampleStream(self.examples, self.method.pairs, size - quota, self.seed, *worker),
            ExampleStream(self._near(self.labels), self.method.labels, quota, mix(self.seed, LABELS), *worker),
        )

    def _near(self, examples: Examples) -> Examples:
        """Those of a few documents copied out of the corpus on this machine: these are read again every few steps."""
        source = examples.source
        if source.annotations is not None or source.fingerprint == self.store.fingerprint:
            return examples
        here = Storage.open(str(source.folder.local_copy(source.fingerprint)))
        return examples._replace(source=source._replace(folder=here))


class _UnderWay(NamedTuple):
    """A step whose figures weren't read yet."""

    step: StepUnderWay
    begun: float
    """When its time began, by `time.monotonic`: the end of the one before."""
    done: int
    """Steps or tokens of the budget, with it."""


def train_worker(training: Training) -> None:
    """What Ray Train runs on every worker."""
    TrainingWorker(training, OfRayTrain(training.folder)).run()


def train_alone(training: Training) -> None:
    """The same as one worker, in any process."""
    TrainingWorker(training, OfOneProcess(training.folder)).run()


class TrainingWorker:
    """A worker of a training; what its methods do, all workers do together.

    Attributes:
        progress: what checkpoints and the result have of the training beside weights and positions: the last `step`,
            `tokens` encoded, the `history` of validations, whether it is `finished`, and more.
    """

    def __init__(self, training: Training, checkpoints: Checkpoints) -> None:
        """Begin at the first step, or after that of the newest whole checkpoint."""
        settings, budget = training.settings, training.budget
        self._training, self._settings, self._checkpoints = training, settings, checkpoints
        self._device = worker_device()
        torch.set_num_threads(assigned_cores())
        self._encoder = training.encoder.load().to(self._device)
        self._state = TrainState(self._encoder, training.method, settings, training.seed)
        self._stream = training.stream()
        self._schedule = Schedule(settings, budget)
        self._early_stopping = EarlyStopping(budget.patience)
        self._models, self._result = SavedModels(training.folder), training.folder / "result.json"
        self._reporter = Reporter(training.board, settings.train.batch_size)
        self._request = Request(self._reporter.board)
        self.progress: dict[str, Any] = {
            "step": 0,
            "tokens": 0,
            "history": [],
            "finished": False,
            "warned": False,
            "seconds": 0.0,
            "best_steps": [],
            "resumed_at": [],
        }
        self._resume()
        first = self.progress["step"] + 1 if self.progress["history"] else 0
        self._metrics = TrainingMetrics(training.folder, training.board, first) if rank() == 0 else None
        # The run's seed, not the stage's: all iterations are asked the same.
        self._questions = questions_for(
            training.store,
            "valid",
            training.validate_on,
            settings.validate.max_documents,
            self._device,
            settings.seed,
            training.max_candidates,
            settings.validate.reading,
        )
        plan = training.whitening
        self._refit = None if plan is None else Refit.of(plan, training.store, self._encoder, self._device)
        self._begun = time.monotonic() - self.progress["seconds"]
        self._stop = any_worker(self._embed_once())
        self._under_way: _UnderWay | None = None
        self._saver = Saver(checkpoints)
        memory = self._state.memory  # with `self` in it the worker and its encoder would outlive the training
        self._batches = Prefetcher(self._stream, self._state.prepare, lambda: memory.tokens)

    def _resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        offered = self._checkpoints.last()
        if not offered or not (checkpoint := newest_whole(offered, self._reporter.tell)):
            self._begin_anew()
            return
        with checkpoint.as_directory() as folder:
            self.progress = load_checkpoint(Path(folder), self._state, self._stream)
        self._early_stopping.restore(self.progress["stopping"])
        # Checkpoints of earlier versions have not all of them.
        self._state.memory.resume(*map(self.progress.get, ("chunk_tokens", "kept_tokens", "kept_room")))
        self.progress["resumed_at"].append(self.progress["step"])
        self._reporter.tell(f"step {self.progress['step']}: training goes on from its checkpoint")

    def _begin_anew(self) -> None:
        """Begin at the first step: carefully, where that was tried before, for memory may have run out."""
        begun = self._training.folder / BEGUN
        if any_worker(rank() == 0 and begun.exists()):
            self._state.memory.resume(self._state.memory.tokens)
        elif rank() == 0:
            begun.write_bytes(b"")

    def _embed_once(self) -> bool:
        """Embed what distillation holds on to, where training reads it several times; whether it is to stop instead."""
        start, budget = self._state.start, self._training.budget
        if start is None or self.progress["finished"]:
            return False
        # Of the whole training, so that one that was resumed has the same vectors.
        read = budget.steps * 2 * self._settings.train.batch_size / workers()
        if (texts := self._stream.texts(start.most(read))) is None:
            return False
        tokens = int(self._encoder.lengths(texts).sum())
        if budget.tokens is not None and TIMES * tokens > budget.tokens / workers():
            return False
        self._reporter.tell(f"{len(texts):,} texts that are read again and again are embedded once")
        return start.embed_once(texts, self._request.now)

    def run(self) -> None:
        """Train until the budget or the patience is used up, or training is asked to stop.

        Raises:
            NoSpace, StorageUnavailable: something couldn't be saved, a checkpoint too.
        """
        with self._saver:  # whatever happens, a checkpoint under way is saved before this ends
            try:
                self._train()
            finally:
                self._batches.close()  # its thread would outlive the training where the process does

    def _train(self) -> None:
        if not self.progress["history"] and not self._stop:
            self.validate()
        self._reporter.start()
        while not self.progress["finished"] and not self._stop:
            try:
                self.step()
            except (NonFinite, OutOfMemoryEverywhere) as error:
                self._write_result(error=str(error), non_finite=isinstance(error, NonFinite))
                self._close_metrics()
                return
        self._batches.close()
        self._close_metrics()
        if self.progress["finished"]:
            self._saver.wait_for_model()
            # All wait for worker 0, which may still be saving the best step's model. And where a worker died after the
            # choice, all begin anew: what was chosen from is gone by then.
            if not any_worker(rank() == 0 and self._result.exists()):
                self._choose()
        else:
            self._saver.wait()
            step = self.progress["step"]
            self._reporter.tell(f"step {step}: stopped, {'at a checkpoint' if step else 'before the first'}")

    def step(self) -> None:
        """Train on the next global batch, and do what is due after it.

        Its figures are read when the next step is under way, or at once where something is due: no device waits.

        Raises:
            NonFinite: the loss of this step or of the one before is; on every worker.
            OutOfMemoryEverywhere: the batch doesn't fit into memory.
            NoSpace, StorageUnavailable: the last checkpoint couldn't be saved.
        """
        self._saver.check()
        progress, begun = self.progress, time.monotonic()
        step = progress["step"] + 1
        prepared = self._batches.next_batch()
        agreed = self._state.agree(prepared, self._request.made())
        self._stop, tokens = agreed.stop, progress["tokens"] + agreed.tokens
        due = self._schedule.after(step, progress["tokens"], tokens, self._stop)
        if self._stop:
            self._reporter.tell(f"step {step}: asked to stop; this step is the last, and a checkpoint follows")
        self._batches.deal_next(keep_state=due.may_checkpoint)
        before, self._under_way = self._under_way, None
        try:
            under_way = begin_step(self._state, prepared, agreed, self._training.seed, step)
        finally:
            # Also where this step fails: what was wrong with the one before comes first.
            begun = self._record(before) if before is not None else begun
        progress.update(step=step, tokens=tokens, **self._state.memory.state())
        if news := self._state.memory.news():
            self._reporter.tell(f"step {step}: {news}")
        done = step if self._training.budget.tokens is None else min(tokens, self._training.budget.tokens)
        self._under_way = _UnderWay(under_way, begun, done)
        if due.validate or due.checkpoint:
            report = self._under_way.step.report()
            self._record(self._under_way, now=due.validate)
            self._under_way = None
            if due.validate:
                self.validate(report)
                progress["finished"] = due.last or self._early_stopping.stop(step)
            if due.checkpoint or progress["finished"]:
                self.checkpoint()

    def validate(self, report: StepReport | None = None) -> None:
        """Validate the encoder as it is after the last step, and save it if none after another step was better.

        Args:
            report: of that step; None before the first, whose encoder is no result of training.
        """
        step, said = self.progress["step"], f", loss {report.loss:.4f}" if report else ""
        known = {"step": step, "tokens_done": self.progress["tokens"]} | (report._asdict() if report else {})
        entry = self._scores(f"step {step}", known, said, self._training.scored if step == 0 else None)
        self.progress["history"].append(entry)
        if self._metrics is not None:
            self._metrics.validation(step, entry)
        if step > 0 and self._early_stopping.improved(step, entry[self._settings.validate.metric]):
            self._saver.bring(self._models.begin(self._encoder, model_name(step)))

    def checkpoint(self) -> None:
        """Begin to save what `_resume` needs, once the checkpoint before is saved; drop models that none names."""
        self._saver.wait_for_checkpoint()
        best_steps = [*self.progress["best_steps"], self._early_stopping.best_step][-_CHECKPOINTS_BEHIND:]
        self.progress.update(
            stopping=self._early_stopping.state(), seconds=time.monotonic() - self._begun, best_steps=best_steps
        )
        # The copy is made only now: of a checkpoint before there is none left.
        self._saver.save(self.progress["step"], Snapshot.of(rank(), self._state, self._batches.state(), self.progress))
        self._models.drop_all_but([model_name(step) for step in best_steps])

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()

    def _record(self, under_way: _UnderWay, now: bool = False) -> float:
        """Show a step, `now` or when people look next, and say what is remarkable about it; when its figures came."""
        report, step = under_way.step.report(), under_way.step.step
        ended = time.monotonic()
        self._reporter.count(report)
        if self._metrics is not None:
            self._metrics.step(step, report, ended - under_way.begun, self._settings.train.batch_size)
        first = self.progress.setdefault("first_spread", report.spread)
        if collapsing(report.spread, first) and not self.progress["warned"]:
            self.progress["warned"] = True
            train = self._settings.train
            self._reporter.tell(
                f"warning: step {step}: the sentence vectors are collapsing (embedding spread {report.spread:.3f}, at "
                f"first {first:.3f}, 0 if all are the same); lower train.learning_rate or train.temperature"
                + (", or set train.similarity to cosine" if train.similarity == "dot" else "")
            )
        self._reporter.show(under_way.done, report, now)
        return ended

    def _scores(
        self, name: str, known: dict[str, Any], said: str = "", scores: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The scores of the encoder as it is, unless they are given, and what else is known of it.

        It is whitened anew first, but where no step has changed it.
        """
        if scores is None:
            scores = self._validated(name, changed=known.get("step") != 0)
        line = ", ".join(
            f"{metric} {shown(scores, metric)}" for metric in ("recall@5", "recall@10", "recall@20", "mrr")
        )
        self._reporter.tell(f"{name}: validation {line}{said}")
        if (whitening := self._encoder.whitening) is not None:
            known = known | {"whitening": {"power": whitening.power, "dimension": self._encoder.dimension}}
        return scores | known

    def _validated(self, name: str, changed: bool) -> dict[str, Any]:
        with self._reporter.instead(f"validating {name}"):
            ready = for_inference(self._encoder, self._settings.encoder.precision, self._device)
            found = None
            if self._refit is not None and changed:
                found = self._refit.scores(ready, self._questions)
                self._encoder.whitening = ready.whitening
            return (score(ready, self._questions) if found is None else found).metrics

    def _choose(self) -> None:
        """Give back the best, by validation, of the start, the best step, and the weights between the two."""
        train, best_step = self._settings.train, self._early_stopping.best_step
        choice = WeightsChoice(self._settings.validate.metric, self.progress["history"], best_step, train.never_worse)
        if train.interpolation:
            start = self._training.encoder.load()
            best = self._models.load(model_name(best_step), self._encoder.max_length)
            for share in sorted(train.interpolation, reverse=True):
                if not choice.rises:
                    break
                if any_worker(self._request.now()):
                    self._saver.wait()
                    self._reporter.tell(f"stopped, before all weights on the way to step {best_step} were validated")
                    return
                between(self._encoder, start, best, share)
                if choice.offer(self._scores(f"{share:g} of the way to step {best_step}", {"share": share})):
                    self._saver.bring(self._models.begin(self._encoder, INTERPOLATED))
        self._write_result(stopping=self._early_stopping.state(), chosen=choice.chosen, between=choice.between)
        self._models.drop_all_but(
            {"trained": [model_name(best_step)], "interpolated": [INTERPOLATED]}.get(choice.kind, [])
        )

    def _write_result(self, **more: Any) -> None:
        self._saver.wait()  # with a result the driver deletes all checkpoints, and reads the chosen model
        if rank() == 0:
            self._result.write_json(checked(self.progress | more))
