"""The numbers and words that are shown of stages, of settings and of a finished run, by name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from infocse_ray.settings import Settings
from infocse_ray.stages.metrics import scores_of
from infocse_ray.storage.redact import redacted_json

_BY_SPLIT_OR_REASON = ("documents", "labelled", "rejected", "leaks")
_NO_QUANTITY = {"last"}
"""Numbers that are none of anything: a hash."""


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """The values that can be drawn."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def plain(name: str) -> str:
    """A name that every sink takes: `recall_at_5` for `recall@5`; reasons why rows are bad are words with commas."""
    return re.sub(r"[^\w./ -]", "_", name.replace("@", "_at_"))


def summary_values(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a stage's summary, by the name of their curve."""
    values: dict[str, float] = {}
    for name, value in summary.items():
        shown = "bad_rows" if name == "rejected" else name
        if isinstance(value, Mapping) and name in _BY_SPLIT_OR_REASON:
            values[shown] = float(sum(value.values()))
            values |= {f"{shown}/{key}": float(count) for key, count in value.items()}
        elif name == "metrics":
            values |= {key: float(score) for key, score in value.items()}
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and name not in _NO_QUANTITY:
            values[shown] = float(value)
    if padded := summary.get("padded_tokens"):
        values["padding_share"] = 1.0 - summary["tokens"] / padded
    return values


def settings_tree(settings: Settings) -> dict[str, Any]:
    """All settings but where the run is shown, without the credentials that URIs in them have."""
    return redacted_json(settings.model_dump(mode="json", exclude={"tracking"}))


def final_scores(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Scores of the encoders that a run is judged by, such as `result/test/recall@5`, and which round was best.

    Args:
        metrics: the content of `metrics.json`.
    """
    found: dict[str, float] = {}
    for encoder in ("start", "whitened", "result"):
        for split in ("validation", "test"):
            scores = scores_of(metrics.get(encoder, {}).get(split, {}))
            found |= {f"{encoder}/{split}/{name}": score for name, score in scores.items()}
    found |= {f"{encoder}/sts": score for encoder, score in metrics.get("sts", {}).items()}
    return found | {name: float(metrics[name]) for name in ("best_iteration", "best_round") if name in metrics}


def verdict_words(metrics: Mapping[str, Any]) -> dict[str, str]:
    """The verdict: its label, such as WIN, and the line that a run ends with."""
    verdict = metrics.get("verdict", {})
    return {f"verdict{suffix}": verdict[key] for key, suffix in (("label", ""), ("line", "_line")) if key in verdict}
