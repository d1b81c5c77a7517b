"""What really went wrong, where Ray hands on an error of another process wrapped in errors of its own.

Ray keeps the original as an attribute, or only its name and message in the text of a traceback; both are looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from typing import TypeVar

from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError, RayError, WorkerCrashedError

from infocse_ray.errors import LeaseLost, NoSpace, OutOfMemory, StorageUnavailable, TrainingStopped, WorkersLost
from infocse_ray.storage.errors import explanation

Kind = TypeVar("Kind", bound=BaseException)

_WRAPPED = ("cause", "_base_exc", "controller_failure")
"""Attributes in which RayTaskError and Ray Train's errors of a worker and of its controller keep the original."""

_ENDS_TRACEBACK = re.compile(r"^(?!ray\.)(?:[\w.]+\.)?[A-Z]\w*: .+$", re.MULTILINE)
"""The line that names an error at the end of its traceback, errors of Ray excepted."""

_LOST = (RayActorError, OutOfMemoryError, WorkerCrashedError, NodeDiedError)

_FULL_NODE = re.compile(r"Memory on the node \(IP: ([^,)]+)[^)]*\).*? was ([\d.]+)GB(?: used)? / ([\d.]+)GB", re.DOTALL)
"""Where Ray's memory monitor says why it ended processes: the node, what is in use there, and what there is."""

_FULL_OF_RAY = {
    "OutOfDiskError": "Ray's temporary folder (RAY_TMPDIR, else /tmp/ray): its object store has no room left, nor has "
    "the disk; make room there, or start Ray with a temporary folder elsewhere, then the same command goes on",
    "ObjectStoreFullError": "Ray's object store is full; start Ray with a larger one (ray start "
    "--object-store-memory), or run less beside, then the same command goes on",
}
"""What Ray's own errors, by name, say of a place that isn't this library's storage."""

_REFUSED = re.compile(
    r"^.*(?:Permission denied|Operation not permitted|AWS Error (?:ACCESS_DENIED|INVALID_ACCESS_KEY_ID"
    r"|INVALID_SIGNATURE|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT)|HTTP status 40[013]|ExpiredToken"
    r"|PERMISSION_DENIED).*$",
    re.MULTILINE,
)
"""What file systems and object stores say to whom they don't let in."""

_MISSING = re.compile(rf"^.*{os.strerror(errno.ENOENT)}.*$", re.MULTILINE)
_PATH = re.compile(r"'(/[^']+)'")
_ADVICE = re.compile(r" (?:Some common causes|Consider|To troubleshoot|Refer to|Check python-core-worker) ?.*")
"""What Ray says after what happened: guesses, and variables of its own to set."""


def cause_of(error: BaseException) -> BaseException | str:
    """The error that Ray's own wrap, or, where there is only text, the line of the traceback that says it."""
    chain = list(_chain(error))
    for link in chain:
        if not _of_ray(link):
            return link
    if named := _ENDS_TRACEBACK.findall(str(error)):
        return named[-1].strip()
    lines = _lines(str(error)) or _lines(str(chain[-1]))
    return lines[-1] if lines else type(error).__name__


def one_line(error: BaseException) -> str:
    """What caused `error`, in a line for people; the kind is left out where the message is written for them."""
    if full := _FULL_NODE.search("\n".join(map(str, _chain(error)))):
        node, used, there_is = full.groups()
        return (
            f"node {node} ran out of memory ({used} of {there_is} GB in use), so Ray ended processes there: free "
            "memory, or give it fewer workers (train.num_workers, annotate.num_workers)"
        )
    if (elsewhere := not_shared(error)) is not None:
        return elsewhere
    cause = cause_of(error)
    if isinstance(cause, str):
        return _ADVICE.sub("", cause)
    lines = _lines(str(cause))
    text = lines[0] if lines else ""
    kind = "" if isinstance(cause, (ValueError, NoSpace, StorageUnavailable)) and text else type(cause).__name__
    return ": ".join(part for part in (kind, text) if part)


def process_lost(error: BaseException) -> bool:
    """Whether a process ended, or its node did: what it was at may well go well another time."""
    return any(isinstance(link, _LOST) for link in _chain(error))


