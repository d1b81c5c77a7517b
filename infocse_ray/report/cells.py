"""Cells: what is trained once for a corpus, a method and a seed.

1. A cell's settings are, later ones winning: those of the tables, of every cell, of the corpus, of the method.
2. All methods get one budget of training tokens; InfoCSE's is split equally over its stages.
3. Cells with the same settings are one cell, whichever rows show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from infocse_ray.command_line import as_settings, explain
from infocse_ray.corpus.source import Source, find_source
from infocse_ray.loop.identity import FEW_SHOT
from infocse_ray.nested import merged, nested
from infocse_ray.report.config import TableCorpus, Tables
from infocse_ray.report.studies import FIRST_ENCODER, METHODS, Method, Study, methods_with, studies_with
from infocse_ray.settings import Corpus, Settings, fingerprint

_OF_THE_TABLES = {
    "name": "name",
    "storage": "storage",
    "seed": "seeds",
    "train.strategy": "methods",
    "train.max_tokens": "tokens",
    "train.max_steps": "tokens",
    "validate.every": "validations",
    "validate.every_tokens": "validations",
    "validate.patience": "tokens",
    "loop.max_iterations": "iterations",
    "loop.early_stop": "iterations",
    "loop.initialization": "tables",
    "loop.initialization_tokens": "tokens",
    "annotate.first_encoder": "first_encoder",
    # What rows are named after.
    "train.positive": "tables",
    "annotate.method": "tables",
    "annotate.mutual": "tables",
    "annotate.min_edge_quantile": "tables",
    "ict.block": "tables",
    "labels.train_size": "label_sizes",
    "plusplus.max_rounds": "rounds",
}
"""Settings that make the rows comparable, and what of the tables' configuration they follow from."""

_NOT_NAMED: dict[str, Any] = {"name": True, "storage": True, "corpus": {"labels"}}
"""Settings that a cell is not named by: the fingerprint of its files has the label files."""

_RECORD = 3
"""Of what is kept of a cell; where that has changed, the run, finished as it is, is read again."""


class Cell(NamedTuple):
    """One run: of `pretrain`, or with labels."""

    name: str
    corpus: str
    method: str
    seed: int
    settings: Settings
    identity: str
    """Of its settings, the corpus' files and the encoders' files."""
    tokens: int
    """The budget of its training without labels, all stages."""
    label: str
    """The method, for people."""
    labelled: bool
    """Whether it is fine-tuned."""

    @property
    def title(self) -> str:
        """For people: bbc_news / SimCSE / seed 2."""
        return f"{self.corpus} / {self.label} / seed {self.seed}"


class Plan(NamedTuple):
    """Every cell of the tables, which of them are to run, and who shows them."""

    studies: list[Study]
    """The tables asked for."""
    cells: list[Cell]
    """All that the tables show, each once, in the order they run: all of the first seed, then all of the next."""
    asked: list[Cell]
    """Those of them that may run: of the rows and corpora asked for."""
    by_row: dict[tuple[str, str, int], Cell]
    """By corpus, method and seed."""
    skipped: dict[str, str]
    """Why a method isn't run."""


def plan_cells(config: Tables, find: Callable[[Corpus], Source] = find_source) -> Plan:
    """Settle and check the settings of every cell.

    Args:
        config: of the tables.
        find: finds a corpus' files.

    Raises:
        ValueError: one line that names corpus, row and setting; nothing has run.
    """
    studies, methods = studies_with(config.tables, config.label_sizes), methods_with(config.label_sizes)
    wanted = {row.method for study in studies for row in study.rows}
    skipped = {}
    if FIRST_ENCODER in wanted and config.first_encoder is None:
        skipped[FIRST_ENCODER] = "first_encoder isn't set; name an encoder that annotates first, such as SBERT's"
    files = {corpus.name: _check_corpus(config, corpus, find) for corpus in config.corpora}
    stamps: dict[str | None, Any] = {}
    cells: dict[str, Cell] = {}
    by_row: dict[tuple[str, str, int], Cell] = {}
    for seed in config.seeds:
        for corpus in config.corpora:
            # In the order of all methods, asked for or not, so that a cell that methods share has one name.
            for method in methods.values():
                if method.key == FIRST_ENCODER and config.first_encoder is None:
                    continue
                settings = settings_of(config, corpus, method, seed)
                for path in (settings.encoder.model, config.first_encoder):
                    if path not in stamps:
                        stamps[path] = _stamp(path)
                without = _NOT_NAMED | ({} if method.labels else dict.fromkeys(FEW_SHOT, True))
                content = settings.model_dump(mode="json", exclude=without)
                other = stamps[config.first_encoder] if method.key == FIRST_ENCODER else None
                identity = fingerprint(_RECORD, content, files[corpus.name], stamps[settings.encoder.model], other)
                name = f"{corpus.name}-{method.key}-{seed}"
                tokens, labelled = budget_of(config, method), method.labels is not None
                cell = Cell(name, corpus.name, method.key, seed, settings, identity, tokens, method.label, labelled)
                by_row[corpus.name, method.key, seed] = cells.setdefault(identity, cell)
    by_row = {place: cell for place, cell in by_row.items() if place[1] in wanted}
    run = {row.method for study in studies for row in study.rows if _named(row.key, config.only_rows)}
    asked = {
        cell.name
        for (corpus, method, _), cell in by_row.items()
        if method in run and _named(corpus, config.only_corpora)
    }
    all_cells = list({cell.name: cell for cell in by_row.values()}.values())
    return Plan(studies, all_cells, [cell for cell in all_cells if cell.name in asked], by_row, skipped)


