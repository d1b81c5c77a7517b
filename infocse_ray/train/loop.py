"""The training loop of one worker, from the first step to the last.

Every step: take the next global batch's rows, encode their texts (cached if they are many), contrast them with every
worker's as the strategy has it, step. Now and then: validate, keep the best encoder, checkpoint, maybe stop.
"""

from __future__ import annotations

import contextlib
import functools
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ray.train
import torch

from infocse_ray.corpus.store import TokenStore
from infocse_ray.distributed.collectives import everyones, rank, total, workers
from infocse_ray.distributed.memory import MORE, advised
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import for_inference, native_bf16
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.errors import NonFinite
from infocse_ray.methods.contrast import Encoded
from infocse_ray.methods.method import Strategy
from infocse_ray.retrieval.ranks import shown
from infocse_ray.retrieval.refit import Refit, WhiteningPlan
from infocse_ray.retrieval.validation import On, questions_for, score
from infocse_ray.runtime.cluster import assigned_cores, worker_device
from infocse_ray.runtime.interrupts import Request
from infocse_ray.sampling.document import mix
from infocse_ray.sampling.examples import Examples
from infocse_ray.sampling.prefetch import Ahead
from infocse_ray.sampling.stream import Batch, ExampleStream
from infocse_ray.settings import Settings
from infocse_ray.stages.counters import count_scores, count_step
from infocse_ray.stages.events import Curve
from infocse_ray.storage.checksums import FOLDER, checked, digest
from infocse_ray.storage.errors import explained
from infocse_ray.storage.folder import Storage
from infocse_ray.train.cached import Chunk, backward
from infocse_ray.train.checkpoint import checkpoint_bytes, load_checkpoint, save_checkpoint
from infocse_ray.train.choice import WeightsChoice, between
from infocse_ray.train.early_stopping import EarlyStopping
from infocse_ray.train.loss import contrastive_loss
from infocse_ray.train.memory import OutOfMemoryEverywhere
from infocse_ray.train.restore import newest_whole
from infocse_ray.train.trainee import Trainee

COLLAPSE = 0.05
"""Embedding spread under which the run warns that all sentences are getting one vector."""

INTERPOLATED = "interpolated"
"""The folder of an encoder between the start and a step's, among a stage's `models`."""

_CHECKPOINTS_BEHIND = 4
"""A checkpoint counts once Ray has recorded it, seconds after it was reported; until then a restart takes one before,
whose best model must still be there."""

_NAMED = 20
"""Documents an error names at most."""


class Budget(NamedTuple):
    """When a stage's training ends at the latest."""

    steps: int
    tokens: int | None
    """Encoded, padding not counted; None: any number."""
    patience: int
    """Steps without a better validation score after which training stops."""


class Training(NamedTuple):
    """What a worker needs to train."""

    settings: Settings
    store: TokenStore
    """Validated on."""
    examples: Examples
    strategy: Strategy
    budget: Budget
    encoder: EncoderFolder
    seed: int
    """Of the order of the examples, of the head's first weights, and of dropout."""
    folder: Storage
    """Of the stage: gets Ray Train's `checkpoints`, `models/step-...` and `result.json`."""
    validate_on: On
    whitening: WhiteningPlan | None = None
    """How the encoder is whitened anew when it is validated; None: it isn't."""
    board: Any = None
    """Handle of a progress board."""
    events: Storage | None = None
    """Where TensorBoard's event file goes."""


class StepReport(NamedTuple):
    """One step, over all workers."""

    loss: float
    gradient_norm: float
    """Of the global batch, before clipping."""
    spread: float
    """1 - |mean of the normalised vectors|^2: about 1 when they point everywhere, 0 when they are all one."""
    tokens: int
    padded: int


