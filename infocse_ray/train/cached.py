"""Gradient caching (GradCache, Gao et al. 2021): batches of any size in the memory of one chunk, exactly.

1. Encode the batch chunk by chunk; remember the random state before each chunk. The first chunks keep their
   activations, as many as memory has room for; the others don't.
2. Compute the loss on all vectors, and its gradient with respect to each vector.
3. Send each chunk's vectors' gradients back through the encoder; a chunk without activations is encoded again from its
   random state before.

A loss on token vectors (masked-language modelling) is a sum over texts: it is added chunk by chunk, in step 3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel


class Chunk(NamedTuple):
    """Some of a batch's texts, padded to one length."""

    rows: torch.Tensor
    """int64 [b], which texts of the batch."""
    inputs: dict[str, torch.Tensor]
    """What the model is called with; `input_ids` int64 [b, length] among it."""

    @property
    def padded(self) -> int:
        """Tokens, padding included: those that are read, or those that are to be written where these are more."""
        return max(self.inputs[name].numel() for name in ("input_ids", "decoded") if name in self.inputs)

    def to(self, device: torch.device) -> Chunk:
        """On a device; not waited for where it comes from pinned memory."""
        inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in self.inputs.items()}
        return Chunk(self.rows.to(device, non_blocking=True), inputs)


