"""Sentences one after another in one sequence, each attending to itself only: a forward pass without padding.

1. transformers hands the bounds of the sentences to the attention function that it is told to use; this one.
2. That is torch's variable-length attention, or flash-attention's where only that is installed; of short sentences
   this library's own (`short_attention.py`), which alone has dropout and so serves training.
3. Whether a model and a device do it is tried (`pack_trial.py`): what comes out must be what padding gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from infocse_ray.encoder.kernels import attending

_NAME = "infocse_packed"


class Asked(NamedTuple):
    """What an attention kernel is asked for."""

    query: torch.Tensor
    """[tokens, heads, d], of all sentences one after the other."""
    key: torch.Tensor
    """Likewise."""
    value: torch.Tensor
    """Likewise."""
    bounds: torch.Tensor
    """int32 [b + 1]; sentence i is the tokens bounds[i]:bounds[i + 1]."""
    longest: int
    """Tokens of the longest sentence."""
    scale: float | None
    """None: 1 / sqrt(d)."""
    window: tuple[int, int]
    """How far back and ahead a token sees; -1: without limit."""
    dropout: float = 0.0
    """Share of the weights that is set to 0."""


Kernel = Callable[[Asked], torch.Tensor]
"""Every token's attention to its sentence, [tokens, heads, d]."""


class Packed(NamedTuple):
    """Sentences one after another."""

    input_ids: torch.Tensor
    """int64 [1, tokens]."""
    position_ids: torch.Tensor
    """int64 [1, tokens], each token's place in its sentence, from 0."""
    bounds: torch.Tensor
    """int32 [b + 1]; sentence i is the tokens bounds[i]:bounds[i + 1]."""
    longest: int
    """Tokens of the longest sentence."""
    back: torch.Tensor
    """int64 [b, longest], where each token of a padded batch lies among these; of padding, any of its sentence's."""
    attention_mask: torch.Tensor
    """int64 [b, longest], of that padded batch."""


def by_mask(asked: Asked) -> torch.Tensor:
    """The `Kernel` that says what the others compute: a mask over all pairs of tokens. For a few tokens."""
    token = torch.arange(len(asked.query), device=asked.query.device)
    sentence = torch.bucketize(token, asked.bounds[1:], right=True)
    ahead = token - token[:, None]
    mask = sentence == sentence[:, None]
    for reach, distance in zip(asked.window, (-ahead, ahead), strict=True):
        if reach >= 0:
            mask &= distance <= reach
    heads = (tensor.transpose(0, 1)[None] for tensor in (asked.query, asked.key, asked.value))
    attended = torch.nn.functional.scaled_dot_product_attention(
        *heads, attn_mask=mask, dropout_p=asked.dropout, scale=asked.scale
    )
    return attended[0].transpose(0, 1)


SHORT = 64
"""Tokens of a sentence that `by_block` takes at most: of a longer one the block would not fit into registers."""
WIDE = 128
"""Elements of a head that it takes at most, likewise."""


def by_block(asked: Asked) -> torch.Tensor:
    """The `Kernel` of this library for GPUs, for sentences of at most SHORT tokens; has dropout.

    Raises:
        ValueError: a sentence or a head is longer than it takes.
    """
    if asked.longest > SHORT or asked.query.shape[-1] > WIDE:
        raise ValueError(f"sentences of {asked.longest} tokens, heads of {asked.query.shape[-1]} elements")
    from infocse_ray.encoder.short_attention import attend

    return attend(asked)


class ByLength:
    """The `Kernel` that is one of two, by whether the longest sentence is short."""

    def __init__(self, short: Kernel, other: Kernel) -> None:
        """Name both."""
        self.short, self.other = short, other
        self.__name__ = f"{short.__name__}, {other.__name__}"

    def __call__(self, asked: Asked) -> torch.Tensor:
        """As the one that is asked."""
        return (self.short if asked.longest <= SHORT else self.other)(asked)


def by_torch(asked: Asked) -> torch.Tensor:
    """The `Kernel` that torch has for GPUs, since 2.10."""
    from torch.nn.attention.varlen import varlen_attn

    query, key, value, bounds, longest, scale, window, dropout = asked
    if dropout:
        raise ValueError("torch's attention to packed sentences has no dropout")
    # Older ones don't take what isn't asked for here.
    given: dict[str, Any] = {"window_size": window} if window != (-1, -1) else {}
    if scale is not None and abs(scale - query.shape[-1] ** -0.5) > 1e-9:
        given["scale"] = scale
    return cast(torch.Tensor, varlen_attn(query, key, value, bounds, bounds, longest, longest, **given))


def by_flash_attention(asked: Asked) -> torch.Tensor:
    """The `Kernel` of the package flash-attn."""
    from flash_attn import flash_attn_varlen_func  # pyright: ignore[reportMissingImports]

    query, key, value, bounds, longest, scale, window, dropout = asked
    return flash_attn_varlen_func(
        query, key, value, bounds, bounds, longest, longest, dropout_p=dropout, softmax_scale=scale, window_size=window
    )


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    packed: tuple[Kernel, torch.Tensor, int] | None = None,
    position_bias: torch.Tensor | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function as transformers calls it: [1, heads, tokens, d] -> [1, tokens, heads, d].

    Keys and values may have fewer heads, each for as many of queries that follow one another.
    """
    unknown = any(one is not None for one in (attention_mask, position_bias, softcap, s_aux))
    if packed is None or unknown or value.shape != key.shape or key.shape[2:] != query.shape[2:]:
        raise ValueError(f"{type(module).__name__} can't attend to packed sentences")
    kernel, bounds, longest = packed
    # Theirs counts the token itself.
    reach = -1 if sliding_window is None else sliding_window - 1
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    window = (reach, 0 if causal else reach)
    # Under autocast torch's own attention takes all three to one type; what a rotary embedding made is often fp32.
    device = query.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else value.dtype
    # Not tensor[0], whose gradient is a copy into zeros.
    query, key, value = (tensor.to(dtype).squeeze(0).transpose(0, 1) for tensor in (query, key, value))
    if (times := query.shape[1] // key.shape[1]) > 1:
        key, value = (tensor.repeat_interleave(times, 1) for tensor in (key, value))
    return kernel(Asked(query, key, value, bounds, longest, scaling, window, dropout))[None], None


ALL_ATTENTION_FUNCTIONS.register(_NAME, _attend)


def packed_hidden(backbone: Any, packed: Packed, first_position: int, kernel: Kernel) -> torch.Tensor:
    """Token vectors of packed sentences, as a padded batch, [b, longest, d]; those of padding mean nothing.

    Args:
        backbone: a transformers encoder.
        packed: the sentences.
        first_position: what the backbone calls the place of a first token.
        kernel: of its attention.
    """
    with attending(backbone.config, _NAME):
        hidden = backbone(
            input_ids=packed.input_ids,
            position_ids=packed.position_ids + first_position,
            packed=(kernel, packed.bounds, packed.longest),
        ).last_hidden_state[0]
    return hidden[packed.back]