def train_worker(training: Training) -> None:
    """What Ray Train runs on every worker."""
    settings = training.settings
    device = worker_device()
    torch.set_num_threads(assigned_cores())
    encoder = training.encoder.load().to(device)
    trainee = Trainee(encoder, training.strategy, settings, training.seed)
    stream = ExampleStream(
        training.examples, training.strategy, settings.train.batch_size, training.seed, rank(), workers()
    )
    stopping = EarlyStopping(training.budget.patience)
    progress: dict[str, Any] = {
        "step": 0,
        "tokens": 0,
        "history": [],
        "finished": False,
        "warned": False,
        "seconds": 0.0,
        "best_steps": [],
        "resumed_at": [],
    }
    offered = ray.train.get_checkpoint()
    if offered and (checkpoint := newest_whole(offered, functools.partial(_tell, training))):
        with checkpoint.as_directory() as folder:
            progress = load_checkpoint(Path(folder), trainee, stream)
        stopping.restore(progress["stopping"])
        trainee.memory.resume(progress.get("chunk_tokens"))
        progress["resumed_at"].append(progress["step"])
    curve = Curve(training.events if rank() == 0 else None, progress)
    # The run's seed, not the stage's: all iterations are asked the same.
    questions = questions_for(
        training.store, "valid", training.validate_on, settings.validate.max_documents, device, settings.seed
    )
    plan = training.whitening
    refit = None if plan is None else Refit.of(plan, training.store, encoder.base_dimension, device)
    begun, before = time.monotonic(), progress["seconds"]

    def look(name: str, changed: bool, more: dict[str, Any], note: str = "") -> dict[str, Any]:
        """Validate the encoder as it is, whitened anew where it has changed."""
        ready = for_inference(encoder, settings.encoder.precision, device)
        if refit is not None and changed:
            encoder.whitening = refit(ready)
            ready.whitening = encoder.whitening
        scores = score(ready, questions).metrics
        names = ("recall@5", "recall@10", "recall@20", "mrr")
        found = ", ".join(f"{name} {shown(scores, name)}" for name in names)
        _tell(training, f"    {name}: validation {found}{note}")
        if encoder.whitening is not None:
            more = more | {"whitening": {"power": encoder.whitening.power, "dimension": encoder.dimension}}
        return scores | more

    def validate(step: int, report: StepReport | None) -> dict[str, Any]:
        more = {"step": step, "tokens_done": progress["tokens"]} | (report._asdict() if report else {})
        entry = look(f"step {step}", step > 0, more, f", loss {report.loss:.4f}" if report else "")
        progress["history"].append(entry)
        if rank() == 0:
            count_scores(training.folder, entry)
        return entry

    def checkpoint_now() -> None:
        best_steps = [*progress["best_steps"], stopping.best_step][-_CHECKPOINTS_BEHIND:]
        progress.update(stopping=stopping.state(), seconds=before + time.monotonic() - begun, best_steps=best_steps)
        with tempfile.TemporaryDirectory() as folder:
            with explained(folder, checkpoint_bytes(trainee)):
                save_checkpoint(Path(folder), rank(), trainee, batches.state(), progress)
            checkpoint = ray.train.Checkpoint.from_directory(folder)
            with explained(training.folder, sum(file.stat().st_size for file in Path(folder).iterdir())):
                ray.train.report({"step": progress["step"]}, checkpoint=checkpoint)

    batches = Ahead(stream)
    if not progress["history"]:
        validate(0, None)
        curve.add(0, validated=True)
    every, every_tokens = settings.train.checkpoint_every, settings.validate.every_tokens
    budget = training.budget
    told = 0.0
    tokens_done, started_at = 0, (time.monotonic(), progress["step"])
    stop, request = False, Request(training.board if rank() == 0 else None)
    while not progress["finished"] and not stop:
        step, step_begun = progress["step"] + 1, time.monotonic()
        batch = batches.next_batch()
        tokens_before = progress["tokens"]
        tokens_here, stop = trainee.tokens_of_all(batch, request.made())
        tokens = tokens_before + tokens_here
        final = step == budget.steps or (budget.tokens is not None and tokens >= budget.tokens)
        by_steps = step % settings.validate.every == 0
        due = by_steps if every_tokens is None else tokens // every_tokens > tokens_before // every_tokens
        validating = final or due
        saving = validating or stop or (every is not None and step % every == 0)
        batches.deal_next(keep_state=saving)
        try:
            report = train_step(trainee, batch, training.seed, step)
        except (NonFinite, OutOfMemoryEverywhere) as error:
            _finish(training, progress | {"error": str(error)})
            return
        if news := trainee.memory.news():
            _tell(training, f"    step {step}: {news}")
        progress.update(step=step, tokens=tokens, chunk_tokens=trainee.memory.tokens)
        tokens_done += report.padded
        seconds = time.monotonic() - step_begun
        curve.add(step, report, seconds, validating)
        if rank() == 0:
            count_step(training.folder, report, seconds, settings.train.batch_size)
        if report.spread < COLLAPSE and not progress["warned"]:
            progress["warned"] = True
            _tell(
                training,
                f"    warning: step {step}: the sentence vectors are collapsing (spread {report.spread:.3f}); lower "
                "train.learning_rate or train.temperature, or set train.similarity to cosine",
            )
        if validating:
            scores = validate(step, report)
            if stopping.improved(step, scores[settings.validate.metric]):
                _save_best(training, encoder, step)
            progress["finished"] = final or stopping.stop(step)
        if progress["finished"] or stop or (saving and (every is None or step % every == 0)):
            checkpoint_now()
            _drop_models(training, progress["best_steps"])
        curve.show()
        if time.monotonic() - told > 1.0 or progress["finished"]:
            told = time.monotonic()
            seconds = told - started_at[0]
            done = step - started_at[1]
            speed = done * settings.train.batch_size / seconds
            note = (
                f"loss {report.loss:.4f}, gradient {report.gradient_norm:.3g}, spread {report.spread:.2f}, "
                f"{speed:,.0f} examples/s, {tokens_done / seconds:,.0f} tokens/s, "
                f"padding {100 * (1 - report.tokens / max(report.padded, 1)):.1f} %"
            )
            _show(training, step if budget.tokens is None else min(tokens, budget.tokens), note)
    batches.close()
    curve.close()
    if not progress["finished"]:
        _tell(training, f"    step {progress['step']}: stopped, at a checkpoint")
        return
    metric, never_worse = settings.validate.metric, settings.train.never_worse
    choice = WeightsChoice(metric, progress["history"], stopping.best_step, never_worse)
    if settings.train.interpolation:
        folder = _model_folder(training, stopping.best_step)
        # Named by its content: a training begun anew in this place may have saved another encoder of the same step.
        named = digest((folder / FOLDER).read_bytes()).hex()
        start, best = training.encoder.load(), EncoderFolder(folder, named, encoder.max_length).load()
        for share in settings.train.interpolation:
            between(encoder, start, best, share)
            entry = look(f"{share:g} of the way to step {stopping.best_step}", True, {"share": share})
            if choice.offer(entry) and rank() == 0:
                EncoderFolder.save(encoder, training.folder / "models" / INTERPOLATED)
    _finish(training, progress | {"stopping": stopping.state(), "chosen": choice.chosen, "between": choice.between})
    _drop_models(training, [stopping.best_step] if choice.kind == "trained" else [], choice.kind == "interpolated")


