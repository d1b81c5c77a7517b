"""Configurations: YAML files of settings, those that are shipped and a user's own."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from infocse_ray.settings.fields import is_section
from infocse_ray.settings.nested import nested
from infocse_ray.settings.section import names_of_now
from infocse_ray.settings.yaml_values import load_yaml

_CONFIGS = files("infocse_ray") / "configs"


def shipped_configs() -> list[str]:
    """The configurations that come with the package, by the name that `--config` takes."""
    return sorted(file.name.removesuffix(".yaml") for file in _CONFIGS.iterdir() if file.name.endswith(".yaml"))


def read_config(name: str, model: type[BaseModel], setting: str = "--config") -> dict[str, Any]:
    """A configuration as a tree of settings: a file, or one of `shipped_configs`.

    Args:
        name: of either; a file wins.
        model: what it is for.
        setting: that named it, for errors.

    Raises:
        ValueError: there is none of this name, it is no YAML mapping, or it is shipped for other settings.
    """
    if is_shipped(name):
        text = (_CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    elif not os.path.isfile(name):  # of Path it would be an error for a text that can't be a name
        shipped = ", ".join(shipped_configs())
        raise ValueError(f"{setting} = {name!r}: no such file; the shipped ones are {shipped}")
    else:
        try:
            text = Path(name).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{setting} = {name!r}: is no UTF-8 text ({error.reason} at byte {error.start})"
            ) from error
    try:
        values = load_yaml(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{setting} = {name!r}: is no YAML: {_yaml_reason(error)}") from error
    if not isinstance(values, dict):
        raise ValueError(
            f"{setting} = {name!r}: is no YAML mapping of settings to values; `--config adapt --print_config` shows one"
        )
    settings = as_settings(values, model)
    if is_shipped(name) and (others := [key for key in settings if key not in model.model_fields]):
        raise ValueError(
            f"{setting} = {name!r}: is for another command, with settings ({', '.join(others)}) of its own"
        )
    return settings


def is_shipped(name: str) -> bool:
    """Whether a configuration of this name is a shipped configuration; a file wins."""
    return name in shipped_configs() and not os.path.isfile(name)


def as_settings(values: dict[Any, Any], model: type[BaseModel]) -> dict[str, Any]:
    """What YAML made of a tree of settings, as the settings mean it.

    Names may be dotted (`train.batch_size: 64`), those of earlier versions are today's, so that what is later wins by
    either, and a section with all its lines commented out is left out.
    """
    return _meant({name: section for name, section in nested(values).items() if section is not None}, model)


def _meant(values: dict[Any, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Names of now, and truth values as text where a setting takes none: Python would count `k: true` as one."""
    out = names_of_now(values, getattr(model, "renamed", {}))
    for name, value in out.items():
        if name not in model.model_fields:
            continue
        kind = model.model_fields[name].annotation
        if isinstance(value, dict) and is_section(kind):
            out[name] = _meant(value, kind)
        elif isinstance(value, bool) and bool not in (kind, *get_args(kind)):
            out[name] = str(value).lower()
    return out


def _yaml_reason(error: yaml.YAMLError) -> str:
    """A YAML error and its position, in one line."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    reason = " ".join((getattr(error, "problem", None) or str(error)).split())
    return where + (f"{reason}; indent with spaces" if "'\\t'" in reason else reason)
