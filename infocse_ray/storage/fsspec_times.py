"""When files were written, of filesystems that pyarrow reaches by fsspec."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pyarrow.fs as pafs

_NAMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
"""What filesystems call it; pyarrow knows the first."""


class TimedHandler(pafs.FSSpecHandler):
    """pyarrow's handler of a filesystem of fsspec, which knows when files were written where that one says it."""

    @staticmethod
    def _create_file_info(path: str, info: Mapping[str, Any]) -> pafs.FileInfo:
        return pafs.FSSpecHandler._create_file_info(path, {**info, "mtime": written(info)})  # pyright: ignore


def written(info: Mapping[str, Any]) -> datetime | None:
    """When a file was written, in UTC, by what fsspec says of it; None where that isn't said."""
    value = next((info[name] for name in _NAMES if info.get(name) is not None), None)
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, int | float):
        with suppress(ValueError, OverflowError, OSError):  # not of seconds
            value = datetime.fromtimestamp(value, UTC)
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _parsed(text: str) -> datetime | None:
    """By ISO 8601, or as HTTP writes dates."""
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError):
            return parse(text)
    return None
