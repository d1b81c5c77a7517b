"""Trees of settings, before they are checked: mappings of names to values or to mappings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


def without(values: Mapping[Any, Any], name: str) -> dict[Any, Any]:
    """A tree without the place of this dotted name."""
    head, _, rest = name.partition(".")
    if rest and isinstance(values.get(head), Mapping):
        return {**values, head: without(values[head], rest)}
    return {key: value for key, value in values.items() if rest or key != head}


def flat(values: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """`{"train": {"batch_size": 64}}` as `("train.batch_size", 64)`; an empty mapping is a value."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{at}{name}.")
        else:
            yield f"{at}{name}", value
