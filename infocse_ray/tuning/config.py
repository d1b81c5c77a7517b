"""Settings of a sweep: what to try, from which of Ray Tune's search spaces, and when to stop a trial early."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from infocse_ray.settings import Section, Settings, run_name
from infocse_ray.settings.explain import not_a
from infocse_ray.settings.fields import dotted_names, renamed_settings
from infocse_ray.settings.nested import nested
from infocse_ray.settings.section import FEW_SHOT, HOW_NOT_WHAT

_NUMBERS = ("uniform", "quniform", "loguniform", "qloguniform", "randint", "qrandint", "lograndint", "qlograndint")
SPACES = ("grid", "choice", *_NUMBERS)
"""Ray Tune's search spaces by the names of the functions that make them; `grid` is `grid_search`."""

_NO_PARAMETER = {
    **dict.fromkeys(("name", "storage"), "it follows from the sweep's; leave it out"),
    "corpus": "trials would be validated on different documents; make a sweep for each corpus",
    **dict.fromkeys(
        ("validate.metric", "validate.on", "validate.reading", "validate.max_documents", "validate.max_candidates"),
        "scores couldn't be compared",
    ),
    "validate.sts": "it changes no training; set it in `settings`",
    **dict.fromkeys(FEW_SHOT, "`infocse pretrain` doesn't read it"),
    **dict.fromkeys(("explorer", "tracking"), "it changes no result"),
    **dict.fromkeys((f"annotate.{name}" for name in HOW_NOT_WHAT), "it changes no result"),
    **dict.fromkeys((f"train.{name}" for name in HOW_NOT_WHAT), "it changes no result"),
}
"""Settings, or whole sections, that no sweep is over, and why."""


class Asha(Section):
    """asha: stopping trials early (asynchronous successive halving, Li et al. 2020)."""

    grace_iterations: int | None = Field(
        default=None,
        ge=1,
        description="Iterations after which, and again after reduction_factor times as many, a trial goes on only "
        "if its validation score is among the best 1 / reduction_factor of all so far. Default: no trial is stopped.",
    )
    reduction_factor: float = Field(default=2.0, gt=1.0, description="See grace_iterations.")

    @model_validator(mode="after")
    def _stops_something(self) -> Asha:
        if self.grace_iterations is None and self.reduction_factor != 2.0:
            raise ValueError(
                f"asha.reduction_factor = {self.reduction_factor:g}: no trial is stopped without "
                "asha.grace_iterations; give that, too, or leave it out"
            )
        return self


