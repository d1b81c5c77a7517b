"""The trials of a sweep: their values, settings, names and order, all settled and checked before the first runs.

1. Every combination of the grids' values is tried with every draw of the parameters that are drawn.
2. A trial is one `pretrain` in the sweep's storage, named after its values: whichever sweep or command runs it, it
   finds its stages, and those that it shares with others.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from infocse_ray.corpus.source import Source
from infocse_ray.loop.identity import initialization_of
from infocse_ray.loop.inputs import Inputs, check
from infocse_ray.settings import Settings, fingerprint
from infocse_ray.settings.command_line import as_settings, explain
from infocse_ray.settings.nested import merged, nested
from infocse_ray.sweep.config import Sweep, is_whole

_DIGITS = 4
"""Significant digits of what is drawn: the table shows the value itself."""

_LONGEST_NAME = 60

_FOUND_ALIKE = re.compile(
    r"seed|validate\..*|annotate\.(k|mutual|min_edge_quantile|kmeans_\w+)"
    r"|train\.(batch_size|(head_)?learning_rate|warmup_steps|weight_decay|max_\w+|adam_\w+)"
    r"|loop\.(max_iterations|early_stop|initialization_\w+)"
)
"""Parameters that a run's corpus and encoders are found and loaded alike with, whatever their values."""


class Trial(NamedTuple):
    """One run of the sweep."""

    name: str
    """Of its run."""
    number: int
    """Its row in the table, from 1."""
    values: dict[str, Any]
    """Its parameters by dotted name."""
    settings: Settings
    identity: str
    """Of its run: settings, corpus files, encoders."""

    @property
    def title(self) -> str:
        """For people: annotate.k = 2, train.batch_size = 32."""
        return _joined(self.values)


class Plan(NamedTuple):
    """All trials."""

    trials: list[Trial]
    """In the order of their numbers."""
    running: list[Trial]
    """In the order they start."""
    corpora: list[tuple[Source, str]]
    """The corpus' files and a tokenizer, for each token store that trials need."""


def plan_trials(config: Sweep, find: Callable[[Settings], Inputs] = check) -> Plan:
    """Settle and check the settings of every trial.

    Args:
        config: of the sweep.
        find: finds a run's corpus and loads its encoders.

    Raises:
        ValueError: one line that names parameter, value and fix; nothing has run.
    """
    # A choice may be drawn twice.
    every = {settings.name: settings for settings in (settings_of(config, one) for one in combinations(config))}
    _check_asha(config, list(every.values()))
    identities: dict[str, str] = {}
    corpora: dict[tuple[str, str], tuple[Source, str]] = {}
    alike: dict[str, list[Settings]] = {}
    for settings in every.values():
        alike.setdefault(fingerprint(_apart(config, settings)), []).append(settings)
    for group in alike.values():
        # Loaded once for all of them, and forgotten before the next.
        inputs = _found(find, config, group[0])
        identities |= {settings.name: inputs.identity(settings) for settings in group}
        corpora[inputs.source.fingerprint, inputs.tokenizer] = inputs.source, inputs.tokenizer
    trials = [
        Trial(name, number, _values(config, settings), settings, identities[name])
        for number, (name, settings) in enumerate(every.items(), 1)
    ]
    return Plan(trials, _spread(trials), list(corpora.values()))


def combinations(config: Sweep) -> Iterator[dict[str, Any]]:
    """The parameters' values of every trial."""
    grids = {name: how["grid"] for name, how in config.parameters.items() if "grid" in how}
    for sample in range(config.samples):
        drawn = {name: _draw(config.seed, name, how, sample) for name, how in config.drawn.items()}
        for point in itertools.product(*grids.values()):
            given = dict(zip(grids, point, strict=True)) | drawn
            yield {name: given[name] for name in config.parameters}


