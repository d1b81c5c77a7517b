"""How a backbone attends: on GPUs by which of torch's kernels, and without a wait; in a graph by a finite mask."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

_NAME = "infocse_padded"
_IN_A_GRAPH = "infocse_graph"
_WAITED_FOR = ("cuda",)
"""Kinds of devices that are behind what the host has asked of them."""


def leave_out_cudnn_attention(device: torch.device) -> None:
    """Take cuDNN's kernel out of this process's choice, where the device is a GPU.

    torch prefers it on H100s where its cuDNN is recent, and it plans each shape that it hasn't seen, for hundreds of
    milliseconds: batches cut by length are of ever new ones. It may round dropout's probability, too. What is left,
    flash and memory-efficient attention, takes any shape as it comes.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


def without_a_look(config: Any, device: torch.device) -> contextlib.AbstractContextManager[None]:
    """While it lasts, torch's attention is given its mask unseen, where the device is a GPU.

    transformers leaves the mask out where nothing is padded, or it only says that a text is read from left to right. To
    see that, the host waits until the GPU has done all that it was asked to, in every batch.

    Args:
        config: of a transformers encoder.
        device: that the batch is on.
    """
    if device.type in _WAITED_FOR and config._attn_implementation == "sdpa":
        return attending(config, _NAME)
    return contextlib.nullcontext()


def with_finite_masks(config: Any) -> contextlib.AbstractContextManager[None]:
    """While it lasts, what isn't attended to gets a low number in torch's attention, not minus infinity.

    What a token may not attend to is told by a mask. Where texts are padded by more than the window of a backbone that
    attends to what is near (ModernBERT), padding may attend to nothing: torch makes zeros of that, and OpenVINO
    0 / 0, which the next layer has in the vectors of the text.

    Args:
        config: of a transformers encoder.
    """
    return attending(config, _IN_A_GRAPH) if config._attn_implementation == "sdpa" else contextlib.nullcontext()


@contextlib.contextmanager
def attending(config: Any, name: str) -> Iterator[None]:
    """While it lasts, an encoder attends by the function that transformers knows by this name."""
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


def _mask(*arguments: Any, **named: Any) -> torch.Tensor | None:
    return sdpa_mask(*arguments, **{**named, "allow_is_bidirectional_skip": False, "allow_is_causal_skip": False})


def _finite_mask(*arguments: Any, **named: Any) -> torch.Tensor | None:
    mask = sdpa_mask(*arguments, **named)
    # Of 16 bits: a lower number would be minus infinity to a graph that computes in them.
    return None if mask is None else torch.where(mask, 0.0, torch.finfo(torch.float16).min)


ALL_ATTENTION_FUNCTIONS.register(_NAME, ALL_ATTENTION_FUNCTIONS["sdpa"])
ALL_MASK_ATTENTION_FUNCTIONS.register(_NAME, _mask)
ALL_ATTENTION_FUNCTIONS.register(_IN_A_GRAPH, ALL_ATTENTION_FUNCTIONS["sdpa"])
ALL_MASK_ATTENTION_FUNCTIONS.register(_IN_A_GRAPH, _finite_mask)
