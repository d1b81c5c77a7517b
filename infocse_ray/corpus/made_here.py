"""Files of runs and of embedded vectors, which are no documents where a corpus is the folder that they are in."""

from __future__ import annotations

import re
from collections.abc import Iterable

from infocse_ray.settings.section import MARKS, SHARED

_INDEX = re.compile(r"(.*/|)stages/[0-9a-f]{32}\.json")
"""An entry of the index that every storage of runs has."""
_VECTORS = re.compile(r"(.*/|)(encoder|vectors)/stage\.json")
"""What `infocse embed` has made, beside `embedding.json`."""


def made_here(paths: Iterable[str]) -> tuple[str, ...]:
    """The folders, each with a slash behind, that have what this library wrote, of those that have these files."""
    there = list(paths)
    names = {*there}
    storages = {match[1] for path in there if (match := _INDEX.fullmatch(path))}
    folders = {f"{storage}{shared}/" for storage in storages for shared in SHARED}
    for storage in storages:
        below = (path[len(storage) :].split("/") for path in there if path.startswith(storage))
        folders |= {f"{storage}{name}/" for name, *rest in below if rest and rest[0] in MARKS}
    outputs = {match[1] for path in there if (match := _VECTORS.fullmatch(path))}
    folders |= {output for output in outputs if f"{output}embedding.json" in names}  # which are refused other files
    return tuple(sorted(folders))