def caused_by(error: BaseException, kind: type[Kind]) -> Kind | None:
    """The error of this kind that led to `error`, with a message of one line; None if none did."""
    for link in _chain(error):
        if isinstance(link, kind) and not _of_ray(link):
            lines = _lines(str(link))
            return kind(lines[0]) if len(lines) > 1 else link
    named = re.findall(rf"^\s*(?:[\w.]+\.)?{kind.__name__}: (.+)$", str(error), re.MULTILINE)
    return kind(named[-1].strip()) if named else None


def storage_failure(error: BaseException, where: object = "storage") -> NoSpace | StorageUnavailable | None:
    """The full disk, also Ray's own, or the object store out of reach, that led to `error`; None: something else.

    Args:
        error: any.
        where: what it is about, should the error not say.
    """
    if cause := caused_by(error, NoSpace) or caused_by(error, StorageUnavailable):
        return cause
    for name, line in _FULL_OF_RAY.items():
        if any(_of_ray(link) and name in f"{type(link).__name__}: {link}" for link in _chain(error)):
            return NoSpace(line)
    of_libraries = (explanation(link, where) for link in _chain(error) if isinstance(link, OSError) or _of_ray(link))
    return next((failure for failure in of_libraries if failure is not None), None)


def refused(error: BaseException) -> str | None:
    """A line about storage that doesn't let this user or a node in, where that led to `error`; None if it didn't."""
    for link in _chain(error):
        if isinstance(link, OSError) or _of_ray(link):
            if lines := _REFUSED.findall(str(link)):
                return (
                    f"{lines[-1].strip()}; let the user, or the role, of this process and of all nodes read and write "
                    "there (are its credentials right, and of today?), or name another folder or URI"
                )
            if isinstance(link, PermissionError) and not _of_ray(link):  # of one's own making: it says what to do
                return str(link)
    return None


def not_shared(error: BaseException) -> str | None:
    """A line about a file that another process didn't find and this one does: a folder that a node hasn't mounted."""
    chain = list(_chain(error))
    if not any(map(_of_ray, chain)):
        return None
    missing = [path for link in chain for line in _MISSING.findall(str(link)) for path in _PATH.findall(line)]
    if (path := next(filter(os.path.exists, missing), None)) is None:
        return None
    return (
        f"storage: a worker doesn't find {path}, which this process does; mount one folder under this path on every "
        "node, or give a URI that all of them reach"
    )


@contextlib.contextmanager
def told_plainly() -> Iterator[None]:
    """Errors of the block that Ray wrapped come out as what was raised in the other process: of its kind, in a line.

    Where a process was lost, or storage failed, that is one of `infocse_ray.errors`. Ray's error is what it comes from.
    """
    try:
        yield
    except Exception as error:
        if (plain := _plain(error)) is None:
            raise
        raise plain from error


def _plain(error: Exception) -> Exception | None:
    """What to raise in place of an error; None: itself."""
    if not any(map(_of_ray, _chain(error))) or isinstance(error, TrainingStopped):
        return None
    if isinstance(cause := cause_of(error), (ValueError, TrainingStopped, LeaseLost)):
        return None if cause is error else cause
    if (failure := storage_failure(error)) is not None:
        return None if failure is error else failure
    if (line := refused(error) or not_shared(error)) is not None:
        return ValueError(line)
    if (full := caused_by(error, OutOfMemory)) is not None:
        return None if full is error else full
    if process_lost(error):
        return WorkersLost(f"{one_line(error).rstrip('.')}; what is finished is kept, and the same call goes on")
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and all that led to it, outermost first."""
    seen = [error]
    for link in seen:
        yield link
        seen += [inner for inner in (*_inside(link), link.__cause__) if inner is not None and inner not in seen]


def _inside(error: BaseException) -> list[BaseException]:
    """The errors that an error wraps."""
    wrapped = [*getattr(error, "worker_failures", {}).values(), *(getattr(error, name, None) for name in _WRAPPED)]
    return [inner for inner in wrapped if isinstance(inner, BaseException)]


def _of_ray(error: BaseException) -> bool:
    return isinstance(error, RayError) or type(error).__module__.partition(".")[0] == "ray"


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
