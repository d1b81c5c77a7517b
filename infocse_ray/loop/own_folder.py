"""The folder of a run, of a sweep or of tables is its own: stages take the place of what is there, and `infocse clean`
removes it.

So one that has a user's files is refused before anything is written.
"""

from __future__ import annotations

from infocse_ray.errors import DamagedFile
from infocse_ray.loop.manifest import NoManifest, read_manifest
from infocse_ray.settings.section import MARKS
from infocse_ray.stages.stage import STAGE_FILES
from infocse_ray.storage.folder import Storage

_BEFORE_A_MANIFEST = ("events", "tracking")
_MANIFEST = "manifest.json"


def check_own_folder(folder: Storage, name: str) -> None:
    """Refuse a folder with files that no run, sweep or tables made.

    A folder with a stage is ours, though its manifest be lost, or the run removed but for stages that others refer to.
    What shows a run may come before its manifest.

    Args:
        folder: `<storage>/<name>`.
        name: as the user gave it.

    Raises:
        ValueError: it has such files.
    """
    if any((folder / mark).exists() and not (mark == _MANIFEST and _is_somebodys(folder)) for mark in MARKS):
        return
    files = folder.files()
    if any(path.rpartition("/")[2] in STAGE_FILES for path in files):
        return
    for path in sorted(files):
        if not path.startswith(".") and path.partition("/")[0] not in _BEFORE_A_MANIFEST:
            raise ValueError(
                f"name = {name!r}: {folder} has {path}, which no run made and which would be lost; give another name"
            )


def _is_somebodys(folder: Storage) -> bool:
    """Whether other software wrote the manifest."""
    try:
        read_manifest(folder)
    except NoManifest:
        return True
    except (FileNotFoundError, DamagedFile):
        pass
    return False
