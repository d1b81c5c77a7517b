"""Gradient caching (GradCache, Gao et al. 2021): batches of any size in the memory of one chunk, exactly.

1. Encode the batch chunk by chunk without keeping activations; remember the random state before each chunk.
2. Compute the loss on all vectors, and its gradient with respect to each vector.
3. Encode each chunk again from its random state and send its vectors' gradients back through the encoder.

A loss on token vectors (guessing masked tokens) is a sum over texts: it is added chunk by chunk, in step 3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from infocse_ray.distributed.collectives import largest


class Chunk(NamedTuple):
    """Some of a batch's texts, padded to one length."""

    rows: torch.Tensor
    """int64 [b], which texts of the batch."""
    inputs: dict[str, torch.Tensor]
    """What the model is called with; `input_ids` int64 [b, length] among it."""


def backward(
    model: torch.nn.Module,
    chunks: list[Chunk],
    count: int,
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    autocast: Callable[[], Any] = contextlib.nullcontext,
    kept_tokens: int = 0,
    loss_of_tokens: Callable[[torch.Tensor, Chunk], torch.Tensor] | None = None,
    apart: Callable[[Callable[[], None]], None] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the gradients of `loss_of(vectors)` to the model's parameters, and to those that the loss itself has.

    Args:
        model: maps a chunk's inputs to vectors [b, d] and, where there are tokens to guess, their states [m, d]; may
            be wrapped in DDP, whose all-reduce then happens once, in the last chunk's backward.
        chunks: of a batch of `count` texts; every text is in one.
        count: texts.
        loss_of: the loss on vectors [count, d], differentiable; may talk to other workers.
        autocast: makes the context that the encoder's forward runs in, in both passes.
        kept_tokens: a batch of at most so many tokens, padding included, is encoded once, activations kept.
        loss_of_tokens: a loss on the states of a chunk's tokens to guess, to be added; talks to nobody.
        apart: calls what a worker computes without the others, which may fail; it comes back when that went well on
            all of them. None: it doesn't fail.

    Returns:
        The loss and the vectors, detached.
    """
    device = next(model.parameters()).device
    chunks = chunks or [_no_rows(device)]
    many = len(chunks) > 1 and sum(chunk.inputs["input_ids"].numel() for chunk in chunks) > kept_tokens

    def with_guesses(loss: torch.Tensor, states: torch.Tensor, chunk: Chunk) -> torch.Tensor:
        if loss_of_tokens is None or not len(states):
            return loss
        with autocast():
            return loss + loss_of_tokens(states, chunk)

    # Workers must agree, for DDP's forward may exchange something: here before the loss does, below after it.
    keep = not largest(int(many), device)
    if keep and apart is None:
        with autocast():
            encoded = [_encode(model, chunk) for chunk in chunks]
        vectors = torch.cat([out for out, _ in encoded])[_inverse(chunks)]
        loss = loss_of(vectors)
        for (_, states), chunk in zip(encoded, chunks, strict=True):
            loss = with_guesses(loss, states, chunk)
        loss.backward()
        return loss.detach(), vectors.detach()
    wrapped = isinstance(model, DistributedDataParallel)
    plain = model.module if wrapped else model
    if apart is None:
        apart, exchanging = _call, chunks[-1:]
    else:
        # The chunk whose backward exchanges gradients has no text, so that it doesn't fail.
        exchanging = [_no_rows(device)] if wrapped else []
        chunks = chunks + exchanging
    states_before: list[_RandomState] = []
    encoded: list[tuple[torch.Tensor, torch.Tensor]] = []

    def encode() -> None:
        with torch.set_grad_enabled(keep), autocast():
            for chunk in chunks:
                states_before.append(_RandomState(device))
                out, states = _encode(plain, chunk)
                encoded.append((out, states if keep else states[:0]))

    apart(encode)
    vectors = torch.cat([out.detach() for out, _ in encoded])[_inverse(chunks)].requires_grad_()
    loss = loss_of(vectors)
    loss.backward()
    gradient = vectors.grad
    assert gradient is not None
    losses = [loss.detach()]
    after = _RandomState(device)

    def send_back(numbers: range, kept: bool) -> None:
        for i in numbers:
            chunk = chunks[i]
            if kept:
                out, states = encoded[i]
            else:
                states_before[i].restore()
                with autocast():
                    out, states = _encode(model, chunk)
            extra = with_guesses(losses[0].new_zeros(()), states, chunk)
            losses.append(extra.detach())
            # Its gradient is that of the loss and that of the guesses.
            ((out * gradient[chunk.rows]).sum() + extra).backward()

    silent = len(chunks) - len(exchanging)
    with model.no_sync() if wrapped else contextlib.nullcontext():  # pyright: ignore[reportCallIssue]
        apart(lambda: send_back(range(silent), kept=keep))
    send_back(range(silent, len(chunks)), kept=False)
    after.restore()
    return sum(losses[1:], losses[0]), vectors.detach()


def _call(work: Callable[[], None]) -> None:
    work()


def _no_rows(device: torch.device) -> Chunk:
    """What a worker without a row of the batch encodes, to take part in every exchange."""
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
