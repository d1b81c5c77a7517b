"""Listings of filesystems of fsspec as they are now: several drivers and many workers write to one storage.

Most of these filesystems keep every folder that they have listed, in the process, for good: what another process wrote
since wouldn't be there, what it removed would, and a file that it wrote anew couldn't be read.
"""

from __future__ import annotations

from typing import Any


def keep_no_listings(filesystem: Any) -> None:
    """Have a filesystem ask its storage each time, as with its own option `use_listings_cache`.

    Not all of them take that option, so it is set where they all look it up.

    Args:
        filesystem: of fsspec; one of a kind and its options serves all of this process.
    """
    from fsspec.dircache import DirCache

    if isinstance(kept := getattr(filesystem, "dircache", None), DirCache) and kept.use_listings_cache:
        kept.use_listings_cache = False
        filesystem.invalidate_cache()
