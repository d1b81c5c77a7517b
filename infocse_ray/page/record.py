"""What a run has left on disk, as far as it got: read without torch and Ray, and nothing is changed."""

from __future__ import annotations

import contextlib
import difflib
import json
from typing import Any, NamedTuple

from infocse_ray.loop.manifest import folder_in, read_manifest
from infocse_ray.storage.checksums import verified
from infocse_ray.storage.folder import Storage, without_query

_NAMED = 10
"""Runs that an error names at most."""


class StageRecord(NamedTuple):
    """A finished stage of a run."""

    kind: str
    folder: Storage
    seconds: float
    fingerprint: str
    summary: dict[str, Any]
    """Empty where it can't be read any more."""
    starting: float | None = None
    """Seconds of it until its workers began or had done something; None where that is unknown."""


class Record(NamedTuple):
    """A run, finished or not."""

    folder: Storage
    job: str
    settings: dict[str, Any]
    """As a tree; credentials are left out."""
    inputs: dict[str, Any]
    """Fingerprints of the files that settings lead to, by name."""
    stages: dict[str, StageRecord]
    """By their name in the run, such as `iteration_1/train`."""
    metrics: dict[str, Any] | None
    """The content of `metrics.json`; None: the run isn't finished, or the file is gone or damaged."""
    moved: dict[str, Any] | None
    """The content of `moved.json`; None: there is none."""
    explorer: dict[str, Any] | None
    """The content of `explorer.json`; None: there is none, or it is of other annotations."""
    earlier: list[str]
    """Folders of what ran under this name before, relative to the storage, until the run is finished."""
    begun: dict[str, tuple[str, str]] | None = None
    """Trainings that have begun: folder, relative to the storage, and fingerprint; None: a version noted none."""
    finished: bool = True
    """Whether the run is committed."""

    @property
    def name(self) -> str:
        """Of the run."""
        return self.folder.name

    @property
    def metric(self) -> str:
        """What encoders are held against each other by, such as `recall@5`."""
        return self.settings.get("validate", {}).get("metric", "recall@5")

    @property
    def why_no_metrics(self) -> str:
        """Why there is no `metrics.json`, for people."""
        if not self.finished:
            return "the run isn't finished"
        return "its metrics.json is gone or damaged, and the command of the run makes it again"

    @property
    def whitening_left_out(self) -> bool:
        """Whether the run whitened its start and, as validation found that worse, went on without."""
        if self.metrics is None or "whitened" not in self.metrics:
            return False
        return self.metrics.get("settings", {}).get("encoder", {}).get("whiten") == "off"  # as settled

    @classmethod
    def read(cls, root: Storage, name: str) -> Record:
        """Read a run's files; those that are missing or damaged are left out.

        Args:
            root: the storage that runs share.
            name: of the run.

        Raises:
            ValueError: there is no such run.
            DamagedFile: its manifest isn't as it was written.
        """
        folder = root / name
        try:
            manifest = read_manifest(folder)
        except FileNotFoundError:
            raise ValueError(f"names = {name!r}: no such run in {root}; {_there(root, name)}") from None
        stages = {}
        for stage, entry in manifest["stages"].items():
            where = folder_in(root, entry["folder"])
            summary = (_json(where / "stage.json", sealed=True) or {}).get("summary", {})
            took = entry["seconds"] or 0.0
            stages[stage] = StageRecord(
                entry["kind"], where, took, entry["fingerprint"], summary, entry.get("starting")
            )
        finished = "finished" in manifest
        # What an earlier run of the name left says nothing of this one.
        kept = {file: _json(folder / f"{file}.json") if finished else None for file in ("metrics", "moved", "explorer")}
        settings = manifest.get("settings", {})
        job = manifest.get("job", "pretrain")
        begun = manifest.get("begun")
        record = cls(
            folder,
            job,
            settings,
            manifest.get("inputs", {}),
            stages,
            **kept,
            earlier=manifest.get("earlier", []),
            begun=None if begun is None else {one: (at["folder"], at["fingerprint"]) for one, at in begun.items()},
            finished=finished,
        )
        return record if record._explores_these() else record._replace(explorer=None)

    def _explores_these(self) -> bool:
        """Whether the explorer shows the annotations that the run has now: it is made last, or not at all."""
        with contextlib.suppress(KeyError, TypeError):
            shown = [one["annotations"] for one in (self.explorer or {})["iterations"]]
            return shown == [self.stages[f"{name}/annotations"].fingerprint for name in self.having("annotations")]
        return False

    @property
    def trainings(self) -> list[str]:
        """Names of what was trained, such as `iteration_1`, in the order of their numbers."""
        return self.having("train")

    def having(self, part: str) -> list[str]:
        """As `trainings`, of those (but pilots) whose stage of this name, such as `annotations`, is finished."""
        found = [name.partition("/")[0] for name in self.stages if name.endswith(f"/{part}")]
        numbered = [name for name in found if name.rpartition("_")[2].isdigit() and not name.startswith("pilot_")]
        return sorted(numbered, key=lambda name: (int(name.rpartition("_")[2]), name.startswith("fine")))


def _json(file: Storage, sealed: bool = False) -> dict[str, Any] | None:
    """A JSON object; None where it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        content = file.read_bytes()
        if sealed and (value := verified(content)) is not None:
            return value
        # Early versions wrote no checksum.
        value = json.loads(content)
        return value if isinstance(value, dict) and not (sealed and "checksum" in value) else None
    return None


def _there(root: Storage, name: str) -> str:
    """What to say of the runs that there are, or of what the name or the storage is else."""
    if (root / "manifest.json").exists():
        above = without_query(str(root)).rstrip("/").rpartition("/")[0]
        return f"that is the folder of a run itself, and storage is the one that it is in, {above}"
    for kind, page in {"a sweep": "sweep.md", "tables": "tables.md"}.items():
        if (there := root / name / page).exists():
            return f"it is {kind}, shown in {there}; `infocse runs` lists its runs"
    runs = sorted({path.partition("/")[0] for path in root.files() if path.endswith("/manifest.json")})
    if near := difflib.get_close_matches(name, runs, n=1):
        return f"did you mean {near[0]}?"
    more = f" and {len(runs) - _NAMED:,} more, which `infocse runs` lists" if len(runs) > _NAMED else ""
    return f"there are {', '.join(runs[:_NAMED]) or 'none'}{more}"
