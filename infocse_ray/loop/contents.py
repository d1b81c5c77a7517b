"""Contents of a storage that runs share: its files by one listing, its runs by their manifests, running drivers.

It is read without torch and Ray, and nothing is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import pyarrow.fs as pafs

from infocse_ray.errors import DamagedFile
from infocse_ray.loop.manifest import NoManifest, folders_of, read_manifest
from infocse_ray.settings.section import MARKS, SHARED, TOGETHER
from infocse_ray.stages.lease import driver_at
from infocse_ray.storage.errors import explained
from infocse_ray.storage.folder import Storage, without_query

_MADE = ("stage.json", "started.json", "metrics.json")
"""Files by which a folder is known to be a run's whose manifest is lost."""
_READERS = 16
"""Files read at once: a request to an object store is mostly waiting, and of a year of nightly runs there are many."""

Item = TypeVar("Item")
Read = TypeVar("Read")


def at_once(read: Callable[[Item], Read], items: Collection[Item]) -> list[Read]:
    """What `read` returns of each, in their order; some files are read at the same time."""
    with ThreadPoolExecutor(_READERS) as readers:
        return list(readers.map(read, items))


class FoundRun(NamedTuple):
    """A run, or the folder of tables or of a sweep."""

    name: str
    command: str
    manifest: dict[str, Any] | None
    """None: it has none, or it is damaged."""
    damaged: str
    """Why the manifest can't be read; empty where it can, or there is none."""
    driver: str | None
    """Who is at work on it."""
    size: int
    """Bytes of its files."""
    changed: datetime | None
    """When the last of them was written, by the storage's clock; None where it doesn't say."""

    @property
    def finished(self) -> bool:
        """Whether it is committed."""
        return self.manifest is not None and "finished" in self.manifest

    @property
    def state(self) -> str:
        """For people."""
        if self.driver is not None:
            return "under way"
        if self.damaged:
            return "damaged"
        return "finished" if self.finished else "stopped" if self.manifest is not None else ""


class Contents(NamedTuple):
    """A storage at a moment."""

    root: Storage
    files: dict[str, pafs.FileInfo]
    """By path below the root."""
    runs: dict[str, FoundRun]
    busy: dict[str, str]
    """Fingerprints of the stages that a driver is making, with who that is."""
    now: datetime

    @classmethod
    def of(cls, root: Storage) -> Contents:
        """Look.

        Raises:
            ValueError: there is no such storage, or it is a run's folder.
        """
        if not root.exists():
            raise ValueError(f"storage = {str(root)!r}: no such folder; name the one that runs were started with")
        if (root / "manifest.json").exists():
            there = without_query(str(root)).rstrip("/").rpartition("/")[0]
            raise ValueError(f"storage = {str(root)!r}: is the folder of a run; name the one that it is in, {there}")
        files, now = root.files(unfinished=True), datetime.now(UTC)
        own: dict[str, dict[str, pafs.FileInfo]] = {}
        for path, info in files.items():
            top, slash, rest = path.partition("/")
            if slash:
                own.setdefault(top, {})[rest] = info
        names = sorted(own.keys() - {*SHARED})
        found = at_once(lambda name: _run(root / name, own[name], now), names)
        runs = {name: run for name, run in zip(names, found, strict=True) if run is not None}
        busy = {}
        for name, info in own.get("stages", {}).items():
            if name.endswith(".lease") and (driver := driver_at(root / "stages" / name, _age(info, now))) is not None:
                busy[name.removesuffix(".lease")] = driver
        return cls(root, files, runs, busy, now)

    @property
    def drivers(self) -> list[str]:
        """Who is at work on anything here."""
        return sorted({run.driver for run in self.runs.values() if run.driver} | {*self.busy.values()})

    def named_since(self) -> set[str]:
        """Folders that runs under way refer to by now, and didn't when this was looked at: stages that they found."""
        named: set[str] = set()
        for run in self.runs.values():
            if run.driver is not None:
                with contextlib.suppress(FileNotFoundError, DamagedFile):
                    named |= self.referred(run._replace(manifest=read_manifest(self.root / run.name)))
        return named - {folder for run in self.runs.values() for folder in self.referred(run)}

    def come_since(self, besides: Collection[str] = ()) -> list[str]:
        """Drivers that are at work by now and weren't when this was looked at.

        Args:
            besides: leases that the caller holds itself, by path.
        """
        now, found = datetime.now(UTC), set()
        for path, info in _leases(self.root).items():
            if path not in besides and (driver := driver_at(self.root / path, _age(info, now))) is not None:
                found.add(driver)
        return sorted(found - {*self.drivers})

    def age(self, path: str) -> float:
        """Seconds since a file was written, 0 where the storage doesn't say."""
        return _age(self.files[path], self.now)

    def size(self, folder: str) -> int:
        """Bytes of the files below a folder."""
        return sum(info.size for path, info in self.files.items() if path.startswith(f"{folder}/"))

    def referred(self, run: FoundRun) -> set[str]:
        """Folders, relative to the root, that a run's manifest refers to."""
        return {_relative(self.root, folder) for folder in folders_of(run.manifest or {"stages": {}})}


def _leases(root: Storage) -> dict[str, pafs.FileInfo]:
    """The leases of stages, of drivers without a run, and of runs that are there, by path."""
    stages = {f"stages/{name}": info for name, info in (root / "stages").files().items() if name.endswith(".lease")}
    with explained(root):
        tops = root.filesystem.get_file_info(pafs.FileSelector(root.path))
        names = [f"{top.base_name}/driver.lease" for top in tops if top.type == pafs.FileType.Directory]
        infos = root.filesystem.get_file_info([f"{root.path}/{name}" for name in names])
    runs = {name: info for name, info in zip(names, infos, strict=True) if info.type == pafs.FileType.File}
    return stages | runs


def _run(folder: Storage, files: Mapping[str, pafs.FileInfo], now: datetime) -> FoundRun | None:
    """The run in a folder; None if it is none."""
    here = {path.partition("/")[0] for path in files}
    marks = here & {*MARKS}
    if not marks:
        return None
    command = next((whose for name, whose in TOGETHER.items() if name in here), "")
    manifest, damaged = None, ""
    try:
        manifest = read_manifest(folder)
        command = command or manifest.get("job", "pretrain")
    except FileNotFoundError:
        pass
    except DamagedFile as error:
        # Beside what stages write it is a run's, whatever has become of its manifest.
        made = any(path.rpartition("/")[2] in _MADE for path in files)
        if isinstance(error, NoManifest) and marks == {"manifest.json"} and not made:
            return None
        damaged = str(error)
    lease = files.get("driver.lease")
    driver = None if lease is None else driver_at(folder / "driver.lease", _age(lease, now))
    size = sum(info.size for info in files.values())
    changed = max((info.mtime for info in files.values() if info.mtime is not None), default=None)
    return FoundRun(folder.name, command, manifest, damaged, driver, size, changed)


def _age(info: pafs.FileInfo, now: datetime) -> float:
    if info.mtime is None:  # nothing is taken for left over that may be new
        return 0.0
    written = info.mtime if info.mtime.tzinfo else info.mtime.replace(tzinfo=UTC)
    return (now - written).total_seconds()


def _relative(root: Storage, folder: str) -> str:
    """A stage's folder as older manifests have it, too: with the storage before it."""
    return folder.removeprefix(without_query(root.root).rstrip("/") + "/")


def bytes_of(size: float) -> str:
    """A size for people: `176 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
