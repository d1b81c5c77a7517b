"""Whether the driver finds what workers wrote: a folder that isn't shared looks on every node as if all were well."""

from __future__ import annotations

from collections.abc import Iterable

from infocse_ray.storage.folder import Storage


def check_shared(folder: Storage, names: Iterable[str]) -> None:
    """See that files are there that workers have written.

    Args:
        folder: of the stage.
        names: of the files in it.

    Raises:
        ValueError: some aren't.
    """
    there = folder.files()
    missing = [name for name in names if name not in there]
    if missing:
        written = f"{len(missing):,} files, such as {folder / missing[0]}"
        raise ValueError(
            f"storage: workers wrote {written}, which this process doesn't find; mount one folder under this path on "
            "every node, or give a URI that all of them reach"
        )
