"""The trials of a sweep, all settled and checked before the first runs.

A trial is one `pretrain` in the sweep's storage, named after its values: whichever sweep or command runs it, it finds
its stages, and those that it shares with others.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError
from ray.tune.search.variant_generator import generate_variants

from infocse_ray.corpus.source import Source
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.loop.inputs import Inputs, check
from infocse_ray.settings import Settings, fingerprint
from infocse_ray.settings.configurations import as_settings
from infocse_ray.settings.explain import explain
from infocse_ray.settings.nested import merged, nested
from infocse_ray.storage.redact import redacted_json
from infocse_ray.tuning.config import Sweep, search_space

_LONGEST_NAME = 60

_LOADED_ALIKE = re.compile(
    r"seed|validate\..*|annotate\.(k|kmeans_\w+)"
    r"|train\.(batch_size|(head_)?learning_rate|warmup_steps|weight_decay|max_\w+|adam_\w+)"
    r"|loop\.(max_iterations|early_stop|initialization_\w+)"
)
"""Parameters whose values don't change which corpus and encoders a run loads."""

_BY_CONTENT = ("encoder.model", "encoder.document_prompt", "encoder.query_prompt", "annotate.first_encoder")
"""Parameters that an identity has by what they lead to."""


class Trial(NamedTuple):
    """One run of the sweep."""

    number: int
    """Its row in the table, from 1."""
    values: dict[str, Any]
    """Its parameters by dotted name."""
    settings: Settings
    identity: str
    """Of its run: settings, corpus files, encoders."""
    source: Source
    """The corpus' files."""
    tokenizer: CorpusTokenizer
    """With the source, what the trial's token store is made of."""

    @property
    def name(self) -> str:
        """Of its run."""
        return self.settings.name

    @property
    def title(self) -> str:
        """For people: annotate.k = 2, train.batch_size = 32."""
        return title_of(self.values)


def plan_trials(config: Sweep, find: Callable[[Settings], Inputs] = check) -> list[Trial]:
    """Settle and check the settings of every trial.

    Args:
        config: of the sweep.
        find: finds a run's corpus and loads its encoders.

    Returns:
        The trials in the order they start: the alphabetically first grid's values take turns fastest, so trials of
        the same annotate.k, which share their first annotation, don't wait for each other.

    Raises:
        ValueError: one line that names parameter, value and fix; nothing has run.
    """
    # A choice may be drawn twice.
    settled = {one.name: one for one in (settings_of(config, values) for values in variants(config))}
    numbers = {name: number for number, name in enumerate(settled, 1)}
    _check_grace(config, settled.values())
    swept = {name: _distinct(operator.attrgetter(name)(one) for one in settled.values()) for name in config.parameters}
    unread = {name: values for name, values in swept.items() if len(values) > 1}
    trials = []
    for inputs, alike in _with_inputs(config, settled.values(), find):
        _check_seed(config, alike[0], inputs)
        for one in alike:
            identity, number = inputs.identity(one), numbers[one.name]
            trials.append(Trial(number, _values(config, one), one, identity, inputs.source, inputs.tokenizer))
            unread = {name: values for name, values in unread.items() if not _reads(inputs, one, name, values)}
    for name in unread:
        # What another choice hasn't drawn yet may read it.
        if all(other == name or _drawn_in_full(config.parameters[other], swept[other]) for other in swept):
            raise ValueError(f"parameters: {name} isn't read with these settings; leave it out")
    return sorted(trials, key=lambda trial: trial.number)


def _with_inputs(
    config: Sweep, settled: Iterable[Settings], find: Callable[[Settings], Inputs]
) -> Iterator[tuple[Inputs, list[Settings]]]:
    """What is loaded once for all that load alike, with these.

    Raises:
        ValueError: it can't be; the trial is named.
    """

    def apart(settings: Settings) -> dict[str, Any]:
        return {k: v for k, v in _values(config, settings).items() if not _LOADED_ALIKE.fullmatch(k)}

    groups: dict[str, list[Settings]] = {}
    for one in settled:
        groups.setdefault(fingerprint(apart(one)), []).append(one)
    for alike in groups.values():
        try:
            inputs = find(alike[0])
        except ValueError as error:
            title = title_of(apart(alike[0]))
            raise ValueError(f"trial {title}: {error}" if title else str(error)) from error
        yield inputs, alike


