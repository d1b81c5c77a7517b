"""Runs to show: settings, and a progress board that hands points on at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from infocse_ray.settings import Settings
from infocse_ray.stages.metrics import Begun, Points
from infocse_ray.stages.stage import Stage
from infocse_ray.tracking.tracking import Tracking


def settings_for(*sinks: str, **more: Any) -> Settings:
    """Of a run that is shown to `sinks`."""
    tracking = {"sinks": list(sinks), **more.pop("tracking", {})}
    needed = {"name": "news", "corpus": {"source": "a"}, "encoder": {"model": "m"}}
    return Settings.model_validate(needed | {"tracking": tracking} | more)


class PointsTo:
    """In place of a progress board's handle."""

    def __init__(self, show: Callable[[Any], None]) -> None:
        def remote(points: list[Any]) -> None:
            for point in points:
                show(point)

        self.points = SimpleNamespace(remote=remote)


HISTORY = [{"step": step, "recall@5": 0.5 + step / 100, "mrr": 0.25, "queries": 9} for step in (0, 10)]
METRICS = {
    "start": {"validation": {"recall@5": 0.25, "mrr": 0.125, "recall@5_low": 0.1}},
    "result": {"validation": {"recall@5": 0.5, "mrr": 0.25}},
    "best_iteration": 1,
    "verdict": {"label": "WIN", "line": "WIN, against the encoder as it came"},
}


def show_training(tracking: Tracking, stage: Stage, steps: range, ends: bool = True) -> None:
    """Steps of iteration 1's training, with a validation after each tenth; if it `ends`, the stage after them."""
    show = tracking.training("iteration_1", stage)
    show(Begun(steps[0]))
    for step in steps:
        if step:
            show(Points("train", step, {"loss": 1.0 / step, "spread": math.nan}))
        if step % 10 == 0:
            show(Points("validation", step, {"recall@5": 0.5 + step / 100, "mrr": 0.25}))
    if ends:
        summary = {"seconds": 3.0, "steps": 10, "history": HISTORY}
        tracking.stage("iteration_1/train", dataclasses.replace(stage, summary=summary))
