"""Whether the driver finds what workers wrote: a folder that isn't shared looks on every node as if all were well."""

from __future__ import annotations

import time
from collections.abc import Iterable

from infocse_ray.storage.folder import Storage

_PATIENCE_SECONDS, _LOOK_SECONDS = 60.0, 2.0
"""A client of NFS may go by a listing that it made before, for so long."""


def check_shared(folder: Storage, names: Iterable[str], setting: str = "storage") -> None:
    """See that files are there that workers have written.

    Args:
        folder: of the stage.
        names: of the files in it.
        setting: that names where it is.

    Raises:
        ValueError: some aren't, and don't come.
    """
    missing, until = set(names), time.monotonic() + _PATIENCE_SECONDS
    while missing := missing - folder.files().keys():
        if time.monotonic() >= until:
            some = f"{len(missing):,} file{'' if len(missing) == 1 else 's'}, such as {folder / min(missing)}"
            raise ValueError(
                f"{setting}: workers wrote {some}, which this process doesn't find; mount one folder under this path "
                "on every node, or give a URI that all of them reach"
            )
        time.sleep(_LOOK_SECONDS)
