"""A stage of a run: work that is named by its inputs, done once, and committed last.

1. Its identity is a fingerprint of its inputs and of the settings that can change its output.
2. It writes pieces under its own folder; a piece that is whole is never made again.
3. `stage.json`, written when everything else is there, makes it finished; an index by fingerprint lets other
   runs in the same storage use it.
4. One driver at a time works on it: another that wants it waits, and takes the result.
5. A finished stage of which a file is missing, cut off or marked as damaged (see `checksums`) isn't finished.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyarrow.fs import FileInfo

from infocse_ray.errors import DamagedFile
from infocse_ray.runtime.interrupts import check
from infocse_ray.runtime.progress import say, waits_kept
from infocse_ray.stages.lease import Lease
from infocse_ray.storage.checksums import MARK, OTHER, checked, mark_of, verified
from infocse_ray.storage.folder import Storage

STAGE_FILES = _COMMIT, _STARTED = "stage.json", "started.json"
"""By one of which a stage's folder is known: it is finished, or begun."""
_UNLISTED = (_COMMIT, _STARTED)
"""Files of a stage's folder that are notes about it."""
_NAMED = 3
"""Damaged files that a line names at most."""

_seen_whole: set[tuple[str, str]] = set()
"""Folder and fingerprint of the finished stages whose files this process has looked at."""


@dataclass(frozen=True)
class Stage:
    """A stage's identity and where its output is (or will be)."""

    kind: str
    fingerprint: str
    folder: Storage
    summary: dict[str, Any] | None = None
    """What the stage counted; None until it is finished."""
    starting: float | None = None
    """Seconds of it until its workers began or, where they don't say so, had done something; None: unseen."""

    @property
    def seconds(self) -> float | None:
        """Wall-clock seconds the stage took, without what a `kill -9` cut off; None until it is finished."""
        return None if self.summary is None else self.summary["seconds"]


def read_stage(folder: Storage) -> Stage:
    """The finished stage in `folder`.

    Raises:
        FileNotFoundError: nothing finished is there.
        DamagedFile: `stage.json` isn't as it was written.
    """
    return _stage(folder, _read_commit(folder))


def read_whole_stage(folder: Storage) -> Stage:
    """As `read_stage`, once every file that the stage wrote is seen to be there, with its size, by a listing now.

    Marks are no matter: what was damaged may have been copied anew, and whoever reads a file verifies it.

    Raises:
        FileNotFoundError: nothing finished is there.
        DamagedFile: a file is missing or cut off, or `stage.json` isn't as it was written.
    """
    commit = _read_commit(folder)
    if wrong := unlike(commit.get("files", {}), folder.files()):
        name, why = next(iter(wrong.items()))
        raise DamagedFile(f"{folder / name} is damaged ({why})")
    return _stage(folder, commit)


def _stage(folder: Storage, commit: dict[str, Any]) -> Stage:
    return Stage(commit["kind"], commit["fingerprint"], folder, commit["summary"], commit.get("starting"))


def _read_commit(folder: Storage) -> dict[str, Any]:
    content = (folder / _COMMIT).read_bytes()
    if (commit := verified(content)) is not None:
        return commit
    with contextlib.suppress(ValueError):
        # Versions before this one wrote neither a checksum nor the files.
        if not {"checksum", "files"} & (commit := json.loads(content)).keys() and "summary" in commit:
            return commit
    raise DamagedFile(f"{folder / _COMMIT} is damaged ({OTHER})")


def find_stage(root: Storage, folder: Storage, fingerprint: str) -> Stage | None:
    """The stage if it is finished and whole, in its own folder or, by the index of `root`, in another run's."""
    for place in _places(root, folder, fingerprint):
        with contextlib.suppress(FileNotFoundError, DamagedFile):
            commit = _read_commit(place)
            if commit["fingerprint"] == fingerprint and not _damage(place, commit):
                return _stage(place, commit)
    return None


def look_again() -> None:
    """Forget which stages were whole when this process looked."""
    _seen_whole.clear()


