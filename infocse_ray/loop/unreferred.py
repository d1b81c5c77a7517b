"""What no run of a storage refers to, and how it is removed: the work of `infocse clean`.

1. A run's manifest names the folders of its stages, in its own folder, in another run's, or in one that runs share;
   a run that isn't finished goes on naming those it had before it was started again.
2. What no manifest names is left over: stages, corpora, encoders, evaluations, documents given from Python, and what a
   killed process had half written. All that a run has which isn't finished stays, for the run may go on with it.
3. A driver at work keeps its run, the stage that it makes, and every corpus, encoder, evaluation and source: it may be
   reading any. While one embeds or evaluates, which may be with any run's encoder, no run is removed.
4. What is removed is leased meanwhile, as by a driver that makes it, so that none begins to use it. Its entry in the
   index goes first, then `stage.json`: what is left of a removal that was cut off is taken for unfinished work.
Nothing outside the folders that runs write is looked at, and no output of `infocse embed`, wherever it was put.
"""

from __future__ import annotations

import bisect
import contextlib
import difflib
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from infocse_ray.errors import NoSpace, RunInUse
from infocse_ray.loop.contents import Contents, at_once, bytes_of
from infocse_ray.runtime.progress import Bar, say
from infocse_ray.settings.commands import Clean
from infocse_ray.settings.section import SHARED
from infocse_ray.stages.at_work import SIGN
from infocse_ray.stages.lease import Lease
from infocse_ray.storage.folder import UNFINISHED, Storage

_STAGE, _STARTED = "stage.json", "started.json"
_EMBEDDING = "embedding.json"
"""What an output of `infocse embed` has, beside its stages."""
_TEMPORARY = (UNFINISHED, ".probe-")
_AFTER_SLASH = chr(ord("/") + 1)
_MADE = re.compile(r"(workers-)?[0-9a-f]{32}(-[0-9a-f]{12})?")
"""How folders are called that runs share."""
_TOGETHER = 64
"""Things that are removed together: who has come since is looked for once for all of them."""
_FRESH_SECONDS = 3600.0
"""How long something without a lease is left alone, as another process may be writing it."""


class Leftover(NamedTuple):
    """Something that may be removed."""

    path: str
    """A folder or a file, relative to the storage."""
    why: str
    files: list[str]
    """Files to remove."""
    size: int
    leases: list[str]
    """Whom a driver that wants it must have."""


def clean(settings: Clean) -> int:
    """List what is left over; remove it with `yes`.

    Returns:
        How many things couldn't be removed, as drivers had begun to work on them.

    Raises:
        ValueError: there is no such storage or run, or what is referred to can't be told.
        RunInUse: a driver is at work on a run to remove.
    """
    contents = Contents.of(Storage.of_runs(settings.storage))
    unused = leftovers(contents, settings.runs)
    for one in unused:
        say(f"{bytes_of(one.size):>8}  {one.path}  ({one.why})")
    for driver in contents.drivers:
        say(f"kept: what a driver that is running may need ({driver})")
    size = bytes_of(sum(one.size for one in unused))
    if not settings.yes:
        say(f"{len(unused)} to remove, {size}" + ("; nothing is changed without --yes" if unused else ""))
        return 0
    kept = []
    bar = Bar("removing", len(unused), "things")
    for begin in range(0, len(unused), _TOGETHER):
        some = unused[begin : begin + _TOGETHER]
        kept += _removed(contents, some)
        bar.add(len(some))
    bar.close()
    gone = bytes_of(sum(one.size for one in unused) - sum(one.size for one in kept))
    say(f"{len(unused) - len(kept)} removed, {gone}" + (f"; {len(kept)} are in use by now" if kept else ""))
    return len(kept)


def leftovers(contents: Contents, remove: Sequence[str] = ()) -> list[Leftover]:
    """What may be removed.

    Args:
        contents: of the storage.
        remove: runs to remove, too.

    Raises:
        ValueError: there is no such run, or a manifest that is to stay is damaged.
        RunInUse: a driver is at work on a run to remove.
    """
    _check(contents, remove)
    return list(_Finder(contents, set(remove)).leftovers())


def _check(contents: Contents, remove: Sequence[str]) -> None:
    readers = [driver for name, driver in sorted(contents.busy.items()) if name.startswith(SIGN)]
    for name in remove:
        if name not in contents.runs:
            near = difflib.get_close_matches(name, contents.runs, n=1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(contents.runs) or 'none'}"
            raise ValueError(f"runs = {name!r}: no such run in {contents.root}; {meant}")
        if (driver := contents.runs[name].driver) is not None:
            raise RunInUse(f"runs = {name!r}: a driver is at work on it ({driver}); wait for it, or stop it")
        if readers:
            raise RunInUse(f"runs = {name!r}: a driver may be reading its encoders ({readers[0]}); wait for it")
    for run in contents.runs.values():
        if run.damaged and run.name not in remove:
            raise ValueError(
                f"{run.damaged}, so what it refers to can't be told; start {run.name} again, or remove it, all that is "
                f"in its folder, with --runs {run.name}"
            )


