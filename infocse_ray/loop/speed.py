"""How fast a cluster embeds and trains, as a run finds out while it does."""

from __future__ import annotations

from typing import NamedTuple


class Speed(NamedTuple):
    """Measured speed of a cluster."""

    tokens_per_second: float
    """Embedded, padding not counted, by all workers of `annotate`."""
    start_seconds: float
    """Until workers are at work."""
    trained_per_second: float | None = None
    """Tokens trained on, by all workers of `train`; None: nothing was trained yet."""


def speed_of(tokens: float, busy: float, actors: int, took: float) -> Speed:
    """The speed of so many actors that embedded `tokens` in `busy` seconds of all of them, `took` with their start."""
    return Speed(max(tokens, 1) / max(busy, 1e-3) * actors, max(took - busy / actors, 0.0))
