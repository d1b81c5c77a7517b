"""What sinks have in common whose runs go on when the command does: no point is shown twice."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from infocse_ray.stages.metrics import scores_of
from infocse_ray.stages.stage import Stage
from infocse_ray.tracking.remembered import Remembered
from infocse_ray.tracking.sink import Place, Sink, Status, Trained
from infocse_ray.tracking.values import finite


class Once(Sink):
    """Shows what `_remembered`, which `open` sets, doesn't know yet."""

    _remembered: Remembered

    def points(self, trained: Trained, group: str, step: int, values: Mapping[str, float]) -> None:
        """See `Sink`."""
        if self._remembered.new_step(trained, group, step):
            self._log(trained.name, group, "step", step, values)
            self._remembered.step_shown(trained, group, step)
            if group == "validation":
                self._remembered.save()

    def stage(self, name: str, stage: Stage, values: Mapping[str, float]) -> None:
        """See `Sink`."""
        if not self._remembered.new_stage(name, stage):
            return
        curves, tag, number = Place.of(name)
        for entry in (stage.summary or {}).get("history", ()):  # of what another run trained
            trained = Trained(name.partition("/")[0], stage)
            self.points(trained, "validation", entry["step"], finite(scores_of(entry)))
        self._log(curves, tag, "number", number, values)
        self._remembered.stage_shown(name, stage)

    def close(self, status: Status) -> None:
        """See `Sink`."""
        self._remembered.save()
        self._close(status)
        if status == "finished" and self.came_to is not None:
            self._remembered.tell(self.came_to)

    @abstractmethod
    def _close(self, status: Status) -> None:
        """Hand over all that isn't yet, and let go of the run."""

    @abstractmethod
    def _log(self, curves: str, tag: str, axis: str, at: int, values: Mapping[str, float]) -> None:
        """Add a point to each of the curves `<curves>/<tag>/<name of the value>`, `at` which place of `axis`."""
