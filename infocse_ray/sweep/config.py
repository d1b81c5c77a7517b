"""What `infocse sweep` is told: the settings to try, how their values are chosen, when a trial is stopped early."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field, field_validator, model_validator

from infocse_ray.settings import Section, Settings, plain_name
from infocse_ray.settings.command_line import dotted_names, not_a
from infocse_ray.settings.nested import nested

LISTED, DRAWN = ("grid",), ("choice", "uniform", "loguniform")
"""Ways to give a parameter values: each once, or one a sample."""

_OF_THE_SWEEP = {"name": "name", "storage": "storage"}
"""Settings of a trial, and what of the sweep they follow from."""

_NO_PARAMETER = {
    "name": "it names the run; a trial is named after its values",
    "storage": "trials share their stages in one storage",
    "corpus": "trials would be validated on different documents; make a sweep for each corpus",
    "validate.metric": "scores of different metrics can't be compared; set it in `settings`",
    "validate.on": "trials would be asked different questions; set it in `settings`",
    "validate.max_documents": "trials would be asked different questions; set it in `settings`",
    "labels": "pretrain.py doesn't read it",
    "finetune": "pretrain.py doesn't read it",
    "plusplus": "pretrain.py doesn't read it",
    **dict.fromkeys(
        (
            *("annotate.num_workers", "annotate.use_gpu", "train.num_workers", "train.use_gpu"),
            *("train.chunk_tokens", "train.checkpoint_every", "train.max_failures"),
        ),
        "it says how to compute, not what: all its values have one result; set it in `settings`",
    ),
}
"""Settings, or whole sections, that no sweep is over, and why."""


class Asha(Section):
    """asha: stopping trials early (asynchronous successive halving, Li et al. 2020)."""

    grace_iterations: int | None = Field(
        default=None,
        ge=1,
        description="After so many iterations, and again after reduction_factor times as many, a trial goes on only if "
        "its validation score is among the best 1 / reduction_factor of all that came so far. Default: none is "
        "stopped.",
    )
    reduction_factor: float = Field(default=2.0, gt=1.0, description="See grace_iterations.")


class Sweep(Section):
    """The trials to run."""

    name: str = Field(description="Name of the sweep: letters, digits, dot, dash, underscore.")
    storage: str = Field(
        default="runs",
        min_length=1,
        description="Folder or URI that every node reaches; the table is in <storage>/<name>, a trial's run in "
        "<storage>/<name>-<its values>.",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of every trial, as pretrain takes them; on the command line by dotted name, such as "
        "--settings.train.max_steps 500.",
    )
    parameters: dict[str, Any] = Field(
        description="Settings of pretrain by dotted name, and how each gets its values. `grid: [1, 2, 3]`: each of "
        "these with each of the other grids' values. Anew for each sample: `choice: [a, b]`, one of these; `uniform: "
        "[low, high]` or `loguniform: [low, high]`, between these, both included where the setting is a whole number.",
    )
    samples: int = Field(
        default=1,
        ge=1,
        description="How often choice, uniform and loguniform are drawn from; the whole grid is tried with each draw.",
    )
    seed: int = Field(
        default=42,
        ge=0,
        lt=2**31,
        description="What is drawn follows from it, draw by draw: more samples keep those that are there.",
    )
    asha: Asha = Field(default_factory=Asha)
    max_concurrent: int | None = Field(
        default=None,
        ge=1,
        description="Most trials at a time. Default: as many as the cluster has GPUs (or CPU cores) for, at "
        "annotate.num_workers and train.num_workers each; one, where these are `auto` and a trial takes them all. "
        "Given, `auto` is a trial's share.",
    )
    only: Literal["plan"] | None = Field(
        default=None, description="`plan`: print the trials and their state, and run nothing."
    )

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        return plain_name(value)

    @field_validator("settings")
    @classmethod
    def _settings_of_a_trial(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name, place in _OF_THE_SWEEP.items():
            if name in values:
                raise ValueError(f"settings: {name} follows from `{place}` of the sweep; leave it out")
        return nested(values)

    @field_validator("parameters", mode="before")
    @classmethod
    def _by_dotted_name(cls, values: Any) -> Any:
        return dict(_ways(values)) if isinstance(values, Mapping) else values

    @field_validator("parameters")
    @classmethod
    def _parameters(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        if not parameters:
            raise ValueError("parameters: name at least one setting, such as annotate.k: {grid: [1, 2, 3]}")
        for name, how in parameters.items():
            _check_name(name)
            _check_way(name, how)
        return parameters

    @model_validator(mode="after")
    def _samples_of_something(self) -> Sweep:
        if self.samples > 1 and not self.drawn:
            raise ValueError(
                f"samples = {self.samples}: no parameter is drawn, all samples would be the same; leave it out, or "
                "give a parameter choice, uniform or loguniform"
            )
        return self

    @property
    def drawn(self) -> dict[str, dict[str, Any]]:
        """The parameters that each sample draws."""
        return {name: how for name, how in self.parameters.items() if next(iter(how)) in DRAWN}


def setting_kinds(name: str) -> tuple[Any, ...]:
    """The types that a setting of `pretrain`, by its dotted name, takes."""
    *sections, last = name.split(".")
    model: type[BaseModel] = Settings
    for section in sections:
        model = model.model_fields[section].annotation  # pyright: ignore[reportAssignmentType]
    return tuple(_leaves(model.model_fields[last].annotation))


def is_whole(name: str) -> bool:
    """Whether a setting is a whole number."""
    kinds = setting_kinds(name)
    return int in kinds and float not in kinds


def _leaves(annotation: Any) -> Iterator[Any]:
    if args := get_args(annotation):
        for one in args:
            yield from _leaves(one)
    else:
        yield annotation


def _ways(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every parameter by its dotted name, however deep the YAML has it."""
    for name, value in nested(values).items():
        known = isinstance(value, Mapping) and any(key in value for key in (*LISTED, *DRAWN))
        if isinstance(value, Mapping) and value and not known and _is_section(f"{prefix}{name}"):
            yield from _ways(value, f"{prefix}{name}.")
        elif isinstance(value, Mapping):
            yield f"{prefix}{name}", dict(value)
        else:
            raise ValueError(
                f"parameters: {prefix}{name} = {value!r}: say how it gets its values, such as {{grid: [1, 2, 3]}}"
            )


