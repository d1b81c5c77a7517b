"""A stage of a run: work that is named by its inputs, done once, and committed last.

1. Its identity is a fingerprint of its inputs and of the settings that can change its output.
2. It writes pieces under its own folder; a piece that is whole is never made again.
3. `stage.json`, written when everything else is there, makes it finished; an index by fingerprint lets other
   runs in the same storage use it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infocse_ray.progress import say
from infocse_ray.storage import Storage

_COMMIT, _STARTED = "stage.json", "started.json"


@dataclass(frozen=True)
class Stage:
    """A stage's identity and where its output is (or will be)."""

    kind: str
    fingerprint: str
    folder: Storage
    summary: dict[str, Any] | None = None
    """What the stage counted; None until it is finished."""

    @property
    def seconds(self) -> float | None:
        """Wall-clock seconds the stage took, without what a `kill -9` cut off; None until it is finished."""
        return None if self.summary is None else self.summary["seconds"]


def read_stage(folder: Storage) -> Stage:
    """The finished stage in `folder`.

    Raises:
        FileNotFoundError: nothing finished is there.
    """
    found = (folder / _COMMIT).read_json()
    return Stage(found["kind"], found["fingerprint"], folder, found["summary"])


def find_stage(root: Storage, folder: Storage, fingerprint: str) -> Stage | None:
    """The stage if it is finished, in its own folder or, by the index of `root`, in another run's."""
    places = [_own(folder, fingerprint)]
    index = root / "stages" / f"{fingerprint}.json"
    if index.exists():
        places.append(Storage(root.root, index.read_json()["folder"]))
    for place in places:
        if (place / _COMMIT).exists() and (done := read_stage(place)).fingerprint == fingerprint:
            return done
    return None


def _own(folder: Storage, fingerprint: str) -> Storage:
    """The stage's folder: `folder`, or one beside it where another stage was finished there, for runs may share it."""
    if not (folder / _COMMIT).exists() or read_stage(folder).fingerprint == fingerprint:
        return folder
    return Storage(folder.root, f"{folder.relative}-{fingerprint[:12]}")


def claim(folder: Storage, kind: str, fingerprint: str) -> Storage:
    """Make `folder` the stage's own: what another left there unfinished is removed, its own pieces stay."""
    started = folder / _STARTED
    if not started.exists() or started.read_json()["fingerprint"] != fingerprint:
        if folder.exists():
            say(f"{kind}: {folder} has unfinished work from other inputs or settings; it is removed")
            folder.delete()
        started.write_json({"kind": kind, "fingerprint": fingerprint, "seconds": 0.0})
    return started


def run_stage(
    root: Storage,
    folder: Storage,
    kind: str,
    fingerprint: str,
    work: Callable[[Stage], dict[str, Any]],
) -> Stage:
    """Return the finished stage, doing `work` only if no run in `root` has finished it.

    Args:
        root: the storage shared by runs, which holds the index `stages/`.
        folder: where this run would put the stage; if another is finished there, it goes beside it.
        kind: what the stage does, for people.
        fingerprint: the stage's identity.
        work: does it; gets the unfinished stage, writes below its folder, returns a JSON-able summary. After a
            crash it is called again with the pieces it had written still in place.
    """
    if (done := find_stage(root, folder, fingerprint)) is not None:
        return done
    if (own := _own(folder, fingerprint)) is not folder:
        say(f"{kind}: {folder} has it from other inputs or settings; now it goes to {own.name}")
        folder = own
    started = claim(folder, kind, fingerprint)
    begun, before = time.monotonic(), started.read_json()["seconds"]
    stage = Stage(kind, fingerprint, folder)
    try:
        summary = work(stage)
    except BaseException:
        seconds = before + time.monotonic() - begun
        with contextlib.suppress(OSError):  # what ended the work is what to tell of, a full disk among others
            started.write_json({"kind": kind, "fingerprint": fingerprint, "seconds": seconds})
        raise
    summary = {"seconds": round(before + time.monotonic() - begun, 2), **summary}
    (folder / _COMMIT).write_json({"kind": kind, "fingerprint": fingerprint, "summary": summary})
    (root / "stages" / f"{fingerprint}.json").write_json({"folder": folder.relative, "kind": kind})
    return Stage(kind, fingerprint, folder, summary)
