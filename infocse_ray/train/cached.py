"""Gradient caching (GradCache, Gao et al. 2021): batches of any size in the memory of one chunk, exactly.

1. Encode the batch chunk by chunk without keeping activations; remember the random state before each chunk.
2. Compute the loss on all vectors, and its gradient with respect to each vector.
3. Encode each chunk again from its random state and send its vectors' gradients back through the encoder.

A loss on token vectors (masked-language modelling) is a sum over texts: it is added chunk by chunk, in step 3.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from infocse_ray.distributed.collectives import all_reduce_max


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
    apart: Callable[[Callable[[], Any]], Any] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the gradients of `loss_of(vectors)` to the model's parameters, and to those that the loss itself has.

    Args:
        model: maps a chunk's inputs to vectors [b, d] and, where tokens were masked, their states [m, hidden];
            may be wrapped in DDP, whose all-reduce then happens once, in the last chunk's backward.
        chunks: of a batch of `count` texts; every text is in one.
        count: texts.
        loss_of: the loss on vectors [count, d], differentiable; may talk to other workers.
        autocast: makes the context that the encoder's forward runs in, in both passes.
        kept_tokens: a batch of at most so many tokens, padding included, is encoded once, activations kept.
        loss_of_tokens: a loss on the states of a chunk's masked tokens, to be added; talks to nobody.
        apart: calls what a worker computes without the others, which may fail, and returns what it gave once that went
            well on all of them. None: it doesn't fail.

    Returns:
        The loss and the vectors, detached.
    """
    device = next(model.parameters()).device
    chunks = chunks or [_no_rows(device)]
    many = len(chunks) > 1 and sum(chunk.inputs["input_ids"].numel() for chunk in chunks) > kept_tokens
    # Workers must agree, for DDP's forward may exchange something: here before the loss does, below after it.
    keep = not all_reduce_max(int(many), device)
    if keep and apart is None:
        return _plain_backward(model, chunks, loss_of, autocast, loss_of_tokens)
    wrapped = isinstance(model, DistributedDataParallel)
    inner: torch.nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
    if apart is None:
        apart, silent, exchanging = _call, chunks[:-1], chunks[-1:]
    else:
        # The chunk whose backward exchanges gradients has no text, so that it doesn't fail.
        silent, exchanging = chunks, [_no_rows(device)] if wrapped else []
    chunks = silent + exchanging
    encoded = apart(lambda: _encode_all(inner, chunks, autocast, keep))
    loss, vectors, gradient = _loss_and_gradient(encoded, chunks, loss_of)
    after = _RandomState(device)
    push = functools.partial(_push_gradient, model, gradient=gradient, autocast=autocast, loss_of_tokens=loss_of_tokens)
    with model.no_sync() if wrapped else contextlib.nullcontext():  # pyright: ignore[reportCallIssue]
        added = apart(lambda: [push(chunk, one, kept=keep) for chunk, one in zip(silent, encoded, strict=False)])
    added += [push(chunk, one, kept=False) for chunk, one in zip(exchanging, encoded[len(silent) :], strict=True)]
    after.restore()
    return sum(added, loss), vectors


class _Encoded(NamedTuple):
    """What step 1 has of a chunk."""

    random_state: _RandomState
    """Before it was encoded."""
    vectors: torch.Tensor
    """Float [b, d]."""
    states: torch.Tensor
    """Float [m, hidden], where tokens were masked; empty without the graph, for step 3 has them again."""


def _encode_all(
    model: torch.nn.Module, chunks: list[Chunk], autocast: Callable[[], Any], keep_graph: bool
) -> list[_Encoded]:
    """Step 1, without the graph. `keep_graph`: with it, where tokens are few; step 3 then doesn't encode again."""
    encoded = []
    with torch.set_grad_enabled(keep_graph), autocast():
        for chunk in chunks:
            before = _RandomState(chunk.rows.device)
            vectors, states = _encode(model, chunk)
            encoded.append(_Encoded(before, vectors, states if keep_graph else states[:0]))
    return encoded


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
    model: torch.nn.Module,
    chunks: list[Chunk],
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    autocast: Callable[[], Any],
    loss_of_tokens: Callable[[torch.Tensor, Chunk], torch.Tensor] | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What caching stands for, where all activations fit: one forward, one backward."""
    with autocast():
        encoded = [_encode(model, chunk) for chunk in chunks]
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
