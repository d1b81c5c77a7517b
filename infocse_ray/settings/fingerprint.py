"""Names for content."""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel


def fingerprint(*parts: object) -> str:
    """Name content by what is in it: 32 hex digits of the BLAKE2b hash of `parts` as canonical JSON."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no canonical JSON form")
