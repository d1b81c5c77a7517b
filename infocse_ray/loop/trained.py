"""What a training came to by itself: where its start may be what it returns, the score of that tells no two apart."""

from __future__ import annotations

from typing import Any


def trained_score(entry: dict[str, Any], metric: str) -> float:
    """The best validation score of the weights that an iteration trained, those between its start and these among them.

    Args:
        entry: what `metrics.json` says of the iteration.
        metric: such as `mrr`.

    Returns:
        That of its `validation`, where nothing was trained.
    """
    trained = [*entry.get("history", [])[1:], *((entry.get("train") or {}).get("between") or [])]
    return max((one[metric] for one in trained), default=entry["validation"][metric])
