"""How a backbone attends on GPUs where sentences are padded: by which of torch's kernels, and without a wait."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

_NAME = "infocse_padded"
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


ALL_ATTENTION_FUNCTIONS.register(_NAME, ALL_ATTENTION_FUNCTIONS["sdpa"])
ALL_MASK_ATTENTION_FUNCTIONS.register(_NAME, _mask)