def _is_section(name: str) -> bool:
    return any(known.startswith(f"{name}.") for known in dotted_names(Settings))


def _check_name(name: str) -> None:
    known = list(dotted_names(Settings))
    if name not in known:
        raise ValueError(f"parameters: {not_a('setting of pretrain', name, known, '; pretrain --help lists them')}")
    for place in (name, name.partition(".")[0]):
        if place in _NO_PARAMETER:
            raise ValueError(f"parameters: {name} can't be swept: {_NO_PARAMETER[place]}")


def _check_way(name: str, how: dict[str, Any]) -> None:
    ways = ", ".join((*LISTED, *DRAWN))
    if len(how) != 1 or next(iter(how)) not in (*LISTED, *DRAWN):
        raise ValueError(f"parameters: {name} = {how!r}: give one of {ways}, such as {{grid: [1, 2, 3]}}")
    [(way, values)] = how.items()
    where = f"parameters: {name}: {way} = {values!r}"
    if not isinstance(values, list) or not values:
        raise ValueError(f"{where}: give a list, such as [1, 2]")
    if way in ("grid", "choice"):
        if any(value in values[:i] for i, value in enumerate(values)):
            raise ValueError(f"{where}: name each value once")
        return
    if not {int, float} & set(setting_kinds(name)):
        raise ValueError(f"{where}: the setting is no number; use choice")
    try:
        low, high = (float(value) for value in values)
    except (TypeError, ValueError):
        raise ValueError(f"{where}: give two numbers, the lowest and the highest") from None
    if not low < high or not math.isfinite(high - low):
        raise ValueError(f"{where}: give the lower number first")
    if is_whole(name) and not (low.is_integer() and high.is_integer()):
        raise ValueError(f"{where}: the setting is a whole number; give whole bounds")
    if way == "loguniform" and low <= 0:
        raise ValueError(f"{where}: a logarithm needs bounds above 0; raise the lower")
