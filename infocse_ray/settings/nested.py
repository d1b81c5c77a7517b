"""Trees of settings, before they are checked: mappings of names to values or to mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def nested(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """`{"train.batch_size": 64}`, as the command line gives it, as `{"train": {"batch_size": 64}}`."""
    out: dict[Any, Any] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".") if isinstance(name, str) else (name, "", "")
        inner = nested({rest: value} if rest else value) if rest or isinstance(value, Mapping) else value
        out = merged(out, {head: inner})
    return out


def merged(values: dict[Any, Any], over: dict[Any, Any]) -> dict[Any, Any]:
    """Both trees in one; `over` wins."""
    out = dict(values)
    for name, value in over.items():
        both = isinstance(value, dict) and isinstance(out.get(name), dict)
        out[name] = merged(out[name], value) if both else value
    return out
