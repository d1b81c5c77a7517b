"""The row of a configuration for `pretrain`, such as `adapt`: its file is read, not copied.

What the file says of pairs, their loss and what is kept of a training holds. What the tables settle for all rows is
theirs: corpus, encoder, validation, budget, learning rates; and so is, of the rest, what their own settings name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infocse_ray.report.studies import ADAPT, METHODS, TableMethod
from infocse_ray.settings import Settings
from infocse_ray.settings.configurations import read_config

_OF_ALL_ROWS = ("name", "storage", "seed", "minutes", "corpus", "encoder", "validate", "labels", "finetune", "plusplus")
"""Sections that are the same in all rows."""

_BUDGET = {
    "train": ("learning_rate", "max_steps", "max_tokens"),
    "loop": (
        "initialization",  # kept as the method's
        "max_iterations",
        "early_stop",
        "initialization_steps",
        "initialization_tokens",
        "initialization_patience",
    ),
}


def adapt_method(file: str) -> TableMethod:
    """The method that a configuration makes, under the tables' budget.

    Args:
        file: one that is shipped, by name, or a YAML file.

    Raises:
        ValueError: the file isn't there, or is no configuration.
    """
    values = _read(file)
    train, loop = values.get("train", {}), values.get("loop", {})
    method = train.get("method", "idc")
    family = {"idc": "infocse", "none": "start"}.get(str(method), str(method))
    if values.get("recipe"):
        raise ValueError(f"adapt = {file!r}: recipe = {values['recipe']!r}: name the method that it chose instead")
    if family not in METHODS:
        raise ValueError(
            f"adapt = {file!r}: train.method = {method!r} is no method; `infocse pretrain` --help has them"
        )
    initialization = loop.get("initialization") or "none"
    if family != "infocse" and initialization != "none":
        raise ValueError(
            f"adapt = {file!r}: loop.initialization = {initialization!r}: the tables have an initialisation before "
            "train.method = idc alone; set it to none"
        )
    defaults = {
        name: {key: value for key, value in section.items() if key not in _BUDGET.get(name, ())}
        for name, section in values.items()
    }
    return METHODS[ADAPT]._replace(
        label=f"{METHODS[family].label}, as {Path(file).name} has it",
        family=METHODS[family].family,
        settings={"train.method": method},
        initialization=initialization,
        defaults=defaults,
    )


def _read(name: str) -> dict[Any, Any]:
    values = read_config(name, Settings, "adapt")
    sections = {section: of_it for section, of_it in values.items() if section not in _OF_ALL_ROWS and of_it}
    for section, of_it in sections.items():
        if not isinstance(of_it, dict) and section != "recipe":
            raise ValueError(f"adapt = {name!r}: {section} = {of_it!r}: is no YAML mapping of settings")
    return sections