class _Finder:
    """Goes through a storage for what is left over."""

    def __init__(self, contents: Contents, remove: set[str]) -> None:
        self.contents, self.remove = contents, remove
        self.staying = {name: run for name, run in contents.runs.items() if name not in remove}
        self.referred = {folder for run in self.staying.values() for folder in contents.referred(run)}
        self.at_work = bool(contents.drivers)
        self.outputs = _outputs(contents)
        self.begun_at = _stage_folders(contents, self.outputs)
        self.index = _index(contents)
        tops = {folder.partition("/")[0] for folder in self.index}
        self.known = {*SHARED, *contents.runs, *tops}
        self.paths = sorted(contents.files)

    def leftovers(self) -> Iterator[Leftover]:
        """Everything, each once: runs first, then what is left."""
        done: set[str] = set()
        for one in (*self._runs(), *self._stages(), *self._shared(), *self._temporary(), *self._nowhere()):
            files = [path for path in dict.fromkeys(one.files) if path not in done]
            done.update(files)
            if files:
                yield one._replace(files=files, size=sum(self.contents.files[path].size for path in files))

    def _below(self, folder: str) -> list[str]:
        # By bisection: with thousands of runs there are as many folders to ask for as there are files in all.
        begin, end = (bisect.bisect_left(self.paths, f"{folder}{after}") for after in ("/", _AFTER_SLASH))
        return self.paths[begin:end]

    def _leftover(self, path: str, why: str, files: list[str], fingerprint: str | None = None) -> Leftover:
        index = [self.index[path]] if path in self.index else []
        leases = [f"stages/{fingerprint}.lease"] if fingerprint else []
        top = path.partition("/")[0]
        if top in self.contents.runs:
            leases.append(f"{top}/driver.lease")
        return Leftover(path, why, [*index, *files], 0, leases)

    def _runs(self) -> Iterator[Leftover]:
        # Stages in it that other runs refer to stay, and vectors that a user put there.
        stays = self.referred | self.outputs
        for name in sorted(self.remove):
            files = [
                path for path in self._below(name) if not _is_below(path, stays) and path != f"{name}/driver.lease"
            ]
            for output in sorted(one for one in self.outputs if one.startswith(f"{name}/")):
                say(f"kept: {output}, which `infocse embed` wrote; remove it yourself")
            index = [path for folder, path in self.index.items() if f"{folder}/{_STAGE}" in files]
            yield self._leftover(name, "a run to remove", [*index, *files])

    def _stages(self) -> Iterator[Leftover]:
        for folder, finished in sorted(self.begun_at.items()):
            top = folder.partition("/")[0]
            if top not in self.known or top in self.remove or folder in self.referred or self._kept(folder):
                continue
            fingerprint = self._fingerprint(folder)
            if fingerprint not in self.contents.busy:
                why = "no run refers to it" if finished else "half-written"
                yield self._leftover(folder, why, self._below(folder), fingerprint)

    def _kept(self, folder: str) -> bool:
        """Whether a stage that no manifest names may be needed all the same."""
        top = folder.partition("/")[0]
        if (run := self.staying.get(top)) is not None:
            return run.driver is not None or not run.finished
        if top == "evaluations":
            return self.at_work
        if top in ("corpora", "encoders"):
            # A run that was stopped while its corpus was prepared, or before it was named, goes on with that.
            manifests = [run.manifest for run in self.staying.values() if run.manifest is not None]
            return self.at_work or any("finished" not in one and "corpus" not in one["stages"] for one in manifests)
        return False

    def _fingerprint(self, folder: str) -> str | None:
        for name in (_STAGE, _STARTED):
            with contextlib.suppress(OSError, ValueError, KeyError):
                return (self.contents.root / folder / name).read_json()["fingerprint"]
        return None

    def _shared(self) -> Iterator[Leftover]:
        """Folders that are no stages."""
        if self.at_work:
            return
        settings = [run.manifest.get("settings", {}) for run in self.staying.values() if run.manifest is not None]
        sources = [str(one.get("corpus", {}).get("source")) for one in settings]
        for top in SHARED[:-1]:
            for name in sorted({path.split("/")[1] for path in self._below(top) if path.count("/") > 1}):
                folder = f"{top}/{name}"
                # Others are a user's own, in a storage that has more than runs.
                if folder in self.begun_at or not _MADE.fullmatch(name) or not self._old(folder):
                    continue
                if top != "sources":
                    yield self._leftover(folder, "half-written", self._below(folder))
                elif not any(f"/{folder}" in source for source in sources):
                    yield self._leftover(folder, "no run refers to it", self._below(folder))

    def _old(self, path: str) -> bool:
        """Whether nothing was written there of late."""
        files = [path] if path in self.contents.files else self._below(path)
        return all(self.contents.age(file) > _FRESH_SECONDS for file in files)

    def _temporary(self) -> Iterator[Leftover]:
        """Files that a killed process left half-written."""
        places = set()
        for path in self.contents.files:
            parts = path.split("/")
            at = next((n for n, part in enumerate(parts) if part.startswith(_TEMPORARY)), None)
            if at is not None and (at == 0 or parts[0] in self.known):
                places.add("/".join(parts[: at + 1]))
        for place in sorted(places):
            run = self.contents.runs.get(place.partition("/")[0])
            if self._old(place) and (run is None or run.driver is None):
                files = [place] if place in self.contents.files else self._below(place)
                yield self._leftover(place, "half-written", files)

    def _nowhere(self) -> Iterator[Leftover]:
        """Entries of the index that lead to no finished stage."""
        for folder, path in sorted(self.index.items()):
            fingerprint = path.rpartition("/")[2].removesuffix(".json")
            if f"{folder}/{_STAGE}" not in self.contents.files and fingerprint not in self.contents.busy:
                yield Leftover(path, "leads nowhere", [path], 0, [f"stages/{fingerprint}.lease"])
        for path in sorted(self.contents.files):
            name = path.removeprefix("stages/").removesuffix(".lease")
            if name.startswith(SIGN) and name not in self.contents.busy and self._old(path):
                yield Leftover(path, "of a driver that is gone", [path], 0, [])


