"""Settings that Python has as a mapping, checked: what is wrong with them in one line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from infocse_ray.settings.explain import explain
from infocse_ray.storage.redact import redacted

Checked = TypeVar("Checked", bound=BaseModel)


def validated(model: type[Checked], values: Mapping[str, Any]) -> Checked:
    """The settings, or what is wrong with them in one line.

    Raises:
        ValueError: they don't fit.
    """
    try:
        return model.model_validate(_paths_as_text(values))
    except ValidationError as error:
        raise ValueError(redacted(explain(error, model))) from None


def _paths_as_text(value: Any) -> Any:
    """Settings with a str for every `Path`."""
    if isinstance(value, Mapping):
        return {name: _paths_as_text(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_paths_as_text(one) for one in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
