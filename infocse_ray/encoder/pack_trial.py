"""Whether an encoder can do without padding: tried on a few made-up sentences, once it is loaded.

1. The model, by a mask that says what is meant, in fp32: token vectors must be those of padding. A model that takes no
   notice of the bounds, or has positions of its own, is found out here.
2. The kernel alone, on random vectors, against that mask: a device or a precision that it doesn't do.
"""

from __future__ import annotations

import numpy as np
import torch

from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.on_device import SentencesOnDevice
from infocse_ray.encoder.packing import Asked, Kernel, by_flash_attention, by_mask, by_torch

_LONGEST = 160
"""Tokens: more than sliding windows have on each side."""
_KERNELS = (by_torch, by_flash_attention)


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
    """The first kernel that does its part on the device, for an encoder that packs; None: there is none."""
    config = encoder.backbone.config
    size = config.hidden_size // config.num_attention_heads
    draw = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 100, config.num_attention_heads, size, generator=draw).to(device, dtype)
    bounds = torch.tensor([0, 60, 61, 100], dtype=torch.int32, device=device)
    windows = [(-1, -1)] if getattr(config, "sliding_window", None) is None else [(-1, -1), (8, 8)]
    for kernel in _KERNELS:
        try:
            with torch.inference_mode():
                for window in windows:
                    asked = Asked(query, key, value, bounds, 60, size**-0.5, window)
                    difference = (kernel(asked).float() - by_mask(asked).float()).abs().max()
                    if not difference < 0.05:
                        break
                else:
                    return kernel
        except Exception:  # not installed, or whatever it says to this device
            continue
    return None
