"""The folder of a run, of a sweep or of tables is its own: stages take the place of what is there, and `infocse clean`
removes it.

So one that has a user's files is refused before anything is written.
"""

from __future__ import annotations

from infocse_ray.loop.contents import TOGETHER
from infocse_ray.stages.stage import STAGE_FILES
from infocse_ray.storage.folder import Storage

_MARKS = ("manifest.json", "driver.lease", *TOGETHER)
"""What a folder of ours has, if anything."""
_BEFORE_A_MANIFEST = ("events", "tracking")


def check_own_folder(folder: Storage, name: str) -> None:
    """Refuse a folder with files that no run, sweep or tables made.

    Stages that other runs refer to stay where a run was removed, and what shows a run may come before its manifest.

    Args:
        folder: `<storage>/<name>`.
        name: as the user gave it.

    Raises:
        ValueError: it has such files.
    """
    if any((folder / mark).exists() for mark in _MARKS):
        return
    files = folder.files()
    stages = tuple(f"{path.rpartition('/')[0]}/" for path in files if path.rpartition("/")[2] in STAGE_FILES)
    for path in sorted(files):
        if not path.startswith((".", *stages)) and path.partition("/")[0] not in _BEFORE_A_MANIFEST:
            raise ValueError(
                f"name = {name!r}: {folder} has {path}, which no run made and which would be lost; give another name"
            )
