"""What may be put behind an encoder's sentence vectors: a whitening, or nothing.

Encoders that differ in nothing else embed a sentence once for all of them.
"""

from __future__ import annotations

import torch

from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.whitening import Whitening

Map = Whitening | None
"""None: vectors as the encoder gives them."""


def under(one: Map, vectors: torch.Tensor) -> torch.Tensor:
    """float32 [n, d_out], of an encoder's vectors, float32 [n, d]."""
    return vectors if one is None else one(vectors)


def width_under(encoder: SentenceEncoder, one: Map) -> int:
    """d_out."""
    return encoder.dimension if one is None else one.dimension


def normalized(encoder: SentenceEncoder, one: Map) -> bool:
    """Whether vectors have length 1 then."""
    return encoder.normalize or one is not None
