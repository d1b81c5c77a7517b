"""What a run is shown to: the interface that TensorBoard, MLflow and Weights & Biases each fill in a file.

A sink is called in one thread of the driver, in the order in which things happen; it may block and raise there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from infocse_ray.settings.tracking import SinkName
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage

Status = Literal["finished", "failed", "stopped"]
"""How a driver left its run; a stopped run may go on."""


_HERE_TO_STAY = (PermissionError, FileNotFoundError, NotADirectoryError, IsADirectoryError)


class TrackedRun(NamedTuple):
    """The run that is shown."""

    name: str
    job: str
    """What runs, such as `pretrain`."""
    folder: Storage
    """`<storage>/<name>`."""
    settings: Mapping[str, Any]
    """As a tree, without credentials."""
    group: str | None


class Trained(NamedTuple):
    """The training that steps are of."""

    name: str
    """In the run, such as `iteration_1`."""
    stage: Stage


class Place(NamedTuple):
    """Where a stage's numbers are shown."""

    group: str
    """`iterations`, `fine_tunings`, `rounds`, or `run` for what a run does once."""
    tag: str
    """The stage's name in its group, such as `annotations`."""
    step: int
    """The number of the iteration (or round); 0 for what a run does once."""

    @classmethod
    def of(cls, name: str) -> Place:
        """The place of the stage that the run calls `name`, such as `iteration_2/annotations`."""
        owner, _, part = name.partition("/")
        word, _, number = owner.rpartition("_")
        return cls(f"{word}s", part, int(number)) if number.isdigit() else cls("run", name, 0)


class Sink:
    """Something that shows runs. What it doesn't show it leaves as it is here."""

    name: ClassVar[SinkName]
    came_to: str | None = None
    """Identity of the finished run whose summary it was shown."""

    def open(self, run: TrackedRun) -> None:
        """Begin to show a run, or go on; called first, and again if it raised."""

    def is_away(self, error: Exception) -> bool:
        """Whether a call failed because the sink is out of reach for now: it is tried again until it isn't."""
        return isinstance(error, OSError) and not isinstance(error, _HERE_TO_STAY)

    def begin(self, trained: Trained, first: int) -> None:
        """A training starts, or goes on: points from the step `first` on come (again)."""

    def points(self, trained: Trained, group: str, step: int, values: Mapping[str, float]) -> None:
        """Show finite numbers of a training.

        Args:
            trained: whose.
            group: `train` or `validation`.
            step: they are of.
            values: by name.
        """

    def stage(self, name: str, stage: Stage, values: Mapping[str, float]) -> None:
        """Show the finite numbers that a finished stage counted; it may have been shown before."""

    def summary(self, scores: Mapping[str, float], words: Mapping[str, str]) -> None:
        """Show what the run came to: final scores, and its verdict."""

    def close(self, status: Status) -> None:
        """Hand over all that isn't yet, and let go of the run."""
