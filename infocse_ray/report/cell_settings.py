"""The settings of a cell: what all cells share, what its corpus and its method have of their own, and its budget.

1. Later ones win: settings of every cell, of the corpus, of the method; then what makes the cell that cell.
2. All methods get one budget of training tokens; InfoCSE's is split equally over its stages.
3. Methods train as they were published: the loss sees the encoder's own vectors, what a training made is shown even
   if it is worse than its start, and weights are not interpolated. A row of a configuration does as that says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from infocse_ray.report.config import TableCorpus, Tables
from infocse_ray.report.studies import ADAPT, FIRST_ENCODER, TableMethod
from infocse_ray.settings import Settings
from infocse_ray.settings.configurations import as_settings
from infocse_ray.settings.explain import explain
from infocse_ray.settings.fields import is_section
from infocse_ray.settings.nested import flat, merged, nested

_RATE = "train.learning_rate"
_MODEL = "encoder.model"

_OF_THE_TABLES = {
    "name": "name",
    "storage": "storage",
    "seed": "seeds",
    "minutes": "tokens",
    "recipe": "methods",
    "train.method": "methods",
    "train.max_tokens": "tokens",
    "train.max_steps": "tokens",
    _RATE: "learning_rates",
    "validate.every": "validations",
    "validate.every_tokens": "validations",
    "validate.patience": "tokens",
    "loop.max_iterations": "iterations",
    "loop.early_stop": "iterations",
    "loop.initialization": "tables",
    "loop.initialization_tokens": "tokens",
    "loop.initialization_steps": "tokens",
    "loop.initialization_patience": "tokens",
    "annotate.first_encoder": "first_encoder",
    # What rows are named after.
    "train.distillation": "tables",
    "train.whitened": "tables",
    "train.never_worse": "tables",
    "train.interpolation": "tables",
    "annotate.clustering": "tables",
    "ict.block": "tables",
    "labels.train_size": "label_sizes",
    "plusplus.max_rounds": "rounds",
    "plusplus.label_share": "tables",
}
"""Settings that make the rows comparable, and what of the tables' configuration they follow from."""

_OF_ALL_CELLS = ("encoder.whiten", "encoder.dimensions", "train.similarity", "validate.reading")
"""Settings that are the same in every cell, so that all tables have the same columns."""

_AS_PUBLISHED = {"train.whitened": False, "train.never_worse": False, "train.interpolation": []}


def stage_tokens(config: Tables, method: TableMethod) -> int:
    """Tokens of each training stage of a method; 0 if it doesn't train.

    Raises:
        ValueError: the budget has no token for each stage.
    """
    if method.family == "start":
        return 0
    stages = 1
    if method.family == "infocse":
        stages = config.iterations + (method.initialization != "none")
    if config.tokens < stages:
        raise ValueError(f"tokens = {config.tokens}: InfoCSE has {stages} stages to split it over; raise it")
    return config.tokens // stages


def budget_of(config: Tables, method: TableMethod) -> int:
    """Tokens of all training stages without labels of a method, at most: rounds may end sooner."""
    stages = 1
    if method.family == "infocse":
        rounds = config.rounds if method.alternates else 1
        # Initialised once, before the first round.
        stages = rounds * (method.iterations or config.iterations) + (method.initialization != "none")
    return stages * stage_tokens(config, method)


def learning_rates_of(config: Tables, method: TableMethod) -> list[float | None]:
    """Those that a method is trained with; None: that of its own settings, or it isn't trained."""
    if method.family == "start" or _own_rate(config, _sections(method)) is not None:
        return [None]
    # A variant takes over the rate of the row that it is a variant of, of that row's own settings, too.
    taken = None if method.rate_of is None else _own_rate(config, [method.rate_of])
    return list(config.learning_rates) if taken is None else [taken]


def _own_rate(config: Tables, keys: Sequence[str]) -> float | None:
    """The learning rate that settings of methods, later ones winning, give these.

    Raises:
        ValueError: it is no number.
    """
    found = [(key, dict(flat(as_settings(config.methods.get(key, {}), Settings))).get(_RATE)) for key in keys]
    for key, rate in reversed(found):
        if rate is None:
            continue
        try:
            return float(rate)
        except (TypeError, ValueError) as error:
            raise ValueError(f"methods: {key}: {_RATE} = {rate!r}: should be a valid number") from error
    return None


