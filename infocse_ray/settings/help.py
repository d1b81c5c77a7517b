"""The help of a command: the few settings that one needs, or all of them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infocse_ray.settings.fields import is_section, settings_of, words_of_type, words_to_choose

_WIDTH = 100
_OPTIONS = (
    ("config", "A configuration that is shipped, by name, or a YAML file; options override it."),
    ("print_config", "Print the settings as YAML, and end."),
    ("help all", "Every setting."),
)


def short_help(model: type[BaseModel], prog: str, description: str, essentials: Sequence[str]) -> str:
    """Short help: what the command does, the settings one needs, and how to see the others."""
    fields = dict(settings_of(model))
    lines = [f"usage: {prog} [--config NAME] [--SETTING VALUE ...]", "", description.strip(), "", "Settings one needs:"]
    for name in essentials:
        said = _first_sentence(fields[name].description or "")
        if words_to_choose(fields[name].annotation):
            said += f" ({_type_and_default(fields[name])})"
        lines += _entry(name, said)
    more = len(fields) - len(essentials)
    count = f"{more} more setting{'s' if more > 1 else ''}"
    lines += ["", f"Options (and {count}, by --help all):" if more else "Options:"]
    for name, said in _OPTIONS:
        lines += _entry(name, said)
    return "\n".join(lines)


def full_help(model: type[BaseModel], prog: str, description: str) -> str:
    """Full help: what the command does, and every setting with its type, default and description."""
    lines = [f"usage: {prog} [--config NAME] [--SETTING VALUE ...]", "", description.strip(), "", "Options:"]
    for name, said in _OPTIONS:
        lines += _entry(name, said)
    lines += ["", "Settings:", *_entries(model, "")]
    return "\n".join(lines)


def _entries(model: type[BaseModel], prefix: str) -> Iterator[str]:
    # A section's own settings come before those of the sections in it.
    for name, field in model.model_fields.items():
        if not is_section(field.annotation):
            yield from _entry(prefix + name, f"{field.description} ({_type_and_default(field)})")
    for name, field in model.model_fields.items():
        if is_section(kind := field.annotation):
            yield from ("", textwrap.fill((kind.__doc__ or name).strip(), _WIDTH))
            yield from _entries(kind, f"{prefix}{name}.")


def _type_and_default(field: FieldInfo) -> str:
    if field.is_required():
        return f"{words_of_type(field)}; required"
    return f"{words_of_type(field)}; default: {_shown(field.get_default(call_default_factory=True))}"


def _entry(name: str, said: str) -> list[str]:
    option = f"  --{name} "
    said = " ".join(said.split())
    lines = textwrap.wrap(said, _WIDTH, initial_indent=" " * 28, subsequent_indent=" " * 28, break_on_hyphens=False)
    if len(option) <= 28 and lines:
        lines[0] = option.ljust(28) + lines[0].lstrip()
        return lines
    return [option.rstrip(), *lines]


def _first_sentence(text: str) -> str:
    head, dot, _ = text.partition(". ")
    return head + ("." if dot else "")


def _shown(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return value if isinstance(value, str) else json.dumps(value)
