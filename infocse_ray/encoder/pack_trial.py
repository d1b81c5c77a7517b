"""Whether an encoder can do without padding: tried on a few made-up sentences, once it is loaded.

1. The model, by a mask that says what is meant, in fp32: token vectors must be those of padding. A model that takes no
   notice of the bounds, or has positions of its own, is found out here.
2. The kernel alone, on random vectors, against that mask: a device or a precision that it doesn't do. One for training
   must have that mask's gradients, too.
"""

from __future__ import annotations

import numpy as np
import torch

from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.on_device import SentencesOnDevice
from infocse_ray.encoder.packing import Asked, ByLength, Kernel, by_block, by_flash_attention, by_mask, by_torch

_LONGEST = 160
"""Tokens: more than sliding windows have on each side."""
_KERNELS = (by_torch, by_flash_attention)
_OTHER = ((60, 1, 39),)
_SHORT = ((60, 1, 39), (30, 17, 1, 9), (16, 1, 5))
"""Tokens of the sentences of a trial: of each size of block."""


def model_packs(encoder: SentenceEncoder) -> bool:
    """Whether token vectors of packed sentences are those of padded ones.

    Args:
        encoder: in evaluation mode and in fp32.
    """
    if not getattr(encoder.backbone, "_supports_attention_backend", False):
        return False
    longest = min(encoder.room(), _LONGEST)
    lengths = np.array([longest, longest - longest // 3, longest // 2, 1, 0])
    config = encoder.backbone.config
    # Some models count their positions without the padding's id.
    usual = np.setdiff1d(np.arange(config.vocab_size), [encoder.pad_id, config.pad_token_id or 0])
    ids = np.random.default_rng(0).choice(usual, int(lengths.sum()))
    rows = np.arange(len(lengths))
    sentences = SentencesOnDevice(encoder, Tokens(ids, offsets_of(lengths)), rows)
    before, encoder.kernel = encoder.kernel, by_mask
    try:
        with torch.inference_mode():
            padded, packed = sentences.padded(0, len(rows)), sentences.packed(0, len(rows))
            expected = encoder.hidden(*padded)[padded.attention_mask.bool()]
            found = encoder.hidden_packed(packed)[padded.attention_mask.bool()]
    except Exception:  # whatever a model says to arguments that it doesn't know
        return False
    finally:
        encoder.kernel = before
    return bool(((found - expected).norm(dim=1) <= 1e-3 * expected.norm(dim=1)).all())


def device_kernel(encoder: SentenceEncoder, device: torch.device, dtype: torch.dtype) -> Kernel | None:
    """What embeds with an encoder that packs, on the device; None: there is no kernel that does its part there."""
    trial = _Trial(encoder, device, dtype)
    other = next((kernel for kernel in _KERNELS if trial.passed(kernel, _OTHER)), None)
    if other is None or not trial.passed(by_block, _SHORT):
        return other
    return ByLength(by_block, other)


def training_kernel(encoder: SentenceEncoder, device: torch.device, dtype: torch.dtype) -> Kernel | None:
    """What trains an encoder on short sentences without padding, on the device; None: nothing does.

    Args:
        encoder: on any device, in fp32.
        device: a GPU; others pad.
        dtype: that attention computes in.
    """
    if device.type != "cuda" or dtype == torch.float32:
        return None
    before = encoder.training
    try:
        packs = model_packs(encoder.eval())
    finally:
        encoder.train(before)
    return by_block if packs and _Trial(encoder, device, dtype).passed(by_block, _SHORT, gradients=True) else None


class _Trial:
    """Random vectors of an encoder's shape."""

    def __init__(self, encoder: SentenceEncoder, device: torch.device, dtype: torch.dtype) -> None:
        config = encoder.backbone.config
        self._heads = config.num_attention_heads
        self._size = getattr(config, "head_dim", None) or config.hidden_size // self._heads
        reaches = (-1,) if getattr(config, "sliding_window", None) is None else (-1, 8)
        causal = {bool(one.is_causal) for one in encoder.backbone.modules() if hasattr(one, "is_causal")} or {False}
        self._windows = [(reach, 0 if ahead_unseen else reach) for reach in reaches for ahead_unseen in causal]
        self._device, self._dtype = device, dtype

    def passed(self, kernel: Kernel, cases: tuple[tuple[int, ...], ...], gradients: bool = False) -> bool:
        """Whether a kernel does what the mask says, on sentences of so many tokens."""
        try:
            return all(self._as_masked(kernel, case, window, gradients) for case in cases for window in self._windows)
        except Exception:  # not installed, or whatever it says to this device
            return False

    def _as_masked(self, kernel: Kernel, lengths: tuple[int, ...], window: tuple[int, int], gradients: bool) -> bool:
        bounds = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=self._device)
        draw = torch.Generator().manual_seed(0)
        given = torch.randn(4, sum(lengths), self._heads, self._size, generator=draw).to(self._device, self._dtype)
        if gradients:  # dropout is other code, whose result is chance's
            with torch.random.fork_rng([self._device] if self._device.type == "cuda" else []):
                dropped = self._results(kernel, given, bounds, max(lengths), window, True, 0.1)
            if not all(bool(one.isfinite().all()) for one in dropped):
                return False
        found, expected = (
            self._results(one, given, bounds, max(lengths), window, gradients) for one in (kernel, by_mask)
        )
        return all(bool((a.float() - b.float()).abs().max() < 0.05) for a, b in zip(found, expected, strict=True))

    def _results(
        self,
        kernel: Kernel,
        given: torch.Tensor,
        bounds: torch.Tensor,
        longest: int,
        window: tuple[int, int],
        gradients: bool,
        dropout: float = 0.0,
    ) -> list[torch.Tensor]:
        """What comes out and, where they are asked for, the gradients of what goes in."""
        with torch.set_grad_enabled(gradients):
            inputs = [one.clone().requires_grad_(gradients) for one in given[:3]]
            out = kernel(
                Asked(*inputs, bounds=bounds, longest=longest, scale=self._size**-0.5, window=window, dropout=dropout)
            )
            return [out, *(torch.autograd.grad(out, inputs, given[3]) if gradients else ())]