def _draw(seed: int, name: str, how: dict[str, Any], sample: int) -> Any:
    """A parameter's value in a sample: of seed, parameter and sample, not of the other parameters or samples."""
    from ray import tune

    [(way, values)] = how.items()
    chance = np.random.RandomState(int(fingerprint(seed, name, sample)[:8], 16))
    if way == "choice":
        return values[tune.choice(range(len(values))).sample(random_state=chance)]
    low, high = (float(value) for value in values)
    if is_whole(name):  # Tune leaves the upper bound out
        domain = (tune.randint if way == "uniform" else tune.lograndint)(int(low), int(high) + 1)
        return int(domain.sample(random_state=chance))
    domain = (tune.uniform if way == "uniform" else tune.loguniform)(low, high)
    return float(f"{float(domain.sample(random_state=chance)):.{_DIGITS}g}")


def settings_of(config: Sweep, values: dict[str, Any]) -> Settings:
    """The settings of the trial with these values.

    Raises:
        ValueError: one line that names the parameter or setting.
    """
    tree = merged(merged(nested(config.settings), nested(values)), {"name": "trial", "storage": config.storage})
    try:
        settings = Settings.model_validate(as_settings(tree, Settings))
    except ValidationError as error:
        raise ValueError(f"{_blamed(error, values)}: {explain(error, Settings)}") from error
    # Named by the values as the settings have them: 1e-5 and 0.00001 are one.
    return settings.model_copy(update={"name": trial_name(config.name, _values(config, settings))})


def _blamed(error: ValidationError, values: dict[str, Any]) -> str:
    """Where a refused value is from: a parameter, the combination of several, or what all trials have."""
    names = [".".join(str(part) for part in one["loc"]) for one in error.errors()]
    if all(name in values for name in names):
        return "parameters"
    if any(value.startswith(f"{name}.") or not name for name in names for value in values):
        return f"trial {_joined(values)}"
    return "settings"


def _values(config: Sweep, settings: Settings) -> dict[str, Any]:
    return {name: value_of(settings, name) for name in config.parameters}


def _apart(config: Sweep, settings: Settings) -> dict[str, Any]:
    """The parameters that decide what is found and loaded."""
    return {name: value for name, value in _values(config, settings).items() if not _FOUND_ALIKE.fullmatch(name)}


def _joined(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {shown_value(value)}" for name, value in values.items())


def _found(find: Callable[[Settings], Inputs], config: Sweep, settings: Settings) -> Inputs:
    try:
        return find(settings)
    except ValueError as error:
        apart = _apart(config, settings)
        raise ValueError(f"trial {_joined(apart)}: {error}" if apart else str(error)) from error


def _check_asha(config: Sweep, every: list[Settings]) -> None:
    grace, most = config.asha.grace_iterations, max(settings.loop.max_iterations for settings in every)
    if grace is not None and grace >= most:
        raise ValueError(
            f"asha.grace_iterations = {grace}: trials have {most} iterations at most (loop.max_iterations), none could "
            "be stopped before its last; lower it, raise that, or leave asha out"
        )


def value_of(settings: Settings, name: str) -> Any:
    """A setting by its dotted name."""
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def shown_value(value: Any) -> str:
    """A parameter's value as a table has it."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def trial_name(sweep: str, values: dict[str, Any]) -> str:
    """A run's name that people can read, with a hash for what they can't, such as `news-k2-batch_size32-1f0c9a2b`."""
    parts = (f"{name.rpartition('.')[2]}{shown_value(value)}" for name, value in values.items())
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(parts))[:_LONGEST_NAME].rstrip("-._")
    return f"{sweep}-{readable}-{fingerprint(values)[:8]}"


def _spread(trials: list[Trial]) -> list[Trial]:
    """In an order in which trials that share their first annotation don't start together: one would wait."""
    before: Counter[str] = Counter()
    turn = {}
    for trial in trials:
        settings = trial.settings
        how = settings.annotate.model_dump(mode="json", exclude={"num_workers", "use_gpu"})
        shared = fingerprint(how, settings.encoder, initialization_of(settings), settings.train.strategy)
        turn[trial.name] = before[shared]
        before[shared] += 1
    return sorted(trials, key=lambda trial: turn[trial.name])