def train_step(trainee: Trainee, batch: Batch, seed: int, step: int) -> StepReport:
    """One optimiser step on this worker's rows of a global batch.

    Args:
        trainee: what is trained.
        batch: this worker's rows.
        seed: of dropout.
        step: from 1; dropout's noise follows from seed, step and worker.

    Raises:
        NonFinite: on every worker, before the step is taken.
        OutOfMemory: it doesn't fit; on every worker if it is OutOfMemoryEverywhere.
    """
    encoder, settings, device = trainee.encoder, trainee.settings, trainee.encoder.device
    memory = trainee.memory
    encoder.train()
    documents, owner, labels, texts = (
        torch.from_numpy(column).to(device)
        for column in (batch.keys[batch.owner], batch.owner, batch.labels, batch.text_ids)
    )

    def loss_of(vectors: torch.Tensor) -> torch.Tensor:
        encoded = Encoded(vectors, documents, owner, labels, texts)
        with advised(f"the loss of {len(vectors):,} texts at once", f"lower the batch size, or {MORE}"):
            return contrastive_loss(trainee.strategy.contrast(encoded, trainee.head))

    def attempt() -> tuple[torch.Tensor, torch.Tensor, int]:
        # Noise that is a function of the step makes a resumed run equal to an uninterrupted one.
        torch.manual_seed(mix(seed, step, rank()) >> 1)
        trainee.optimizer.zero_grad(set_to_none=True)
        chunks = memory.apart(lambda: trainee.chunks(batch)) if memory.auto else trainee.chunks(batch)
        loss, vectors = backward(
            trainee.model,
            chunks,
            len(batch.texts),
            loss_of,
            autocast_for(settings, device),
            memory.tokens,
            _loss_of_guesses(trainee, chunks) if trainee.strategy.guesses else None,
            memory.apart if memory.auto else None,
        )
        return loss, vectors, sum(chunk.inputs["input_ids"].numel() for chunk in chunks)

    loss, vectors, padded = memory.until_it_fits(step, attempt)
    trainee.average_head()
    norm = trainee.gradient_norm()
    unit = torch.nn.functional.normalize(vectors.float(), dim=-1)
    real = int(trainee.tokens(batch).sum())
    # Whether to step is settled here, by all: one that stepped alone would train another encoder.
    here = [loss.item() / workers(), real, padded, len(unit), float(not torch.isfinite(norm))]
    sums = total(torch.tensor(here, dtype=torch.float64, device=device)).tolist()
    mean_loss, tokens, padded_tokens, everyones_texts, broken = sums
    if not math.isfinite(mean_loss):
        raise NonFinite(_non_finite(step, "the loss is not finite", batch, vectors))
    if broken:
        raise NonFinite(
            _non_finite(step, f"the loss is {mean_loss:.4g} but its gradient is not finite", batch, vectors)
        )
    centre = total(unit.sum(0)) / everyones_texts
    with advised("the optimiser's moments", MORE):
        trainee.update(step, norm)
    return StepReport(mean_loss, norm.item(), 1.0 - float(centre @ centre), int(tokens), int(padded_tokens))