def settings_of(
    config: Tables, corpus: TableCorpus, method: TableMethod, seed: int, rate: float | None, name: str
) -> Settings:
    """The settings of one cell.

    Args:
        config: of the tables.
        corpus: the cell's.
        method: the cell's.
        seed: the cell's.
        rate: its learning rate, one of `learning_rates_of`.
        name: of its run.

    Raises:
        ValueError: one line that names corpus, row and setting.
    """
    layers = [
        ("settings", config.settings),
        (f"corpora: {corpus.name}: settings", corpus.settings),
        *((f"methods: {key}", config.methods.get(key, {})) for key in _sections(method)),
    ]
    values: dict[str, Any] = dict(method.defaults)
    start = method.initialization
    if method.family == "infocse" and method.key != ADAPT and start != "none":
        # The initialisation is the method of that name: what is set in that method's own section holds here too.
        values = {start: nested(config.methods.get(start, {})).get(start, {})}
    for place, layer in layers:
        layer = as_settings(layer, Settings)
        for section, value in layer.items():
            known = Settings.model_fields.get(section)
            # It would take the place of what the layers below have in that section.
            if known is not None and is_section(known.annotation) and not isinstance(value, dict):
                raise ValueError(f"{place}: {section} = {value!r}: is a section; give its settings by name")
        for setting in _dotted(layer):
            _check_place(config, place, setting)
        values = merged(values, layer)
    values = merged(values, nested(_by_the_tables(config, method, seed, rate, name)))
    try:
        return Settings.model_validate(as_settings(values, Settings))
    except ValidationError as error:
        where = f"corpus {corpus.name}, row {method.label}"
        raise ValueError(f"{where}: {explain(error, Settings)}") from error


def _sections(method: TableMethod) -> list[str]:
    """Whose sections of `methods` hold for a method, later ones winning."""
    keys = (method.key,) if method.key == ADAPT else (method.family, method.base or method.key, method.key)
    return list(dict.fromkeys(keys))


def _check_place(config: Tables, place: str, setting: str) -> None:
    """Refuse a setting where it can't be."""
    of_a_method = place.startswith("methods")
    if setting in _OF_THE_TABLES and not (of_a_method and setting == _RATE):
        raise ValueError(f"{place}: {setting} follows from `{_OF_THE_TABLES[setting]}` of the tables; leave it out")
    if of_a_method and setting.startswith("corpus."):
        raise ValueError(f"{place}: {setting} would make rows of different corpora; set it in `corpora`")
    if setting == _MODEL and place.startswith("corpora") and config.encoder is not None:
        raise ValueError(f"{place}: {setting} gives way to `encoder` = {config.encoder!r} of the tables; leave one out")
    if (place != "settings" and setting in _OF_ALL_CELLS) or (of_a_method and setting == _MODEL):
        raise ValueError(f"{place}: {setting} would make rows that can't be compared; set it in `settings`")


def _by_the_tables(config: Tables, method: TableMethod, seed: int, rate: float | None, name: str) -> dict[str, Any]:
    """By dotted name, what makes a cell this cell."""
    values: dict[str, Any] = {"name": name, "storage": config.storage, "seed": seed, **method.settings}
    if config.encoder is not None:
        values[_MODEL] = config.encoder
    if method.key != ADAPT:
        values |= _AS_PUBLISHED
    if rate is not None:
        values[_RATE] = rate
    if tokens := stage_tokens(config, method):
        values["train.max_tokens"] = tokens
        values["validate.every_tokens"] = max(1, tokens // config.validations)
        # Tokens alone end a stage: a step encodes at least one.
        values["train.max_steps"] = values["validate.patience"] = tokens
    if method.family == "infocse":
        values["loop.max_iterations"] = method.iterations or config.iterations
        values["loop.early_stop"] = False
        values["loop.initialization"] = method.initialization
    if method.labels is not None:
        values["plusplus.max_rounds"] = config.rounds if method.alternates else 1
    if method.key == FIRST_ENCODER:
        values["annotate.first_encoder"] = config.first_encoder
    return values


def _dotted(values: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