def _named(name: str, only: list[str] | None) -> bool:
    return only is None or name in only


def stage_tokens(config: Tables, method: Method) -> int:
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


def budget_of(config: Tables, method: Method) -> int:
    """Tokens of all training stages of a method."""
    stages = 1
    if method.family == "infocse":
        stages = (method.iterations or config.iterations) + (method.initialization != "none")
    return stages * stage_tokens(config, method)


def settings_of(config: Tables, corpus: TableCorpus, method: Method, seed: int) -> Settings:
    """The settings of one cell.

    Raises:
        ValueError: one line that names corpus, row and setting.
    """
    where = f"corpus {corpus.name}, row {method.label}"
    keys = (method.family, method.base or method.key, method.key)
    layers = [
        ("settings", config.settings),
        (f"corpora: {corpus.name}: settings", corpus.settings),
        *((f"methods: {key}", config.methods.get(key, {})) for key in dict.fromkeys(keys)),
    ]
    values: dict[str, Any] = {}
    start = method.initialization
    if method.family == "infocse" and start != "none":
        # The initialisation is the method of that name: what is set in that method's own section holds here too.
        values = {start: nested(config.methods.get(start, {})).get(start, {})}
    for place, layer in layers:
        layer = nested(layer)
        for name in _dotted(layer):
            if name in _OF_THE_TABLES:
                raise ValueError(f"{place}: {name} follows from `{_OF_THE_TABLES[name]}` of the tables; leave it out")
            if place.startswith("methods") and name.startswith("corpus."):
                raise ValueError(f"{place}: {name} would make rows of different corpora; set it in `corpora`")
        values = merged(values, layer)
    values = merged(values, nested(_by_the_tables(config, corpus, method, seed)))
    try:
        return Settings.model_validate(as_settings(values, Settings))
    except ValidationError as error:
        raise ValueError(f"{where}: {explain(error, Settings)}") from error


def _by_the_tables(config: Tables, corpus: TableCorpus, method: Method, seed: int) -> dict[str, Any]:
    """By dotted name, what makes a cell this cell."""
    values: dict[str, Any] = {
        "name": f"{config.name}-{corpus.name}-{method.key}-{seed}",
        "storage": config.storage,
        "seed": seed,
        **method.settings,
    }
    if config.encoder is not None:
        values["encoder.model"] = config.encoder
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


def _check_corpus(config: Tables, corpus: TableCorpus, find: Callable[[Corpus], Source]) -> str:
    """The fingerprint of a corpus' files, once it is sure that there is something to test on.

    Raises:
        ValueError: it isn't there, or has no counterparts to find.
    """
    settings = settings_of(config, corpus, METHODS["start"], config.seeds[0])
    try:
        source = find(settings.corpus)
        if "counterpart" not in source.columns:
            raise ValueError("corpus.counterpart: no such column; name the one with what test documents must find")
        if "split" not in source.columns and not settings.corpus.test_fraction:
            raise ValueError("corpus.test_fraction = 0.0: there are no documents to test on; raise it")
    except ValueError as error:
        raise ValueError(f"corpus {corpus.name}: {error}") from error
    return source.fingerprint


def _stamp(path: str | None) -> Any:
    """What tells, without reading it, that a local encoder was changed: `pretrain` then looks at its content."""
    folder = None if path is None else Path(path).expanduser()
    if folder is None or not folder.is_dir():
        return None
    found = sorted((f, f.stat()) for f in folder.rglob("*") if f.is_file())
    return [(f.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime_ns) for f, stat in found]


def _dotted(values: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
