"""The training loop of one worker, from the first step to the last.

Every step: take the next global batch's rows, encode them (cached if they are many), contrast them with every
worker's sentences, step. Now and then: validate, keep the best encoder, checkpoint, maybe stop.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ray.train
import torch
from torch.nn.parallel import DistributedDataParallel

from infocse_ray.annotate.annotations import Annotations
from infocse_ray.cluster import assigned_cores, worker_device
from infocse_ray.collective import everyones, rank, total, workers
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokens import concatenate
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import for_inference, native_bf16
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.positives.ahead import Ahead
from infocse_ray.positives.document import mix
from infocse_ray.positives.stream import Pairs, PairStream
from infocse_ray.retrieval.validation import On, questions_for, score
from infocse_ray.settings import Settings
from infocse_ray.storage import Storage
from infocse_ray.train.cached import backward, chunks_of
from infocse_ray.train.checkpoint import load_checkpoint, save_checkpoint
from infocse_ray.train.early_stopping import EarlyStopping
from infocse_ray.train.loss import Ids, contrastive_loss

COLLAPSE = 0.05
"""Embedding spread under which the run warns that all sentences are getting one vector."""

_CHECKPOINTS_BEHIND = 4
"""A checkpoint counts once Ray has recorded it, seconds after it was reported; until then a restart takes one before,
whose best model must still be there."""

_NAMED = 20
"""Documents an error names at most."""


class Training(NamedTuple):
    """What a worker needs to train."""

    settings: Settings
    store: TokenStore
    annotations: Annotations
    encoder: EncoderFolder
    seed: int
    """Of the order of the pairs and of dropout."""
    folder: Storage
    """Of the stage: gets `models/step-...` and `result.json`."""
    validate_on: On
    board: Any = None
    """Handle of a progress board."""


class StepReport(NamedTuple):
    """One step, over all workers."""

    loss: float
    gradient_norm: float
    spread: float
    """1 - |mean of the normalised anchors|^2: about 1 when they point everywhere, 0 when they are all one."""
    tokens: int
    padded: int


def train_worker(training: Training) -> None:
    """What Ray Train runs on every worker."""
    settings = training.settings
    device = worker_device()
    torch.set_num_threads(assigned_cores())
    encoder = training.encoder.load().to(device)
    freeze_unused(encoder)
    model: torch.nn.Module = encoder
    if workers() > 1:
        # Several chunks may go forward before one backward: buffers, which never change, must not be sent between.
        devices = [device] if device.type == "cuda" else None
        model = DistributedDataParallel(encoder, device_ids=devices, broadcast_buffers=False)
    optimizer = make_optimizer(encoder, settings)
    stream = PairStream(
        training.annotations,
        training.store.shards,
        settings.train.batch_size,
        training.seed,
        rank(),
        workers(),
    )
    stopping = EarlyStopping(settings.validate.patience)
    progress: dict[str, Any] = {
        "step": 0,
        "history": [],
        "finished": False,
        "warned": False,
        "seconds": 0.0,
        "best_steps": [],
        "resumed_at": [],
    }
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            progress = load_checkpoint(Path(folder), encoder, optimizer, stream)
        stopping.restore(progress["stopping"])
        progress["resumed_at"].append(progress["step"])
    questions = questions_for(training.store, "valid", training.validate_on, settings.validate.max_documents, device)
    begun, before = time.monotonic(), progress["seconds"]

    def validate(step: int, report: StepReport | None) -> dict[str, float]:
        scores = score(for_inference(encoder, settings.encoder.precision, device), questions).metrics
        entry = {"step": step, **scores} | (report._asdict() if report else {})
        progress["history"].append(entry)
        shown = ", ".join(f"{name} {scores[name]:.4f}" for name in ("recall@5", "recall@10", "recall@20", "mrr"))
        _tell(training, f"    step {step}: validation {shown}" + (f", loss {report.loss:.4f}" if report else ""))
        return scores

    def checkpoint_now() -> None:
        best_steps = [*progress["best_steps"], stopping.best_step][-_CHECKPOINTS_BEHIND:]
        progress.update(stopping=stopping.state(), seconds=before + time.monotonic() - begun, best_steps=best_steps)
        with tempfile.TemporaryDirectory() as folder:
            save_checkpoint(Path(folder), rank(), encoder, optimizer, pairs.state(), progress)
            checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"step": progress["step"]}, checkpoint=checkpoint)

    pairs = Ahead(stream)
    if not progress["history"]:
        validate(0, None)
    every = settings.train.checkpoint_every or settings.validate.every
    shown = 0.0
    tokens_done, started_at = 0, (time.monotonic(), progress["step"])
    while not progress["finished"]:
        step = progress["step"] + 1
        final = step == settings.train.max_steps
        validating = final or step % settings.validate.every == 0
        batch = pairs.next_batch(last=final, keep_state=validating or step % every == 0)
        try:
            report = train_step(encoder, model, optimizer, batch, settings, training.seed, step)
        except NonFinite as error:
            _finish(training, progress | {"error": str(error)})
            return
        progress["step"] = step
        tokens_done += report.padded
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
        if progress["finished"] or step % every == 0:
            checkpoint_now()
            _drop_models(training, progress["best_steps"])
        if time.monotonic() - shown > 1.0 or progress["finished"]:
            shown = time.monotonic()
            seconds = shown - started_at[0]
            done = step - started_at[1]
            speed = done * settings.train.batch_size / seconds
            note = (
                f"loss {report.loss:.4f}, gradient {report.gradient_norm:.3g}, spread {report.spread:.2f}, "
                f"{speed:,.0f} pairs/s, {tokens_done / seconds:,.0f} tokens/s, "
                f"padding {100 * (1 - report.tokens / max(report.padded, 1)):.1f} %"
            )
            _show(training, step, note)
    pairs.close()
    _finish(training, progress | {"stopping": stopping.state()})
    _drop_models(training, [stopping.best_step])


class NonFinite(RuntimeError):
    """The loss is not a finite number; the message names the step and the batch's documents."""