def _loss_of_guesses(trainee: Trainee, chunks: list[Chunk]) -> Callable[[torch.Tensor, Chunk], torch.Tensor] | None:
    """The loss of guessing a chunk's masked tokens; those of all chunks and workers average to that of a mean guess."""
    here = sum(int((chunk.inputs["guess"] >= 0).sum()) for chunk in chunks if "guess" in chunk.inputs)
    guesses = int(total(torch.tensor(here, device=trainee.encoder.device)))
    if not guesses:
        return None
    embeddings = trainee.encoder.backbone.get_input_embeddings().weight

    def loss(states: torch.Tensor, chunk: Chunk) -> torch.Tensor:
        tokens = chunk.inputs["guess"]
        return trainee.head.guesses(states, tokens[tokens >= 0], embeddings) * (workers() / guesses)

    return loss


def _non_finite(step: int, what: str, batch: Batch, vectors: torch.Tensor) -> str:
    broken = ~torch.isfinite(vectors).all(1).cpu().numpy()
    bad = everyones(list(dict.fromkeys(batch.doc_ids[example] for example in batch.owner[broken])))
    named = list(dict.fromkeys(bad or everyones(batch.doc_ids)))
    kind = "documents with non-finite vectors" if bad else "documents of the batch"
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return (
        f"step {step}: {what}; {kind}: {', '.join(named[:_NAMED])}{more}. "
        "Lower train.learning_rate, raise train.temperature, or set encoder.precision to fp32"
    )


def autocast_for(settings: Settings, device: torch.device) -> Callable[[], Any]:
    """The precision of training: bf16 autocast where asked for or native to the device; weights stay fp32."""
    precision = settings.encoder.precision
    if precision == "bf16" or (precision == "auto" and native_bf16(device)):
        return lambda: torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext


def model_name(step: int) -> str:
    """The folder of the encoder of a step, among a stage's `models`."""
    return f"step-{step:08d}"


def _model_folder(training: Training, step: int) -> Storage:
    return training.folder / "models" / model_name(step)


def _save_best(training: Training, encoder: SentenceEncoder, step: int) -> None:
    if rank() == 0:
        EncoderFolder.save(encoder, _model_folder(training, step))


def _drop_models(training: Training, but: list[int], interpolated: bool = False) -> None:
    """Delete the models of all steps but these, and the interpolated one unless it is to stay."""
    if rank() == 0:
        models = training.folder / "models"
        kept = {model_name(step) for step in but} | ({INTERPOLATED} if interpolated else set())
        for name in {file.split("/")[0] for file in models.files()} - kept:
            (models / name).delete()


def _finish(training: Training, result: dict[str, Any]) -> None:
    if rank() == 0:
        (training.folder / "result.json").write_json(checked(result))


def _tell(training: Training, line: str) -> None:
    if rank() == 0 and training.board is not None:
        training.board.line.remote(line)


def _show(training: Training, done: int, note: str) -> None:
    if rank() == 0 and training.board is not None:
        training.board.set.remote(done, note)
