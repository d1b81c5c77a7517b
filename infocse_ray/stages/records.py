"""Records: small JSON files of what came of a cell or a trial, by which the same command knows that it is done.

A record that is damaged counts as none: what it was of is run again, and finds the stages it had finished.
"""

from __future__ import annotations

from typing import Any

from infocse_ray.runtime.progress import say
from infocse_ray.storage.checksums import OTHER, checked, verified
from infocse_ray.storage.folder import Storage


def write_record(file: Storage, record: dict[str, Any]) -> None:
    """Write a record, JSON-able and with the `identity` of what it is of."""
    file.write_json(checked(record))


def read_record(file: Storage, identity: str) -> dict[str, Any] | None:
    """The record in `file`; None if there is none, it is of another identity, or it isn't as it was written."""
    try:
        record = verified(file.read_bytes())
    except FileNotFoundError:
        return None
    if record is None:
        say(f"{file} is damaged ({OTHER}); it is read again from its source")
        return None
    return record if record["identity"] == identity else None
