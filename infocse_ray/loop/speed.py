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


def speed_of(tokens: float, busy: float, actors: int, took: float, times: float = 1.0) -> Speed:
    """The speed of all workers, by some.

    Args:
        tokens: that these embedded.
        busy: seconds that embedding took, of all of them together.
        actors: how many they are.
        took: seconds until all was done, with their start.
        times: what they have, all workers have so many times.
    """
    return Speed(max(tokens, 1) / max(busy, 1e-3) * actors * times, max(took - busy / actors, 0.0))
