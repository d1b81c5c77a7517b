"""One optimiser step on a global batch: encode, contrast with every worker's texts, update."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from infocse_ray.distributed.collectives import all_gather_list, all_reduce_sum, rank, workers
from infocse_ray.distributed.memory import MORE, advised
from infocse_ray.errors import NonFinite
from infocse_ray.methods.chance import mix
from infocse_ray.methods.contrast import Contrast, Encoded
from infocse_ray.sampling.stream import Batch
from infocse_ray.train.cached import Chunk, backward, kept_at_once
from infocse_ray.train.loss import Reference, contrastive_loss
from infocse_ray.train.precision import autocast_for
from infocse_ray.train.state import Agreed, Prepared, TrainState

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


class StepUnderWay:
    """A step whose figures the device may still be computing.

    Attributes:
        step: its number, from 1.
    """

    def __init__(self, step: int, batch: Batch, vectors: torch.Tensor, agreed: Agreed, figures: torch.Tensor) -> None:
        """Ask for the figures.

        Args:
            step: its number.
            batch: this worker's rows.
            vectors: of their texts.
            agreed: what is known of the batch.
            figures: float64 [3 + d]: the sum of the workers' shares of the loss, of those without a finite gradient,
                and of unit vectors; last, the gradient's norm.
        """
        self.step, self._batch, self._vectors, self._agreed = step, batch, vectors, agreed
        self._ready = None
        if figures.device.type == "cuda":
            here = torch.empty(figures.shape, dtype=figures.dtype, pin_memory=True)
            self._figures = here.copy_(figures, non_blocking=True)
            self._ready = torch.cuda.Event()
            self._ready.record()
        else:
            self._figures = figures

    def report(self) -> StepReport:
        """The step's figures, once they are there; every worker must call.

        Raises:
            NonFinite: on every worker; neither this step nor one after it has changed the weights.
        """
        if self._ready is not None:
            self._ready.synchronize()
        loss, broken, *total, norm = self._figures.tolist()
        if not math.isfinite(loss):
            raise NonFinite(_non_finite(self.step, "the loss is not finite", self._batch, self._vectors))
        if broken:
            what = f"the loss is {loss:.4g} but its gradient is not finite"
            raise NonFinite(_non_finite(self.step, what, self._batch, self._vectors))
        spread = 1.0 - sum((one / self._agreed.texts) ** 2 for one in total)
        return StepReport(loss, norm, spread, self._agreed.tokens, self._agreed.padded)


def train_step(state: TrainState, batch: Batch, seed: int, step: int) -> StepReport:
    """`begin_step` on this worker's rows of a global batch, and its report."""
    prepared = state.prepare(batch)
    return begin_step(state, prepared, state.agree(prepared), seed, step).report()


def begin_step(state: TrainState, prepared: Prepared, agreed: Agreed, seed: int, step: int) -> StepUnderWay:
    """One optimiser step on this worker's rows of a global batch; the host waits for no figure of it.

    The step is not taken, nor is any after it, if the loss or the gradient is not finite.

    Args:
        state: what is trained.
        prepared: this worker's rows.
        agreed: what the workers know of each other's.
        seed: of dropout.
        step: from 1; dropout's noise follows from seed, step and worker.

    Raises:
        OutOfMemory: it doesn't fit; on every worker if it is OutOfMemoryEverywhere.
    """
    encoder, settings, device = state.encoder, state.settings, state.encoder.device
    memory, batch = state.memory, prepared.batch
    encoder.train()
    columns = prepared.columns.to(device, non_blocking=True).unbind()
    held = state.reference(batch)

    def contrast_of(vectors: torch.Tensor) -> Contrast | None:
        return state.method.contrast(Encoded(vectors, *columns, known=batch.labels), state.head)

    def loss_of(vectors: torch.Tensor) -> torch.Tensor:
        with advised(f"the loss of {len(vectors):,} texts at once", f"lower the batch size, or {MORE}"):
            if (contrast := contrast_of(prepared.placed(vectors))) is None:
                return 0.0 * vectors.sum()
            before = None if held is None else contrast_of(held)
            return contrastive_loss(contrast, None if before is None else Reference(before, state.method.distillation))

    def attempt() -> tuple[torch.Tensor, torch.Tensor, Prepared, Agreed]:
        ready, known = prepared, agreed
        if ready.chunk_tokens != memory.tokens:  # on every worker
            ready = state.prepare(batch)
            known = state.agree(ready)
        # Noise that is a function of the step makes a resumed run equal to an uninterrupted one.
        torch.manual_seed(mix(seed, step, rank()) >> 1)
        state.optimizer.zero_grad(set_to_none=True)
        chunks = [chunk.to(device) for chunk in ready.chunks]
        with memory.watched():
            loss, vectors = backward(
                state.model,
                chunks,
                loss_of,
                autocast_for(settings, device),
                memory.kept,
                _token_loss(state, known.guessed) if known.guessed else None,
                memory.looked_after,
                known.all_kept,
            )
        return loss, vectors, ready, known

    loss, vectors, prepared, agreed = memory.until_it_fits(step, attempt)
    memory.fitted(kept_at_once(prepared.chunks, memory.kept))
    state.average_head()
    norm = state.gradient_norm()
    unit = torch.nn.functional.normalize(vectors.float(), dim=-1)
    # Whether to step is settled here, by all: one that stepped alone would train another encoder.
    here = [loss.double() / workers(), (~torch.isfinite(norm)).double()]
    sums = all_reduce_sum(torch.cat([torch.stack(here), unit.sum(0).double()]))
    state.broken.copy_(torch.maximum(state.broken, (~torch.isfinite(sums[0]) | (sums[1] > 0)).to(state.broken.dtype)))
    with advised("the optimiser's moments", MORE):
        state.update(step, norm)
    figures = torch.cat([sums, norm.double()[None]])
    return StepUnderWay(step, batch, prepared.placed(vectors), agreed, figures)


def _token_loss(state: TrainState, guessed: int) -> Callable[[torch.Tensor, Chunk], torch.Tensor]:
    """The loss of a chunk's guessed tokens; those of all chunks and workers average to the mean over all `guessed`."""
    embeddings = state.encoder.backbone.get_input_embeddings().weight

    def loss(states: torch.Tensor, chunk: Chunk) -> torch.Tensor:
        return state.head.token_loss(states, chunk.inputs, embeddings) * (workers() / guessed)

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
