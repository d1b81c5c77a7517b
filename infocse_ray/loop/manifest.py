"""A run's manifest: which stages it is made of, so that people and later commands find them."""

from __future__ import annotations

from typing import Any

from infocse_ray.counters import count_stage
from infocse_ray.events import show_stage
from infocse_ray.stage import Stage
from infocse_ray.storage import Storage


class Manifest:
    """`manifest.json` of a run; an entry is written when its stage is finished."""

    def __init__(self, run: Storage) -> None:
        self._run, self._file = run, run / "manifest.json"
        self._content: dict[str, Any] = self._file.read_json() if self._file.exists() else {"stages": {}}

    def finished(self, fingerprint: str) -> bool:
        """Whether the whole run was finished with these inputs and settings."""
        return self._content.get("finished") == fingerprint

    @property
    def job(self) -> str | None:
        """What ran last under this name, such as `pretrain`; None if nothing did."""
        return self._content.get("job", "pretrain" if "settings" in self._content else None)

    def begin(self, job: str, settings: dict[str, Any]) -> None:
        """A run (again) at work."""
        self._content = {"job": job, "settings": settings, "stages": {}}
        self._file.write_json(self._content)

    def add(self, name: str, stage: Stage) -> None:
        """Commit a finished stage under its name in the run."""
        self._content["stages"][name] = {
            "kind": stage.kind,
            "fingerprint": stage.fingerprint,
            "folder": str(stage.folder),
            "seconds": stage.seconds,
        }
        self._file.write_json(self._content)
        show_stage(self._run, name, stage)
        count_stage(self._run, name, stage)

    def finish(self, fingerprint: str) -> None:
        """Commit the run."""
        self._content["finished"] = fingerprint
        self._file.write_json(self._content)
