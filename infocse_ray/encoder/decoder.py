"""The decoder that transformers has of an encoder's kind: it writes a text, and reads vectors by cross-attention."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import AutoModelForCausalLM

_FEW = 8
"""Tokens of the vocabulary of a decoder that is only tried, and the width of its heads."""


def decoder_config(config: Any) -> Any:
    """The configuration of the decoder of a backbone with this one; without dropout, so that chunks change nothing."""
    changed = copy.deepcopy(config)
    changed.update({"is_decoder": True, "add_cross_attention": True, "use_cache": False})
    changed.update({"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    return changed


def can_decode(config: Any) -> bool:
    """Whether transformers has a decoder with cross-attention for a backbone with this configuration.

    One layer of it is tried: of some kinds there is one that fails at texts that are longer than what they read.
    """
    small = decoder_config(config)
    small.update({"num_hidden_layers": 1, "vocab_size": _FEW, "pad_token_id": min(config.pad_token_id or 0, _FEW - 1)})
    if heads := getattr(config, "num_attention_heads", None):
        small.update({"hidden_size": _FEW * heads, "intermediate_size": _FEW})
    ids = torch.full((2, 3), _FEW - 2)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            decoder = AutoModelForCausalLM.from_config(small)
            if not any("crossattention" in name for name, _ in decoder.named_parameters()):
                return False
            read = torch.zeros(2, 1, small.hidden_size)
            decoder(input_ids=ids, attention_mask=torch.ones_like(ids), encoder_hidden_states=read)
    except (ValueError, TypeError, AttributeError, RuntimeError):
        return False
    return True
