"""The settings of a model one by one: their dotted names, and their types as people write them."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any, Literal, TypeGuard, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo


def dotted_names(model: type[BaseModel]) -> Iterator[str]:
    """Every setting by its name on the command line."""
    return (name for name, _ in settings_of(model))


def settings_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every setting by its name on the command line, with its field."""
    for name, field in model.model_fields.items():
        if is_section(field.annotation):
            yield from settings_of(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def defaults_of(model: type[BaseModel]) -> dict[str, Any]:
    """The default of every setting by its name on the command line; None where a value is required."""
    return {
        name: None if field.is_required() else field.get_default(call_default_factory=True)
        for name, field in settings_of(model)
    }


def renamed_settings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """What settings were called in earlier versions and are called now, by their names on the command line."""
    for prefix, section in _sections(model):
        for old, new in getattr(section, "renamed", {}).items():
            yield prefix + old, prefix + new


def removed_settings(model: type[BaseModel]) -> Iterator[str]:
    """Settings of earlier versions that are gone, by their names on the command line."""
    return (prefix + name for prefix, section in _sections(model) for name in getattr(section, "removed", {}))


def _sections(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """The model and its sections, each with what its settings' names begin with."""
    yield prefix, model
    for name, field in model.model_fields.items():
        if is_section(field.annotation):
            yield from _sections(field.annotation, f"{prefix}{name}.")


def is_section(kind: Any) -> TypeGuard[type[BaseModel]]:
    """Whether a field's type is a tree of settings of its own."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def words_of_type(field: FieldInfo) -> str:
    """The values that a setting accepts, in words, such as `auto | number, at least 1`."""
    return _words(field.annotation, field.metadata)


def words_to_choose(kind: Any) -> tuple[str, ...]:
    """The words of a setting that is one of some, or a list of such; none of any other."""
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _words(kind: Any, metadata: Any = ()) -> str:
    if get_origin(kind) is Annotated:
        kind, *inner = get_args(kind)
        metadata = [*(m for one in inner for m in (one.metadata if isinstance(one, FieldInfo) else [one])), *metadata]
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        words = " | ".join(str(value) for value in inside)
    elif origin is list:
        words = f"list of {_words(inside[0])}"
    elif origin is dict or is_section(kind):
        words = "mapping"
    elif inside:  # a union
        words = " | ".join(_words(one) for one in inside)
    else:
        words = _NAMES.get(kind, getattr(kind, "__name__", str(kind)).lower())
    bounds: dict[Any, str] = {}
    for one in metadata:
        bounds |= {bound: said.format(getattr(one, name)) for bound, name, said in _BOUNDS if isinstance(one, bound)}
    if Gt in bounds:
        bounds.pop(Ge, None)
    return ", ".join([words, " and ".join(bounds.values())]) if bounds else words


_NAMES: dict[Any, str] = {int: "whole number", float: "number", str: "text", bool: "true | false", NoneType: "null"}
_BOUNDS = (
    (Ge, "ge", "at least {:,}"),
    (Gt, "gt", "more than {:,}"),
    (Le, "le", "at most {:,}"),
    (Lt, "lt", "less than {:,}"),
)
