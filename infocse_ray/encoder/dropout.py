"""An encoder's dropout: that of its layers, and rates that attention and others keep as numbers."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from infocse_ray.encoder.model import SentenceEncoder

_NUMBERS = ("attention_dropout", "dropout")
"""What they are called where there is no layer: in ModernBERT's attention and EuroBERT's, in XLM."""


def set_dropout(encoder: SentenceEncoder, rate: float) -> None:
    """Set every dropout rate of an encoder."""
    for module, name in _rates(encoder):
        setattr(module, name, rate)


def can_drop(encoder: SentenceEncoder) -> bool:
    """Whether dropout changes an encoder's vectors: tried, for a number may be read by nobody."""
    before = [(module, name, getattr(module, name)) for module, name in _rates(encoder)]
    training, ids = encoder.training, torch.arange(4, device=encoder.device)[None]
    set_dropout(encoder.train(), 0.5)
    try:
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            first, second = (encoder.hidden(ids, torch.ones_like(ids)) for _ in range(2))
    finally:
        encoder.train(training)
        for module, name, rate in before:
            setattr(module, name, rate)
    return not torch.equal(first, second)


def _rates(encoder: SentenceEncoder) -> Iterator[tuple[torch.nn.Module, str]]:
    """Modules, each with the name of a rate that it has."""
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            yield module, "p"
        for name in _NUMBERS:
            if isinstance(getattr(module, name, None), (int, float)):
                yield module, name
