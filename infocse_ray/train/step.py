"""One optimiser step on a global batch: encode, contrast with every worker's texts, update."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from infocse_ray.distributed.collectives import all_gather_list, all_reduce_sum, rank, workers
from infocse_ray.distributed.memory import MORE, advised
from infocse_ray.encoder.embed import native_bf16
from infocse_ray.errors import NonFinite
from infocse_ray.methods.chance import mix
from infocse_ray.methods.contrast import Encoded
from infocse_ray.sampling.stream import Batch
from infocse_ray.settings import Settings
from infocse_ray.train.cached import Chunk, backward
from infocse_ray.train.loss import contrastive_loss
from infocse_ray.train.state import TrainState

_NAMED = 20
"""Documents an error names at most."""


class StepReport(NamedTuple):
    """One step, over all workers."""

    loss: float
    gradient_norm: float
    """Of the global batch, before clipping."""
    spread: float
    """1 - |mean of the normalised vectors|^2: about 1 when they point everywhere, 0 when they are all one."""
    tokens: int
    padded: int


def train_step(state: TrainState, batch: Batch, seed: int, step: int) -> StepReport:
    """One optimiser step on this worker's rows of a global batch.

    Args:
        state: what is trained.
        batch: this worker's rows.
        seed: of dropout.
        step: from 1; dropout's noise follows from seed, step and worker.

    Raises:
        NonFinite: on every worker, before the step is taken.
        OutOfMemory: it doesn't fit; on every worker if it is OutOfMemoryEverywhere.
    """
    encoder, settings, device = state.encoder, state.settings, state.encoder.device
    memory = state.memory
    encoder.train()
    documents, owner, labels, texts = (
        torch.from_numpy(column).to(device)
        for column in (batch.keys[batch.owner], batch.owner, batch.labels, batch.text_ids)
    )

    def loss_of(vectors: torch.Tensor) -> torch.Tensor:
        encoded = Encoded(vectors, documents, owner, labels, texts)
        with advised(f"the loss of {len(vectors):,} texts at once", f"lower the batch size, or {MORE}"):
            return contrastive_loss(state.method.contrast(encoded, state.head))

    def attempt() -> tuple[torch.Tensor, torch.Tensor, int]:
        # Noise that is a function of the step makes a resumed run equal to an uninterrupted one.
        torch.manual_seed(mix(seed, step, rank()) >> 1)
        state.optimizer.zero_grad(set_to_none=True)
        chunks = memory.apart(lambda: state.chunks(batch)) if memory.auto else state.chunks(batch)
        loss, vectors = backward(
            state.model,
            chunks,
            len(batch.texts),
            loss_of,
            autocast_for(settings, device),
            memory.tokens,
            _mlm_loss(state, chunks) if state.method.has_mlm_labels else None,
            memory.apart if memory.auto else None,
        )
        return loss, vectors, sum(chunk.inputs["input_ids"].numel() for chunk in chunks)

    loss, vectors, padded = memory.until_it_fits(step, attempt)
    state.average_head()
    norm = state.gradient_norm()
    unit = torch.nn.functional.normalize(vectors.float(), dim=-1)
    real = int(state.tokens(batch).sum())
    # Whether to step is settled here, by all: one that stepped alone would train another encoder.
    here = [loss.item() / workers(), real, padded, len(unit), float(not torch.isfinite(norm))]
    sums = all_reduce_sum(torch.tensor(here, dtype=torch.float64, device=device)).tolist()
    mean_loss, tokens, padded_tokens, all_texts, broken = sums
    if not math.isfinite(mean_loss):
        raise NonFinite(_non_finite(step, "the loss is not finite", batch, vectors))
    if broken:
        raise NonFinite(
            _non_finite(step, f"the loss is {mean_loss:.4g} but its gradient is not finite", batch, vectors)
        )
    centre = all_reduce_sum(unit.sum(0)) / all_texts
    with advised("the optimiser's moments", MORE):
        state.update(step, norm)
    return StepReport(mean_loss, norm.item(), 1.0 - float(centre @ centre), int(tokens), int(padded_tokens))


def _mlm_loss(state: TrainState, chunks: list[Chunk]) -> Callable[[torch.Tensor, Chunk], torch.Tensor] | None:
    """The loss of a chunk's masked tokens; those of all chunks and workers average to the mean over tokens."""
    here = sum(int((chunk.inputs["mlm_labels"] >= 0).sum()) for chunk in chunks if "mlm_labels" in chunk.inputs)
    masked = int(all_reduce_sum(torch.tensor(here, device=state.encoder.device)))
    if not masked:
        return None
    embeddings = state.encoder.backbone.get_input_embeddings().weight

    def loss(states: torch.Tensor, chunk: Chunk) -> torch.Tensor:
        tokens = chunk.inputs["mlm_labels"]
        return state.head.mlm_loss(states, tokens[tokens >= 0], embeddings) * (workers() / masked)

    return loss


def _non_finite(step: int, what: str, batch: Batch, vectors: torch.Tensor) -> str:
    broken = ~torch.isfinite(vectors).all(1).cpu().numpy()
    bad = all_gather_list(list(dict.fromkeys(batch.doc_ids[example] for example in batch.owner[broken])))
    named = list(dict.fromkeys(bad or all_gather_list(batch.doc_ids)))
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
