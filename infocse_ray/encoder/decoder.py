"""The decoder that transformers has of an encoder's kind: it writes a text, and reads vectors by cross-attention."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import AutoModelForCausalLM


def decoder_config(config: Any) -> Any:
    """The configuration of the decoder of a backbone with this one; without dropout, so that chunks change nothing."""
    changed = copy.deepcopy(config)
    changed.update({"is_decoder": True, "add_cross_attention": True, "use_cache": False})
    changed.update({"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    return changed


def can_decode(config: Any) -> bool:
    """Whether transformers has a decoder with cross-attention for a backbone with this configuration."""
    small = decoder_config(config)
    small.num_hidden_layers = 1
    try:
        with torch.device("meta"):
            decoder = AutoModelForCausalLM.from_config(small)
    except (ValueError, TypeError, AttributeError):
        return False
    return any("crossattention" in name for name, _ in decoder.named_parameters())
