"""Gradient caching (GradCache, Gao et al. 2021): batches of any size in the memory of one chunk, exactly.

1. Encode the batch chunk by chunk without keeping activations; remember the random state before each chunk.
2. Compute the loss on all vectors, and its gradient with respect to each vector.
3. Encode each chunk again from its random state and send its vectors' gradients back through the encoder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from infocse_ray.collective import largest
from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.embed import length_buckets
from infocse_ray.encoder.model import SentenceEncoder


class Chunk(NamedTuple):
    """Some of a batch's sentences, padded to one length."""

    rows: torch.Tensor
    """int64 [b], which sentences of the batch."""
    input_ids: torch.Tensor
    attention_mask: torch.Tensor


def chunks_of(encoder: SentenceEncoder, tokens: Tokens, chunk_tokens: int) -> list[Chunk]:
    """Cut sentences, sorted by length, into chunks of at most `chunk_tokens` tokens with padding."""
    device = encoder.device
    return [
        Chunk(torch.from_numpy(rows).to(device), *(t.to(device) for t in encoder.pad(tokens.take(rows))))
        for rows in length_buckets(encoder.lengths(tokens), chunk_tokens)
    ]


def backward(
    model: torch.nn.Module,
    chunks: list[Chunk],
    count: int,
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    autocast: Callable[[], Any] = contextlib.nullcontext,
    kept_tokens: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the gradients of `loss_of(vectors)` to the model's parameters.

    Args:
        model: maps `input_ids`, `attention_mask` to vectors [b, d]; may be wrapped in DDP, whose all-reduce then
            happens once, in the last chunk's backward.
        chunks: of a batch of `count` sentences; every sentence is in one.
        count: sentences.
        loss_of: the loss on vectors [count, d], differentiable; may talk to other workers.
        autocast: makes the context that the encoder's forward runs in, in both passes.
        kept_tokens: a batch of at most so many tokens, padding included, is encoded once, activations kept.

    Returns:
        The loss and the vectors, detached.
    """
    device = next(model.parameters()).device
    chunks = chunks or [_no_rows(device)]
    inverse = _inverse(torch.cat([chunk.rows for chunk in chunks]))
    many = len(chunks) > 1 and sum(chunk.input_ids.numel() for chunk in chunks) > kept_tokens
    # Workers must agree, for DDP's forward may exchange something: here before the loss does, below after it.
    if not largest(int(many), device):
        with autocast():
            out = torch.cat([_encode(model, chunk) for chunk in chunks])
        vectors = out[inverse]
        loss = loss_of(vectors)
        loss.backward()
        return loss.detach(), vectors.detach()
    plain = model.module if isinstance(model, DistributedDataParallel) else model
    states, parts = [], []
    with torch.no_grad(), autocast():
        for chunk in chunks:
            states.append(_RandomState(chunk.input_ids.device))
            parts.append(_encode(plain, chunk))
    vectors = torch.cat(parts)[inverse].requires_grad_()
    loss = loss_of(vectors)
    loss.backward()
    gradient = vectors.grad
    assert gradient is not None
    after = _RandomState(vectors.device)
    for i, (chunk, state) in enumerate(zip(chunks, states, strict=True)):
        wait = isinstance(model, DistributedDataParallel) and i < len(chunks) - 1
        with model.no_sync() if wait else contextlib.nullcontext():  # pyright: ignore[reportCallIssue]
            state.restore()
            with autocast():
                out = _encode(model, chunk)
            out.backward(gradient[chunk.rows])
    after.restore()
    return loss.detach(), vectors.detach()


def _no_rows(device: torch.device) -> Chunk:
    """What a worker without a row of the batch encodes, to take part in every exchange."""
    ids = torch.zeros(1, 4, dtype=torch.int64, device=device)
    return Chunk(ids[0, :0], ids, torch.ones_like(ids))


def _encode(model: torch.nn.Module, chunk: Chunk) -> torch.Tensor:
    return model(chunk.input_ids, chunk.attention_mask)[: len(chunk.rows)]


def _inverse(permutation: torch.Tensor) -> torch.Tensor:
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
