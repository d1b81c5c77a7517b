"""Attention inside short sentences that lie one after another, as kernels for a GPU.

Kernels for long sequences work through one in blocks of 64 or 128 tokens: of a sentence of 20 tokens most of a block is
nothing, and so is most of what they do. Here a sentence is one block, of the power of two above its tokens, for each
head: everything about it is in registers, forward and backward.

Imported where there is a GPU, as torch brings Triton there.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

from infocse_ray.encoder.packing import SHORT, Asked


def _jit(function: Any) -> Any:
    """Triton's, which a type checker knows nothing of."""
    return triton.jit(function)


@_jit
def _block(tensor, begin, length, LENGTH: tl.constexpr, SIZE: tl.constexpr, HEAD: tl.constexpr, heads):
    """A sentence's rows of a head, [LENGTH, SIZE], 0 behind its last token and behind the head's HEAD elements."""
    row, column = tl.arange(0, LENGTH)[:, None], tl.arange(0, SIZE)[None, :]
    place = ((begin + row) * heads + tl.program_id(1)) * HEAD + column
    return tl.load(tensor + place, mask=(row < length) & (column < HEAD), other=0.0)


@_jit
def _put(tensor, values, begin, length, LENGTH: tl.constexpr, SIZE: tl.constexpr, HEAD: tl.constexpr, heads):
    row, column = tl.arange(0, LENGTH)[:, None], tl.arange(0, SIZE)[None, :]
    place = ((begin + row) * heads + tl.program_id(1)) * HEAD + column
    tl.store(tensor + place, values.to(tensor.dtype.element_ty), mask=(row < length) & (column < HEAD))


@_jit
def _weights(query, key, length, scale, back, ahead, LENGTH: tl.constexpr):
    """Softmax of the scaled products, float32 [LENGTH, LENGTH]."""
    row, column = tl.arange(0, LENGTH)[:, None], tl.arange(0, LENGTH)[None, :]
    seen = (column < length) & (row - column <= back) & (column - row <= ahead)
    # Not -inf: where a row behind the last token sees nothing, its differences must be numbers.
    score = tl.where(seen, tl.dot(query, tl.trans(key)) * scale, -1e30)
    weight = tl.exp(score - tl.max(score, 1)[:, None])
    return weight / tl.sum(weight, 1)[:, None]


@_jit
def _kept(seed, begin, heads, rate, LENGTH: tl.constexpr):
    """What dropout leaves, bool [LENGTH, LENGTH], by the places of token, head and other token."""
    row, column = tl.arange(0, LENGTH)[:, None], tl.arange(0, LENGTH)[None, :]
    place = ((begin + row) * heads + tl.program_id(1)) * LENGTH + column
    return tl.rand(tl.load(seed), place.to(tl.int32)) >= rate


@_jit
def _sentence(
    query, key, value, bounds, scale, back, ahead,
    LENGTH: tl.constexpr, SIZE: tl.constexpr, HEAD: tl.constexpr, heads,
):  # fmt: skip
    """Where a sentence begins, its tokens, and of a head its queries, keys, values and weights."""
    begin = tl.load(bounds + tl.program_id(0)).to(tl.int64)
    length = (tl.load(bounds + tl.program_id(0) + 1) - begin).to(tl.int32)
    q = _block(query, begin, length, LENGTH, SIZE, HEAD, heads)
    k = _block(key, begin, length, LENGTH, SIZE, HEAD, heads)
    v = _block(value, begin, length, LENGTH, SIZE, HEAD, heads)
    return begin, length, q, k, v, _weights(q, k, length, scale, back, ahead, LENGTH)


@_jit
def _forward(
    query, key, value, out, bounds, seed, scale, back, ahead, rate, heads,
    LENGTH: tl.constexpr, SIZE: tl.constexpr, HEAD: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    begin, length, _q, _k, v, weight = _sentence(
        query, key, value, bounds, scale, back, ahead, LENGTH, SIZE, HEAD, heads
    )
    if DROPS:
        weight = tl.where(_kept(seed, begin, heads, rate, LENGTH), weight / (1 - rate), 0.0)
    _put(out, tl.dot(weight.to(v.dtype), v), begin, length, LENGTH, SIZE, HEAD, heads)


@_jit
def _backward(
    query, key, value, gradient, of_query, of_key, of_value, bounds, seed, scale, back, ahead, rate, heads,
    LENGTH: tl.constexpr, SIZE: tl.constexpr, HEAD: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    begin, length, q, k, v, weight = _sentence(query, key, value, bounds, scale, back, ahead, LENGTH, SIZE, HEAD, heads)
    g = _block(gradient, begin, length, LENGTH, SIZE, HEAD, heads)
    of_weight = tl.dot(g, tl.trans(v))
    dropped = weight
    if DROPS:
        kept = _kept(seed, begin, heads, rate, LENGTH)
        dropped = tl.where(kept, weight / (1 - rate), 0.0)
        of_weight = tl.where(kept, of_weight / (1 - rate), 0.0)
    of_score = weight * (of_weight - tl.sum(weight * of_weight, 1)[:, None]) * scale
    of_score = of_score.to(q.dtype)
    _put(of_query, tl.dot(of_score, k), begin, length, LENGTH, SIZE, HEAD, heads)
    _put(of_key, tl.dot(tl.trans(of_score), q), begin, length, LENGTH, SIZE, HEAD, heads)
    _put(of_value, tl.dot(tl.trans(dropped.to(g.dtype)), g), begin, length, LENGTH, SIZE, HEAD, heads)


class _Shape:
    """What both kernels are launched with."""

    def __init__(self, asked: Asked) -> None:
        heads, size = asked.query.shape[1:]
        self.grid = (len(asked.bounds) - 1, heads)
        reach = [SHORT if one < 0 else one for one in asked.window]
        self.scalars = (size**-0.5 if asked.scale is None else asked.scale, *reach, asked.dropout, heads)
        length = max(16, triton.next_power_of_2(asked.longest))
        # A product of blocks has 16 rows and columns at least.
        width = max(16, triton.next_power_of_2(size))
        self.constants: dict[str, Any] = {"LENGTH": length, "SIZE": width, "HEAD": size, "DROPS": asked.dropout > 0}
        self.constants["num_warps"] = 4 if length > 32 else 1


class _Attention(torch.autograd.Function):
    """Attention with a gradient."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, asked: Asked) -> torch.Tensor:
        """As `attend`; the first three are those of `asked`, whose gradients are asked for."""
        query, key, value = (one.contiguous() for one in (query, key, value))
        bounds, shape = asked.bounds, _Shape(asked)
        # Drawn where it is used, from the generator whose state gradient caching brings back.
        seed = torch.randint(2**31 - 1, (1,), device=query.device) if asked.dropout else bounds
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        _forward[shape.grid](query, key, value, out, bounds, seed, *shape.scalars, **shape.constants)
        ctx.save_for_backward(query, key, value, bounds, seed)
        ctx.shape = shape
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of query, key and value, [tokens, heads, d] each."""
        query, key, value, bounds, seed = ctx.saved_tensors
        out = [torch.empty(query.shape, dtype=query.dtype, device=query.device) for _ in range(3)]
        _backward[ctx.shape.grid](
            query, key, value, gradients[0].contiguous(), *out, bounds, seed, *ctx.shape.scalars, **ctx.shape.constants
        )
        return *out, None


def attend(asked: Asked) -> torch.Tensor:
    """The `Kernel`: every token's attention to its sentence, [tokens, heads, d], differentiable; see `by_block`."""
    return _Attention.apply(asked.query, asked.key, asked.value, asked)  # pyright: ignore