def _check_grace(config: Sweep, settled: Iterable[Settings]) -> None:
    """Refuse to spare trials for as long as they run.

    Raises:
        ValueError: all would be.
    """
    most = max(settings.loop.max_iterations for settings in settled)
    if (grace := config.asha.grace_iterations) is not None and grace >= most:
        raise ValueError(
            f"asha.grace_iterations = {grace}: trials have {most} iterations at most (loop.max_iterations), none could "
            "be stopped before its last; lower it, raise that, or leave asha out"
        )


def _check_seed(config: Sweep, settings: Settings, inputs: Inputs) -> None:
    """Refuse to compare seeds whose trials are asked other questions.

    Raises:
        ValueError: they would be.
    """
    on = settings.validate.on  # pyright: ignore[reportAttributeAccessIssue]
    if "seed" in config.parameters and (on == "sentence" or (on == "auto" and not inputs.source.has("counterpart"))):
        raise ValueError(
            "parameters: seed: validation takes other sentences out of documents for each, and scores couldn't be "
            "compared; sweep it where documents have counterparts to be validated on, or leave it out"
        )


def variants(config: Sweep) -> Iterator[dict[str, Any]]:
    """The parameters' values of every trial, drawn by Ray Tune."""
    space = {name: search_space(name, how) for name, how in config.parameters.items()}
    for sample in range(config.samples):
        chance = np.random.RandomState([config.seed, sample])
        for _, variant in generate_variants({"config": space}, constant_grid_search=True, random_state=chance):
            yield variant["config"]


def settings_of(config: Sweep, values: dict[str, Any]) -> Settings:
    """The settings of the trial with these values.

    Raises:
        ValueError: one line that names the parameter or setting.
    """
    tree = merged(as_settings(config.settings, Settings), nested(values))
    tree = merged(tree, {"name": "trial", "storage": config.storage})
    try:
        settings = Settings.model_validate(as_settings(tree, Settings))
    except ValidationError as error:
        drawn = any("valid integer" in one["msg"] and isinstance(one["input"], float) for one in error.errors())
        hint = "; for whole numbers use randint or lograndint" if drawn else ""
        raise ValueError(f"trial {title_of(values)}: {explain(error, Settings)}{hint}") from error
    tracking = settings.tracking.model_copy(update={"group": settings.tracking.group or config.name})
    # Named by the values as the settings have them: 1e-5 and 0.00001 are one.
    name = trial_name(config.name, _values(config, settings))
    return settings.model_copy(update={"name": name, "tracking": tracking})


def _reads(inputs: Inputs, settings: Settings, name: str, values: list[Any]) -> bool:
    """Whether another of a parameter's values would make another run of a trial."""
    if name.startswith("annotate.") and settings.train.method != "idc":
        return False
    if name in _BY_CONTENT:
        return True
    section, _, key = name.rpartition(".")
    own = getattr(settings, section) if section else settings
    changed = own.model_copy(update={key: next(value for value in values if value != getattr(own, key))})
    other = settings.model_copy(update={section: changed}) if section else changed
    return inputs.identity(other) != inputs.identity(settings)


def _drawn_in_full(how: dict[str, Any], drawn: list[Any]) -> bool:
    """Whether no listed value of a parameter is left to further samples."""
    return "choice" not in how or len(drawn) == len(_distinct(how["choice"]))


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Each once; lists among them can't be hashed."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _values(config: Sweep, settings: Settings) -> dict[str, Any]:
    return {name: operator.attrgetter(name)(settings) for name in config.parameters}


def title_of(values: dict[str, Any]) -> str:
    """Parameters as people read them: annotate.k = 2, train.batch_size = 32."""
    return ", ".join(f"{name} = {shown_value(value)}" for name, value in values.items())


def shown_value(value: Any) -> str:
    """A parameter's value as a table has it."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def trial_name(sweep: str, values: dict[str, Any]) -> str:
    """A run's name that people can read, with a hash for what they can't, such as `news-k2-batch_size32-1f0c9a2b`.

    Neither is made of credentials, which may change.
    """
    values = redacted_json(values)
    parts = (f"{name.rpartition('.')[2]}{shown_value(value)}" for name, value in values.items())
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(parts))[:_LONGEST_NAME].rstrip("-._")
    return f"{sweep}-{readable}-{fingerprint(values)[:8]}"
