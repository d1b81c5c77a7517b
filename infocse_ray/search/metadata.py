"""Metadata of what was found, for programs and people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from infocse_ray.corpus.metadata import type_name

_HOW = {"time": ": metadata.{0} >= date '2026-01-31'", "texts": ": array_has(metadata.{0}, 'x')"}
"""Of the types whose conditions nobody guesses."""


def as_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata that there is, as JSON takes it: times in ISO 8601."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in metadata.items()
        if value is not None
    }


def as_shown(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """Metadata that there is, by name, as people read it."""
    return {name: _shown(value) for name, value in (metadata or {}).items() if value not in (None, "", [])}


def _shown(value: Any) -> str:
    if isinstance(value, datetime):
        day = (value.hour, value.minute, value.second, value.microsecond) == (0, 0, 0, 0)
        return f"{value:%Y-%m-%d}" if day else value.isoformat(sep=" ")
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, list) else str(value)


def conditions_on(fields: Iterable[pa.Field]) -> list[str]:
    """How a condition names metadata, and what each is, for people."""
    named = []
    for field in fields:
        plain = field.name.isidentifier() and field.name.lower() not in ("true", "false", "null")
        name, kind = field.name if plain else f"`{field.name}`", type_name(field.type)
        named.append(f"metadata.{name} ({kind}{_HOW.get(kind, '').format(name)})")
    return named