def train_step(
    encoder: SentenceEncoder,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Pairs,
    settings: Settings,
    seed: int,
    step: int,
) -> StepReport:
    """One optimiser step on this worker's rows of a global batch.

    Args:
        encoder: the encoder itself.
        model: the encoder, wrapped in DDP where there are several workers.
        optimizer: of the encoder's parameters.
        batch: this worker's rows.
        settings: of the run.
        seed: of dropout.
        step: from 1; dropout's noise follows from seed, step and worker.

    Raises:
        NonFinite: on every worker, before the step is taken.
    """
    device = encoder.device
    encoder.train()
    # Noise that is a function of the step makes a resumed run equal to an uninterrupted one.
    torch.manual_seed(mix(seed, step, rank()) >> 1)
    count = len(batch.doc_ids)
    sentences = concatenate([batch.anchors, batch.positives])
    chunks = chunks_of(encoder, sentences, settings.train.chunk_tokens)
    body = sentences.cut(encoder.max_length - len(encoder.prefix) - len(encoder.suffix)).hashes()
    hashes = torch.from_numpy(body).to(device)
    ids = Ids(torch.from_numpy(batch.keys).to(device), hashes[:count], hashes[count:])

    def loss_of(vectors: torch.Tensor) -> torch.Tensor:
        return contrastive_loss(vectors[:count], vectors[count:], ids, settings.train.temperature, batch.counts)

    optimizer.zero_grad(set_to_none=True)
    loss, vectors = backward(
        model, chunks, 2 * count, loss_of, autocast_for(settings, device), settings.train.chunk_tokens
    )
    unit = torch.nn.functional.normalize(vectors[:count].float(), dim=-1)
    real = int(encoder.lengths(sentences).sum())
    padded = sum(chunk.input_ids.numel() for chunk in chunks)
    head = torch.tensor([loss.item() / workers(), real, padded], dtype=torch.float64, device=device)
    mean_loss, tokens, padded_tokens = total(head).tolist()
    if not math.isfinite(mean_loss):
        raise NonFinite(_non_finite(step, batch, vectors))
    centre = total(unit.sum(0)) / sum(batch.counts)
    norm = torch.nn.utils.get_total_norm([p.grad for p in encoder.parameters() if p.grad is not None])
    optimizer.step()
    return StepReport(mean_loss, norm.item(), 1.0 - float(centre @ centre), int(tokens), int(padded_tokens))


def _non_finite(step: int, batch: Pairs, vectors: torch.Tensor) -> str:
    finite = torch.isfinite(vectors).all(1).cpu()
    bad = [
        d
        for d, a, p in zip(batch.doc_ids, finite[: len(batch.doc_ids)], finite[len(batch.doc_ids) :], strict=True)
        if not (a and p)
    ]
    bad = everyones(bad)
    named = list(dict.fromkeys(bad or everyones(batch.doc_ids)))
    kind = "documents with non-finite vectors" if bad else "documents of the batch"
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return (
        f"step {step}: the loss is not finite; {kind}: {', '.join(named[:_NAMED])}{more}. "
        "Lower train.learning_rate, raise train.temperature, or set encoder.precision to fp32"
    )


def make_optimizer(encoder: SentenceEncoder, settings: Settings) -> torch.optim.Optimizer:
    """Adam as in the paper's appendix, constant learning rate, no weight decay."""
    train = settings.train
    return torch.optim.Adam(
        [p for p in encoder.parameters() if p.requires_grad],
        lr=train.learning_rate,
        betas=(train.adam_beta1, train.adam_beta2),
        eps=train.adam_epsilon,
        fused=encoder.device.type == "cuda",
    )


def autocast_for(settings: Settings, device: torch.device) -> Callable[[], Any]:
    """The precision of training: bf16 autocast where asked for or native to the device; weights stay fp32."""
    precision = settings.encoder.precision
    if precision == "bf16" or (precision == "auto" and native_bf16(device)):
        return lambda: torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext


def freeze_unused(encoder: SentenceEncoder) -> None:
    """Freeze parameters that don't reach the sentence vector (such as BERT's pooler), for which DDP would wait."""
    encoder.eval()
    ids, mask = torch.full((1, 4), encoder.pad_id), torch.ones(1, 4, dtype=torch.int64)
    encoder(ids.to(encoder.device), mask.to(encoder.device)).sum().backward()
    for parameter in encoder.parameters():
        parameter.requires_grad_(parameter.grad is not None)
        parameter.grad = None


def _model_folder(training: Training, step: int) -> Storage:
    return training.folder / "models" / f"step-{step:08d}"


def _save_best(training: Training, encoder: SentenceEncoder, step: int) -> None:
    if rank() == 0:
        EncoderFolder.save(encoder, _model_folder(training, step))


def _drop_models(training: Training, but: list[int]) -> None:
    """Delete the models of all steps but these."""
    if rank() == 0:
        models = training.folder / "models"
        for name in {file.split("/")[0] for file in models.files()} - {f"step-{step:08d}" for step in but}:
            (models / name).delete()


def _finish(training: Training, result: dict[str, Any]) -> None:
    if rank() == 0:
        (training.folder / "result.json").write_json(result)


def _tell(training: Training, line: str) -> None:
    if rank() == 0 and training.board is not None:
        training.board.line.remote(line)


def _show(training: Training, step: int, note: str) -> None:
    if rank() == 0 and training.board is not None:
        training.board.set.remote(step, note)