def _places(root: Storage, folder: Storage, fingerprint: str) -> list[Storage]:
    """Where the stage can be."""
    places = [_own(folder, fingerprint)]
    index = root / "stages" / f"{fingerprint}.json"
    if index.exists():
        with contextlib.suppress(ValueError, KeyError, TypeError):  # damaged: it is written again with the stage
            places.append(Storage(root.root, index.read_json()["folder"]))
    return places


def is_begun(folder: Storage, fingerprint: str) -> bool:
    """Whether the folder has that stage, finished or not."""
    return _owner(folder, _COMMIT, _STARTED) == fingerprint


def _own(folder: Storage, fingerprint: str) -> Storage:
    """The stage's folder: `folder`, or one beside it where another stage was finished there, for runs may share it."""
    if not (folder / _COMMIT).exists() or _owner(folder, _COMMIT, _STARTED) == fingerprint:
        return folder
    return Storage(folder.root, f"{folder.relative}-{fingerprint[:12]}")


def _owner(folder: Storage, *names: str) -> str | None:
    """The fingerprint of the stage in `folder`, by the first of these files that is there and whole."""
    for name in names:
        with contextlib.suppress(FileNotFoundError, DamagedFile):
            return (_read_commit(folder) if name == _COMMIT else _read_started(folder))["fingerprint"]
    return None


def _read_started(folder: Storage) -> dict[str, Any]:
    if (started := verified((folder / _STARTED).read_bytes())) is None:
        raise DamagedFile(f"{folder / _STARTED} is damaged ({OTHER})")
    return started


def _damage(folder: Storage, commit: dict[str, Any]) -> dict[str, str]:
    """What is wrong with which files of the finished stage in `folder`, by one listing of it a process."""
    if (key := (str(folder), commit["fingerprint"])) in _seen_whole:
        return {}
    there = folder.files()
    marked = {name.removesuffix(MARK): OTHER for name in there if name.endswith(MARK)}
    wrong = unlike(commit.get("files", {}), there) | marked
    if not wrong:
        _seen_whole.add(key)
    return wrong


def unlike(files: Mapping[str, int | None], there: Mapping[str, FileInfo]) -> dict[str, str]:
    """What is wrong with which files, by what is there.

    Args:
        files: the size in bytes of each by its name; None: any.
        there: a listing.
    """
    wrong = {}
    for name, size in files.items():
        if name not in there:
            wrong[name] = "it is missing"
        elif size is not None and there[name].size != size:
            wrong[name] = f"it has {there[name].size:,} bytes, not {size:,}"
    return wrong


def reopen(root: Storage, folder: Storage, kind: str, fingerprint: str, piecewise: bool = False) -> Storage:
    """The folder that the unfinished stage is to be made in, made its own; see `run_stage`.

    Where it was finished and is damaged, what is wrong is said and removed.
    """
    place = _damaged_place(_places(root, folder, fingerprint), kind, fingerprint, piecewise)
    if place is None and (place := _own(folder, fingerprint)) is not folder:
        say(f"{kind}: {folder} has it from other inputs or settings; now it goes to {place.name}")
    claim(place, kind, fingerprint)
    return place


def _damaged_place(places: list[Storage], kind: str, fingerprint: str, piecewise: bool) -> Storage | None:
    """Make the stage unfinished where it is damaged; what is whole stays if `piecewise`."""
    for place in places:
        if not (place / _COMMIT).exists() or _owner(place, _COMMIT, _STARTED) != fingerprint:
            continue
        try:
            wrong = _damage(place, _read_commit(place))
        except DamagedFile:
            wrong = {_COMMIT: OTHER}
        named = [f"{place / name} is damaged ({why})" for name, why in list(wrong.items())[:_NAMED]]
        more = f" and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
        say(f"{kind}: {'; '.join(named)}{more}; {'it is' if len(wrong) == 1 else 'they are'} made again")
        # In an order that lets a crash in between leave nothing that is taken for whole.
        if _COMMIT in wrong:
            (place / _COMMIT).delete()
        elif piecewise:
            for name in wrong:
                mark_of(place / name).write_bytes(b"")
            (place / _COMMIT).delete()
            _drop_marked(place)
        else:
            # First, as a stage that isn't finished keeps its own files, and nothing says any more which are damaged.
            (place / _STARTED).delete()
            (place / _COMMIT).delete()
            place.delete()
        return place
    return None


