"""How much arithmetic an encoder does, by its configuration alone."""

from __future__ import annotations

import math

from infocse_ray.encoder.checkpoint import EncoderFolder


def operations_a_token(encoder: EncoderFolder) -> float:
    """Multiplications and additions of a forward pass for each token, but for attention; infinity: nobody knows."""
    place = encoder.folder / "config.json"
    config = place.read_json() if place.exists() else {}
    try:
        hidden, layers, between = (config[n] for n in ("hidden_size", "num_hidden_layers", "intermediate_size"))
        return 2.0 * layers * (4 * hidden**2 + 2 * hidden * between)
    except (KeyError, TypeError):  # one that is null, or one for each layer
        return math.inf