def backward(
    model: torch.nn.Module,
    chunks: list[Chunk],
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    autocast: Callable[[], Any] = contextlib.nullcontext,
    kept_tokens: int = 0,
    loss_of_tokens: Callable[[torch.Tensor, Chunk], torch.Tensor] | None = None,
    apart: Callable[[Callable[[], Any]], Any] | None = None,
    all_kept: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the gradients of `loss_of(vectors)` to the model's parameters, and to those that the loss itself has.

    Args:
        model: maps a chunk's inputs to vectors [b, d] and, where tokens were masked, their states [m, hidden];
            may be wrapped in DDP, whose all-reduce then happens once, in the last chunk's backward.
        chunks: of a batch; every text is in one.
        loss_of: the loss on the batch's vectors [texts, d], differentiable; may talk to other workers.
        autocast: makes the context that the encoder's forward runs in, in both passes.
        kept_tokens: the first chunks with at most so many tokens, padding included, are encoded once, activations
            kept; so is a single chunk, and the first one, whose activations would be there in step 3 as well.
        loss_of_tokens: a loss on the states of a chunk's masked tokens, to be added; talks to nobody.
        apart: calls what a worker computes without the others, which may fail, and returns what it gave once that went
            well on all of them. None: it doesn't fail.
        all_kept: no worker's chunks have more than `kept_tokens`: DDP exchanges gradients while the rest are computed.

    Returns:
        The loss and the vectors, detached.
    """
    device = next(model.parameters()).device
    chunks = chunks or [_no_rows(device)]
    ddp = model if isinstance(model, DistributedDataParallel) else None
    inner: torch.nn.Module = model if ddp is None else ddp.module
    if ddp is not None and all_kept and apart is None:
        return _plain_backward(ddp, chunks, loss_of, autocast, loss_of_tokens)
    if ddp is None:
        silent, exchanging = chunks, []
    elif apart is None:
        silent, exchanging = chunks[:-1], chunks[-1:]
    else:
        # The chunk whose backward exchanges gradients has no text, so that it doesn't fail.
        silent, exchanging = chunks, [_no_rows(device)]
    chunks, apart = silent + exchanging, apart or _call
    keep = _first_within(silent, kept_tokens)
    encoded = apart(lambda: _encode_all(inner, chunks, autocast, keep))
    loss, vectors, gradient = _loss_and_gradient(encoded, chunks, loss_of)
    after = _RandomState(device)

    def push(number: int, through: torch.nn.Module) -> torch.Tensor:
        one = encoded.pop(0)  # what it kept goes with it
        return _push_gradient(through, chunks[number], one, number < keep, gradient, autocast, loss_of_tokens)

    with contextlib.nullcontext() if ddp is None else ddp.no_sync():
        added = apart(lambda: [push(number, inner) for number in range(len(silent))])
    added += [push(number, model) for number in range(len(silent), len(chunks))]
    after.restore()
    return sum(added, loss), vectors


def kept_at_once(chunks: list[Chunk], tokens: int) -> int:
    """Tokens, padding included, whose activations `backward` has at one time at most."""
    kept = _first_within(chunks, tokens)
    return max([sum(chunk.padded for chunk in chunks[:kept]), *(chunk.padded for chunk in chunks[kept:])])


def _first_within(chunks: list[Chunk], tokens: int) -> int:
    """How many chunks, the first ones, have at most so many tokens; 1 at least."""
    room, count = tokens, 0
    for chunk in chunks:
        room -= chunk.padded
        if room < 0 and count:
            break
        count += 1
    return count


class _Encoded(NamedTuple):
    """What step 1 has of a chunk."""

    random_state: _RandomState
    """Before it was encoded."""
    vectors: torch.Tensor
    """Float [b, d]."""
    states: torch.Tensor
    """Float [m, hidden], where tokens were masked; empty without the graph, for step 3 has them again."""

    @classmethod
    def of(
        cls, model: torch.nn.Module, chunks: list[Chunk], autocast: Callable[[], Any], graph: bool
    ) -> list[_Encoded]:
        """Some chunks, encoded in one autocast, with the graph or without it."""
        encoded = []
        with torch.set_grad_enabled(graph), autocast() if chunks else contextlib.nullcontext():
            for chunk in chunks:
                before = _RandomState(chunk.rows.device)
                vectors, states = _encode(model, chunk)
                encoded.append(cls(before, vectors, states if graph else states[:0]))
        return encoded


def _encode_all(model: torch.nn.Module, chunks: list[Chunk], autocast: Callable[[], Any], keep: int) -> list[_Encoded]:
    """Step 1, with the graph for the first `keep` chunks."""
    # A context for each chunk with a graph, as in step 3: a weight's cast would else be one for all, without it.
    encoded = [_Encoded.of(model, [chunk], autocast, True)[0] for chunk in chunks[:keep]]
    return encoded + _Encoded.of(model, chunks[keep:], autocast, False)


def _loss_and_gradient(
    encoded: list[_Encoded], chunks: list[Chunk], loss_of: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Step 2: the loss, the vectors [count, d], and the loss' gradient with respect to them, [count, d]; detached."""
    vectors = torch.cat([one.vectors.detach() for one in encoded])[_inverse(chunks)].requires_grad_()
    loss = loss_of(vectors)
    loss.backward()
    assert vectors.grad is not None
    return loss.detach(), vectors.detach(), vectors.grad


def _push_gradient(
    model: torch.nn.Module,
    chunk: Chunk,
    encoded: _Encoded,
    kept: bool,
    gradient: torch.Tensor,
    autocast: Callable[[], Any],
    loss_of_tokens: Callable[[torch.Tensor, Chunk], torch.Tensor] | None,
) -> torch.Tensor:
    """Step 3, of a chunk: encode it again with the graph, as before, and push its vectors' gradient back through it.

    Returns:
        The loss on its tokens, a scalar, detached.
    """
    vectors, states = encoded.vectors, encoded.states
    if not kept:
        encoded.random_state.restore()
        with autocast():
            vectors, states = _encode(model, chunk)
    added = _token_loss(states, chunk, autocast, loss_of_tokens)
    # Its gradient is that of the loss and that of the tokens' loss.
    ((vectors * gradient[chunk.rows]).sum() + added).backward()
    return added.detach()


def _plain_backward(
    model: DistributedDataParallel,
    chunks: list[Chunk],
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    autocast: Callable[[], Any],
    loss_of_tokens: Callable[[torch.Tensor, Chunk], torch.Tensor] | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What caching stands for, where all activations fit: one forward, and one backward that DDP exchanges beside."""
    encoded = []
    for chunk in chunks:
        with autocast():
            encoded.append(_encode(model, chunk))
    vectors = torch.cat([out for out, _ in encoded])[_inverse(chunks)]
    loss = loss_of(vectors)
    for (_, states), chunk in zip(encoded, chunks, strict=True):
        loss = loss + _token_loss(states, chunk, autocast, loss_of_tokens)
    loss.backward()
    return loss.detach(), vectors.detach()


def _token_loss(
    states: torch.Tensor,
    chunk: Chunk,
    autocast: Callable[[], Any],
    loss_of_tokens: Callable[[torch.Tensor, Chunk], torch.Tensor] | None,
) -> torch.Tensor:
    """The masked-language-modelling loss of a chunk, a scalar; 0 without masked tokens."""
    if loss_of_tokens is None or not len(states):
        return states.new_zeros(())
    with autocast():
        return loss_of_tokens(states, chunk)


def _call(work: Callable[[], Any]) -> Any:
    return work()


def _no_rows(device: torch.device) -> Chunk:
    """A chunk for a worker without rows of the batch, so that it takes part in every collective operation."""
    ids = torch.zeros(1, 4, dtype=torch.int64, device=device)
    return Chunk(ids[0, :0], {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


def _encode(model: torch.nn.Module, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    vectors, states = model(**chunk.inputs)
    return vectors[: len(chunk.rows)], states


def _inverse(chunks: list[Chunk]) -> torch.Tensor:
    """The place of each text among those of all chunks."""
    permutation = torch.cat([chunk.rows for chunk in chunks])
    inverse = torch.empty_like(permutation)
    inverse[permutation] = torch.arange(len(permutation), device=permutation.device)
    return inverse


class _RandomState:
    """The state of the generators that dropout draws from."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda, self._device)
