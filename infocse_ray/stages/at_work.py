"""A sign that a driver without a run is at work on a storage, so that `clean` leaves what it reads.

Runs hold a lease of their own, and whoever makes a stage that of the stage: between stages, and while stages are made
in another storage, nothing else would show.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator

from infocse_ray.stages.lease import Lease
from infocse_ray.storage.folder import Storage

SIGN = "at-work-"
"""What the files' names begin with, in the folder `stages`; each is one driver's alone."""


@contextlib.contextmanager
def at_work(root: Storage, command: str) -> Iterator[None]:
    """Leave a sign in `root`, the storage that runs share, as long as this lasts; one of a process that died expires.

    Args:
        root: the storage.
        command: who is at work, for people.
    """
    with Lease(root / "stages" / f"{SIGN}{secrets.token_hex(8)}.lease", command) as lease:
        lease.take()
        yield
