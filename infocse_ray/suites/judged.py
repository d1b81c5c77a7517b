"""What suites need of the job around them: storage, encoders, workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from infocse_ray.annotate.actor import in_actors
from infocse_ray.annotate.pipeline import Work
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.runtime.cluster import Placement, quiet_data
from infocse_ray.runtime.progress import Bar
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.folder import Storage


class Judged(NamedTuple):
    """The encoders that are judged, and where."""

    settings: Evaluate
    root: Storage
    """That runs share."""
    placement: Placement
    encoders: dict[str, EncoderFolder]
    """`model`, and `compare` where two are compared."""

    def stage(self, kind: str, identity: str, work: Callable[[Stage], dict[str, Any]]) -> Stage:
        """The finished stage of this identity, below <storage>/evaluations."""
        return run_stage(self.root, self.root / "evaluations" / identity, kind, identity, work)

    def in_actors(
        self,
        encoder: EncoderFolder,
        groups: int,
        work: Work,
        title: str,
        unit: str,
        total: int,
    ) -> list[dict[str, Any]]:
        """What `work` returns for each of so many groups, from actors with the encoder; counts `unit` on a bar."""
        done: list[dict[str, Any]] = []
        quiet_data()
        bar = Bar(title, total, unit)
        try:
            numbers = [[number] for number in range(groups)]
            precision = self.settings.precision
            for row in in_actors(numbers, encoder, precision, self.placement, work, title):
                done.append(row)
                bar.add(row.get(unit, 0))
        finally:
            bar.close()
        return done
