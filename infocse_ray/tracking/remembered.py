"""What a sink was shown of a run, kept in the run's folder: the same command goes on with the same tracked run.

A step or stage that was shown isn't shown again, though a training that goes on from a checkpoint repeats steps, and a
run that goes on adds its finished stages once more. Only what came between the last note and a `kill -9` is.
"""

from __future__ import annotations

from typing import Any

from infocse_ray.stages.records import read_record, write_record
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.tracking.sink import Trained


class Remembered:
    """The note of one sink about one run, `<run>/tracking/<sink>.json`."""

    def __init__(self, run: Storage, sink: str) -> None:
        """Read it, if it is there and whole."""
        self._file, self._sink = run / "tracking" / f"{sink}.json", sink
        self._note: dict[str, Any] = read_record(self._file, sink) or {}

    @property
    def id(self) -> str | None:
        """The tracked run's, as the sink calls it; None: there is none yet."""
        return self._note.get("id")

    def begin(self, id: str) -> None:
        """Forget all of any other tracked run; this one goes on."""
        if id != self.id:
            self._note = {"identity": self._sink, "id": id, "stages": {}, "steps": {}}
        self.tell(None)

    def knows(self, identity: str) -> bool:
        """Whether the tracked run says the end of this finished run; of notes of earlier versions it is taken to."""
        return self._note.get("told", identity if self._note else None) == identity

    def tell(self, identity: str | None) -> None:
        """Note that the tracked run says the end of this one; None: it goes on."""
        self._note["told"] = identity
        self.save()

    def new_stage(self, name: str, stage: Stage) -> bool:
        """Whether the stage wasn't shown yet."""
        return self._note["stages"].get(name) != stage.fingerprint

    def stage_shown(self, name: str, stage: Stage) -> None:
        """Note that it was."""
        self._note["stages"][name] = stage.fingerprint
        self.save()

    def new_step(self, trained: Trained, group: str, step: int) -> bool:
        """Whether this step of a training wasn't shown yet.

        A validation may come after later ones, as a finished stage's do that a killed command had not shown yet.
        """
        if group == "validation":
            return step not in self._validations(trained)
        return step > self._note["steps"].get(_key(trained, group), -1)

    def step_shown(self, trained: Trained, group: str, step: int) -> None:
        """Note that it was; written with the next `save`."""
        if group == "validation":
            self._validations(trained).append(step)
        else:
            self._note["steps"][_key(trained, group)] = step

    def _validations(self, trained: Trained) -> list[int]:
        """Steps of a training whose validations were shown."""
        return self._note.setdefault("validations", {}).setdefault(trained.stage.fingerprint, [])

    def save(self) -> None:
        """Write the note."""
        write_record(self._file, self._note)


def _key(trained: Trained, group: str) -> str:
    return f"{trained.stage.fingerprint}/{group}"