class Sweep(Section):
    """The trials to run."""

    trees: ClassVar = {"settings": Settings}
    whole: ClassVar = ("parameters",)

    name: str = Field(description="Name of the sweep: letters, digits, dot, dash, underscore.")
    storage: str = Field(
        default="runs",
        min_length=1,
        description="Folder or URI that every node reaches; the table is in <storage>/<name>, a trial's run in "
        "<storage>/<name>-<its values>.",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of every trial, as `infocse pretrain` takes them; on the command line by dotted "
        "name, such as --settings.train.max_steps 500.",
    )
    parameters: dict[str, Any] = Field(
        description="Settings of `infocse pretrain` by dotted name, each with a search space of Ray Tune. `grid: "
        "[1, 2, 3]`: every value, with every value of the other grids. Drawn anew for each sample: `choice: [a, "
        "b]`, one of these; `uniform: [low, high]` or `loguniform: [low, high]`, a number between these; for whole "
        "numbers `randint: [low, high]` or `lograndint: [low, high]`, `high` excluded. With q before the name and a "
        "third number: multiples of that."
    )
    samples: int = Field(
        default=1,
        ge=1,
        description="How many samples are drawn from all spaces but grids; the whole grid is tried with each sample.",
    )
    seed: int = Field(
        default=42,
        ge=0,
        lt=2**31,
        description="Seed of what is drawn, sample by sample: with more samples the earlier ones stay the same.",
    )
    asha: Asha = Field(default_factory=Asha)
    max_concurrent: int | None = Field(
        default=None,
        ge=1,
        description="Most trials at a time. If given, `auto` numbers of workers are a trial's share of the "
        "cluster. Default: as many as there are GPUs (or CPU cores) for, at annotate.num_workers and "
        "train.num_workers each; one, if these are `auto` and a trial takes the whole cluster.",
    )
    only: Literal["plan"] | None = Field(
        default=None, description="`plan`: print the trials and their state, and run nothing."
    )

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        return run_name(value)

    @field_validator("settings")
    @classmethod
    def _settings_of_a_trial(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name in {"name", "storage"} & values.keys():
            raise ValueError(f"settings: {name} follows from `{name}` of the sweep; leave it out")
        return nested(values)

    @field_validator("parameters", mode="before")
    @classmethod
    def _by_dotted_name(cls, values: Any) -> Any:
        renamed = dict(renamed_settings(Settings))
        return {renamed.get(n, n): how for n, how in _flat(values)} if isinstance(values, Mapping) else values

    @field_validator("parameters")
    @classmethod
    def _known_spaces(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        if not parameters:
            raise ValueError("parameters: name at least one setting, such as annotate.k: {grid: [1, 2, 3]}")
        known = list(dotted_names(Settings))
        for name, how in parameters.items():
            if name not in known:
                hint = "; `infocse pretrain --help all` lists them"
                raise ValueError(f"parameters: {not_a('setting of `infocse pretrain`', name, known, hint)}")
            for place in {name, name.partition(".")[0]} & _NO_PARAMETER.keys():
                raise ValueError(f"parameters: {name} can't be swept: {_NO_PARAMETER[place]}")
            search_space(name, how)
        return parameters

    @model_validator(mode="after")
    def _draws_something(self) -> Sweep:
        if self.samples > 1 and all("grid" in how for how in self.parameters.values()):
            # Of trials with the same values there is one.
            raise ValueError(
                f"samples = {self.samples}: all parameters are grids, of which nothing is drawn; leave it out, or give "
                "one a space to draw from, such as choice"
            )
        return self


def search_space(name: str, how: Any) -> Any:
    """A parameter's space as Ray Tune takes it.

    Raises:
        ValueError: one line that names the parameter and the fix.
    """
    if not isinstance(how, dict) or len(how) != 1 or not how.keys() & set(SPACES):
        raise ValueError(f"parameters: {name} = {how!r}: give one of {', '.join(SPACES)}, such as {{grid: [1, 2, 3]}}")
    [(way, values)] = how.items()
    where = f"parameters: {name}: {way} = {values!r}"
    if not isinstance(values, list) or not values:
        raise ValueError(f"{where}: give a list, such as [1, 2]")
    from ray import tune  # the help does without

    if way == "grid":
        return tune.grid_search(values)
    if way == "choice":
        return tune.choice(values)
    try:
        if len(values) != (3 if way.startswith("q") else 2):
            raise ValueError("Tune takes a third number of some for another base of logarithms")
        # YAML reads 1e-5 as text; str: int(2.5) would be 2.
        low, high, *step = [int(str(value)) if "randint" in way else float(value) for value in values]
        space = getattr(tune, way)(min(low, high), max(low, high), *step)
        if not all(map(math.isfinite, (low, high, *step))):
            raise ValueError("not a number to draw between")
        if step and step[0] <= 0:
            raise ValueError("multiples of a negative number can lie outside the bounds")
        space.sample(random_state=np.random.RandomState(0))  # Tune checks the bounds of some only as it draws
    except (TypeError, ValueError, ArithmeticError) as error:
        third = " and the step" if way.startswith("q") else ""
        kind = "whole numbers" if "randint" in way else "numbers, the lower above 0" if "log" in way else "numbers"
        raise ValueError(f"{where}: give {kind}, the lowest and the highest{third}") from error
    if low >= high:
        raise ValueError(f"{where}: give the lower number first")
    return space


def _flat(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every parameter by its dotted name, however deep the YAML has it."""
    for key, value in nested(tree).items():
        name = f"{prefix}{key}"
        section = any(known.startswith(f"{name}.") for known in dotted_names(Settings))
        if section and isinstance(value, dict) and value and not value.keys() & set(SPACES):
            yield from _flat(value, f"{name}.")
        else:
            yield name, value