def _drop_marked(folder: Storage) -> list[str]:
    """Delete the files with a mark, then their marks."""
    marked = [name.removesuffix(MARK) for name in folder.files() if name.endswith(MARK)]
    for name in marked:
        (folder / name).delete()
        mark_of(folder / name).delete()
    return marked


def claim(folder: Storage, kind: str, fingerprint: str) -> Storage:
    """Make `folder` the stage's own: what another left there unfinished is removed, its own whole pieces stay."""
    started = folder / _STARTED
    if _owner(folder, _STARTED) != fingerprint:
        if folder.exists():
            say(f"{kind}: {folder} has unfinished work from other inputs or settings; it is removed")
            folder.delete()
        started.write_json(checked({"kind": kind, "fingerprint": fingerprint, "seconds": 0.0}))
        return started
    for name in _drop_marked(folder):
        say(f"{kind}: {folder / name} is damaged ({OTHER}); it is made again")
    return started


@contextlib.contextmanager
def making(root: Storage, folder: Storage, kind: str, fingerprint: str) -> Iterator[Lease | None]:
    """The lease of a stage that isn't finished, waited for while another driver makes the stage; None if that did.

    The lease is that of the stage, not of a folder: two runs want the same one in different folders.
    """
    with Lease(root / "stages" / f"{fingerprint}.lease", kind) as lease:
        taken = lease.take(lambda: find_stage(root, folder, fingerprint) is not None)
        # Another may have finished it between the look that found nothing and this lease.
        yield lease if taken and find_stage(root, folder, fingerprint) is None else None


def run_stage(
    root: Storage,
    folder: Storage,
    kind: str,
    fingerprint: str,
    work: Callable[[Stage], dict[str, Any]],
    piecewise: bool = False,
    lease: Lease | None = None,
) -> Stage:
    """Return the finished stage, doing `work` only if no run in `root` has finished it.

    Args:
        root: the storage shared by runs, which holds the index `stages/`.
        folder: where this run would put the stage; if another is finished there, it goes beside it.
        kind: what the stage does, for people.
        fingerprint: the stage's identity.
        work: does it; gets the unfinished stage, writes below its folder, returns a JSON-able summary. After a
            crash it is called again with the pieces it had written still in place.
        piecewise: whether `work`, called for a stage of which some pieces are missing, makes these and leaves the
            others as they are; otherwise a damaged stage is begun anew.
        lease: of the stage, if the caller has it.

    Raises:
        LeaseLost: another driver took over; the stage isn't committed.
    """
    check()
    if (done := find_stage(root, folder, fingerprint)) is not None:
        return done
    if lease is None:
        with making(root, folder, kind, fingerprint) as own_lease:
            # Without a lease the stage is finished by now: it is found.
            return run_stage(root, folder, kind, fingerprint, work, piecewise, own_lease)
    folder = reopen(root, folder, kind, fingerprint, piecewise)
    started = folder / _STARTED
    begun, before = time.monotonic(), _read_started(folder)["seconds"]
    stage = Stage(kind, fingerprint, folder)
    try:
        with waits_kept() as waits:
            summary = work(stage)
    except BaseException:
        seconds = before + time.monotonic() - begun
        with contextlib.suppress(OSError):  # storage may be what failed; its error is on its way
            started.write_json(checked({"kind": kind, "fingerprint": fingerprint, "seconds": seconds}))
        raise
    summary = {"seconds": round(before + time.monotonic() - begun, 2), **summary}
    files = {name: info.size for name, info in folder.files().items() if name not in _UNLISTED}
    lease.check()
    starting = round(sum(waits), 2) if waits else None
    content = {"kind": kind, "fingerprint": fingerprint, "summary": summary, "files": files, "starting": starting}
    (folder / _COMMIT).write_json(checked(content))
    (root / "stages" / f"{fingerprint}.json").write_json({"folder": folder.relative, "kind": kind})
    return Stage(kind, fingerprint, folder, summary, starting)