def _index(contents: Contents) -> dict[str, str]:
    """The entries of the index by the folder that they lead to; damaged ones by themselves."""

    def folder_of(path: str) -> str:
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            return (contents.root / path).read_json()["folder"]
        return path

    entries = [path for path in contents.files if path.startswith("stages/") and path.endswith(".json")]
    return dict(zip(at_once(folder_of, entries), entries, strict=True))


def _outputs(contents: Contents) -> set[str]:
    """The folders that `infocse embed` wrote into."""
    return {path.rpartition("/")[0] for path in contents.files if path.rpartition("/")[2] == _EMBEDDING}


def _stage_folders(contents: Contents, outputs: set[str]) -> dict[str, bool]:
    """The folders of stages that runs share or have, and whether they are finished; not those of outputs."""
    begun = {path.rpartition("/")[0] for path in contents.files if path.rpartition("/")[2] in (_STAGE, _STARTED)}
    return {
        folder: f"{folder}/{_STAGE}" in contents.files
        for folder in begun
        if folder and folder.rpartition("/")[0] not in outputs
    }


def _is_below(path: str, folders: set[str]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:n]) in folders for n in range(1, len(parts)))


def _removed(contents: Contents, some: Sequence[Leftover]) -> list[Leftover]:
    """Remove these, but what a driver has begun to work on since the listing, or on anything; what is kept."""
    root = contents.root
    kept, going = list[Leftover](), list[Leftover]()
    with contextlib.ExitStack() as held:
        what = {lease: one.path for one in reversed(some) for lease in one.leases}
        # At once, for in an object store each is looked at again some time after it was written.
        others = at_once(lambda lease: _taken(held, Lease(root / lease, what[lease])), list(what))
        at_work = {lease: other for lease, other in zip(what, others, strict=True) if other is not None}
        # One that came since the listing may have found this finished, and holds no lease of what it reads.
        come, named = contents.come_since(what), contents.named_since()
        for one in some:
            found = [folder for folder in named if f"{folder}/".startswith(f"{one.path}/")]
            if refusals := [at_work[lease] for lease in one.leases if lease in at_work]:
                why = str(refusals[0])
            elif come:
                why = f"{one.path}: a driver has begun since ({come[0]}); the same command removes it later"
            elif found:
                why = f"{one.path}: a run under way has found {found[0]} since"
            else:
                going.append(one)
                continue
            say(f"kept: {why}")
            kept.append(one)
        # Of all of them first what others find them by, so that nobody finds one while the others are removed.
        for rank in range(_RANKS):
            at_once(lambda file: (root / file).delete(), [f for one in going for f in one.files if _rank(f) == rank])
    for one in going:
        _drop_empty(root, one.path)
    return kept


_RANKS = 3


def _rank(file: str) -> int:
    """When a file goes: entries of the index, then what says that a stage is whole, then the rest."""
    return 0 if file.startswith("stages/") else 1 if file.rpartition("/")[2] == _STAGE else 2


def _taken(held: contextlib.ExitStack, lease: Lease) -> RunInUse | None:
    """Take a lease; who has it, if anybody does."""
    try:
        _hold(held, lease)
    except RunInUse as error:
        return error
    return None


def _hold(held: contextlib.ExitStack, lease: Lease) -> None:
    """Take a lease; on a full disk, where it can't be written and no driver can begin either, go on without it.

    Raises:
        RunInUse: a driver has it.
    """
    try:
        held.enter_context(lease).take()
    except NoSpace:
        if lease.file.exists():
            raise


def _drop_empty(root: Storage, path: str) -> None:
    """Remove the empty local folders of a path, and those above it that are empty then."""
    if not os.path.isdir(root.path):
        return
    parts = path.split("/")
    below = [folder for folder, _, _ in os.walk((root / path).path, topdown=False)]
    for folder in [*below, *((root / "/".join(parts[:n])).path for n in range(len(parts) - 1, 0, -1))]:
        with contextlib.suppress(OSError):  # it isn't empty
            os.rmdir(folder)
