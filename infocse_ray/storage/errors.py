"""What goes wrong with storage and is no mistake in the settings: a full disk, an object store that doesn't answer.

Libraries report both in many ways; here they become one error each, whose message is a line that says where, how much
or how long, and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from time import monotonic

from infocse_ray.errors import NoSpace, StorageUnavailable
from infocse_ray.storage.redact import redacted

_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|StorageFull|QuotaExceeded|os error (?:28|122)\b|HTTP status 507"
)
_TRANSIENT = re.compile(
    r"AWS Error (?:SLOW_DOWN|NETWORK_CONNECTION|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|REQUEST_TIMEOUT|THROTTLING)\b.*"
    r"|AWS Error UNKNOWN \(HTTP status (?:429|5\d\d)\).*"
)
_MOUNT_ERRORS = (errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOTCONN)
"""What a folder says whose disk, or whose server (NFS, Lustre, FUSE), is gone or has become read-only."""
_MOUNT = re.compile(f"^.*(?:{'|'.join(re.escape(os.strerror(code)) for code in _MOUNT_ERRORS)}).*$", re.MULTILINE)
AS_GOOD_AS_NONE = 64 * 2**10
"""Bytes free on a disk that a library which doesn't say why it failed has filled."""


@contextlib.contextmanager
def explained(where: object, needed: int | None = None) -> Iterator[None]:
    """Make NoSpace and StorageUnavailable of whatever says so.

    Args:
        where: the file or folder the block works on, as people may see it.
        needed: bytes it writes; None: it isn't known, or it only reads.

    Raises:
        NoSpace: the disk or a quota is full.
        StorageUnavailable: an object store failed beyond all retries, or a mounted folder is out of reach.
    """
    begun = monotonic()
    try:
        yield
    except Exception as error:
        failure = explanation(error, where, needed, monotonic() - begun)
        if failure is None or failure is error:
            raise
        raise failure from error


def explanation(
    error: BaseException, where: object, needed: int | None = None, seconds: float | None = None
) -> NoSpace | StorageUnavailable | None:
    """The error as NoSpace or StorageUnavailable, as it is if it is one of them; None if it is neither.

    Args:
        error: any.
        where: the file or folder it is about.
        needed: bytes that were to be written, if known.
        seconds: how long it was tried, if known.
    """
    if isinstance(error, (NoSpace, StorageUnavailable)):
        return error
    text, place = str(error), str(where)
    free = free_bytes(place)
    filled = needed is not None and not isinstance(error, OSError) and free is not None and free < AS_GOOD_AS_NONE
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or _FULL.search(text) or filled:
        need = "" if needed is None else f": {needed:,} bytes to write" + ("" if free is None else f", {free:,} free")
        return NoSpace(f"{place}: no space left{need}; make room, then the same command goes on")
    if match := _TRANSIENT.search(text):
        tried = "" if seconds is None else f" for {seconds:.0f} s"
        return StorageUnavailable(
            f"{place}: the object store failed{tried}, retries and all ({redacted(match[0])}); once it answers, the "
            "same command goes on; retry_limit_seconds in its URI says how long to wait for it"
        )
    if lines := _MOUNT.findall(text):
        return StorageUnavailable(
            f"{place}: the file system failed ({redacted(lines[-1].strip())}); once it answers and can be written, the "
            "same command goes on"
        )
    return None


def free_bytes(place: str) -> int | None:
    """Bytes free on the disk of a local path; None for a URI."""
    if not os.path.isabs(place):
        return None
    while not os.path.exists(place):
        place = os.path.dirname(place)
    return shutil.disk_usage(place).free
