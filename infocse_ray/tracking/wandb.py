"""Weights & Biases, through its own package: a W&B run for each run, in the project `infocse` if none is named.

W&B's own environment variables say where and how: WANDB_API_KEY, WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE=offline, ...
What the run prints isn't sent, for texts of the corpus are in it, and neither is its code.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Any

from infocse_ray.tracking.once import Once
from infocse_ray.tracking.remembered import Remembered
from infocse_ray.tracking.sink import Status, TrackedRun
from infocse_ray.tracking.values import plain

_SECONDS = {"init_timeout": 25, "finish_timeout": 45}
"""Two of the first, or one of the second, are less than a run's end waits. By default W&B's `finish` waits until all is
uploaded, and so may its own hook at the end of Python."""


class WandB(Once):
    """Keeps a W&B run."""

    name = "wandb"

    def open(self, run: TrackedRun) -> None:
        """See `Sink`."""
        import wandb

        self._remembered = Remembered(run.folder, self.name)
        id = self._remembered.id or secrets.token_hex(8)
        settings: dict[str, Any] = {
            "console": "off",
            "silent": True,
            "disable_git": True,
            "disable_code": True,
            "save_code": False,
            "finish_timeout_raises": True,  # so that what is missing is warned of
            "x_disable_meta": True,  # it has the command line, in which URIs with credentials may be
        }
        settings |= {name: value for name, value in _SECONDS.items() if f"WANDB_{name.upper()}" not in os.environ}
        self._run = wandb.init(  # pyright: ignore[reportAttributeAccessIssue]
            id=id,
            resume="allow",
            name=run.name,
            group=run.group,
            job_type=run.job,
            project=os.environ.get("WANDB_PROJECT", "infocse"),
            config=dict(run.settings),
            allow_val_change=True,
            settings=wandb.Settings(**settings),  # pyright: ignore[reportAttributeAccessIssue]
        )
        self._remembered.begin(id)
        self._curves: set[str] = set()

    def summary(self, scores: Mapping[str, float], words: Mapping[str, str]) -> None:
        """See `Sink`."""
        self._run.summary.update({plain(name): value for name, value in scores.items()} | dict(words))

    def _close(self, status: Status) -> None:
        """See `Once`."""
        self._run.finish(exit_code=0 if status == "finished" else 1)

    def _log(self, curves: str, tag: str, axis: str, at: int, values: Mapping[str, float]) -> None:
        """Over an axis of their own: W&B's own steps would have to rise through all trainings. See `Once`."""
        if curves not in self._curves:
            self._run.define_metric(f"{curves}/{axis}", hidden=True)
            self._run.define_metric(f"{curves}/*", step_metric=f"{curves}/{axis}")
            self._curves.add(curves)
        named = {f"{curves}/{plain(f'{tag}/{name}')}": value for name, value in values.items()}
        self._run.log({f"{curves}/{axis}": at} | named)
