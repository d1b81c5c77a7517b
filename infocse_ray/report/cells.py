"""Cells: what is trained once for a corpus, a method, a seed and a learning rate; slots: what of it a row shows.

1. A slot is of a corpus, a method and a seed; it has a cell for each learning rate.
2. With the first seed all cells of a slot run, and validation chooses (`report/choice.py`). In a slot of another seed,
   and of a method that takes over another's learning rate, the one cell with what was chosen runs.
3. Slots with the same settings are one slot, whichever rows show it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from infocse_ray.corpus.source import Source, find_source
from infocse_ray.report.adapt import adapt_method
from infocse_ray.report.cell_settings import budget_of, learning_rates_of, settings_of
from infocse_ray.report.config import TableCorpus, Tables
from infocse_ray.report.studies import (
    ADAPT,
    FIRST_ENCODER,
    METHODS,
    Study,
    TableMethod,
    TableRow,
    methods_with,
    studies_with,
)
from infocse_ray.settings import Corpus, Settings, fingerprint
from infocse_ray.settings.section import FEW_SHOT
from infocse_ray.storage.folder import Storage, is_remote
from infocse_ray.storage.redact import without_credentials

_NOT_NAMED: dict[str, Any] = {
    "name": True,
    "storage": True,
    "minutes": True,
    "explorer": True,
    "tracking": True,
    "corpus": {"labels"},
}
"""Settings that a cell is not named by: the fingerprint of its files has the label files, `minutes` isn't set."""

_RECORD = 4
"""Version of a cell's record. If it differs, the record is made again from the finished run."""

Place = tuple[str, str, int]
"""Corpus, method, seed."""


class Cell(NamedTuple):
    """One run: of `pretrain`, or with labels."""

    name: str
    """Corpus, method and seed, and the learning rate if there are several."""
    corpus: str
    method: str
    seed: int
    rate: float | None
    """Its learning rate, where that is one of several."""
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
        """For people: bbc_news / SimCSE / seed 2 / learning rate 2e-05."""
        rate = "" if self.rate is None else f" / learning rate {self.rate:g}"
        return f"{self.corpus} / {self.label} / seed {self.seed}{rate}"


class Slot(NamedTuple):
    """What rows show of a corpus, a method and a seed: one of these cells."""

    place: Place
    cells: tuple[Cell, ...]
    """One a learning rate."""
    chosen_by: Place | None
    """The slot whose cells all run, so that validation chooses the learning rate; None where there is one cell."""

    @property
    def chooses(self) -> bool:
        """Whether all its cells run."""
        return self.chosen_by == self.place

    @property
    def runs(self) -> int:
        """How many of its cells are to run."""
        return len(self.cells) if self.chooses else 1

    @property
    def title(self) -> str:
        """For people: bbc_news / SimCSE / seed 2."""
        return self.cells[0]._replace(rate=None).title


class CellPlan(NamedTuple):
    """Every slot of the tables, which of them are to run, and who shows them."""

    studies: list[Study]
    """The tables asked for."""
    slots: list[Slot]
    """What the tables show or choose by, each once, in the order they run: all of the first seed, then all of the next.
    What chooses a learning rate comes before all that take it over."""
    asked: list[Slot]
    """Those of them that may run: of the rows and corpora asked for, and what chooses their learning rates."""
    at: dict[Place, Slot]
    skipped: dict[str, str]
    """Why a method isn't run."""
    families: dict[str, str]
    """Of each method."""
    whitened: bool
    """Whether encoders are whitened, so that every row has two variants."""

    @property
    def cells(self) -> list[Cell]:
        """Of all slots, those that may have run."""
        return list({cell.name: cell for slot in self.slots for cell in slot.cells}.values())


def plan_cells(config: Tables, find: Callable[[Corpus], Source] = find_source) -> CellPlan:
    """Settle and check the settings of every cell.

    Args:
        config: of the tables.
        find: finds a corpus' files.

    Raises:
        ValueError: one line that names corpus, row and setting; nothing has run.
    """
    methods, missing = _methods(config)
    studies = [_named(study, methods) for study in studies_with(config.tables, config.label_sizes)]
    whitened = False
    files = {}
    for corpus in config.corpora:
        settings, files[corpus.name] = _check_corpus(config, corpus, find)
        whitened = settings.encoder.whiten != "off"
    at: dict[Place, Slot] = {}
    stamps: dict[str | None, Any] = {}
    every: dict[tuple[str, ...], Slot] = {}
    for seed in config.seeds:
        for corpus in config.corpora:
            # In the order of all methods, asked for or not, so that a slot that methods share has one name.
            for method in methods.values():
                slot = _slot(config, corpus, method, seed, files[corpus.name], stamps)
                at[slot.place] = every.setdefault(tuple(cell.identity for cell in slot.cells), slot)
    rows = [row for study in studies for row in study.rows]
    _check_rows(config, rows, missing)
    shown = {row.method for row in rows}
    run = {row.method for row in rows if config.only_rows is None or row.key in config.only_rows}
    slots = _with_choosers(at, [slot for place, slot in at.items() if place[1] in shown])
    asked = _with_choosers(
        at,
        [
            slot
            for (corpus, method, _), slot in at.items()
            if method in run and (config.only_corpora is None or corpus in config.only_corpora)
        ],
    )
    _check_label_sizes(asked)
    return CellPlan(
        studies,
        slots,
        asked,
        at,
        {key: reason for key, reason in missing.items() if key in shown},
        {key: method.family for key, method in methods.items()},
        whitened,
    )


def _methods(config: Tables) -> tuple[dict[str, TableMethod], dict[str, str]]:
    """All methods that can run, by key, and why others can't."""
    methods, missing = methods_with(config.label_sizes), {}
    if config.first_encoder is None:
        missing[FIRST_ENCODER] = "first_encoder isn't set; name an encoder that annotates first, such as SBERT's"
    if config.adapt is None:
        missing[ADAPT] = "adapt isn't set; name a configuration of `infocse pretrain`, such as `adapt`"
    else:
        methods[ADAPT] = adapt_method(config.adapt)
    return {key: method for key, method in methods.items() if key not in missing}, missing


def _check_rows(config: Tables, rows: list[TableRow], missing: dict[str, str]) -> None:
    """Refuse to run a row that can't be: the command would end at once, as if all were done.

    Raises:
        ValueError: one is asked for by name.
    """
    for row in rows:
        if row.method in missing and row.key in (config.only_rows or ()):
            raise ValueError(f"only_rows: {row.key}: {missing[row.method]}, or leave the row out")


def _named(study: Study, methods: dict[str, TableMethod]) -> Study:
    """A table whose row of a configuration is called after its file."""
    rows = (r._replace(label=methods[ADAPT].label) if r.method == ADAPT in methods else r for r in study.rows)
    return study._replace(rows=tuple(rows))


def _slot(
    config: Tables, corpus: TableCorpus, method: TableMethod, seed: int, files: str, stamps: dict[str | None, Any]
) -> Slot:
    rates = learning_rates_of(config, method)
    cells = []
    for rate in rates:
        name = f"{corpus.name}-{method.key}-{seed}" + (f"-{rate!r}" if len(rates) > 1 else "")
        settings = settings_of(config, corpus, method, seed, rate, f"{config.name}-{name}")
        paths = (settings.encoder.model, settings.annotate.first_encoder)
        for path in paths:
            if path not in stamps:
                stamps[path] = _stamp(path)
        without = _NOT_NAMED | ({} if method.labels else dict.fromkeys(FEW_SHOT, True))
        content = settings.model_dump(mode="json", exclude=without)
        if settings.validate.reading == "sentences":  # pyright: ignore
            del content["validate"]["reading"]  # cells from before there were others keep their names
        identity = fingerprint(_RECORD, _lasting(content), files, *(stamps[path] for path in paths))
        shown, tokens = rate if len(rates) > 1 else None, budget_of(config, method)
        labelled = method.labels is not None
        cells.append(
            Cell(name, corpus.name, method.key, seed, shown, settings, identity, tokens, method.label, labelled)
        )
    chooser = (corpus.name, method.rate_of or method.key, config.seeds[0])
    return Slot((corpus.name, method.key, seed), tuple(cells), chooser if len(rates) > 1 else None)


def _with_choosers(at: dict[Place, Slot], slots: list[Slot]) -> list[Slot]:
    """Slots, each once, and those that choose their learning rates, in the order of all."""
    wanted = {slot.place for slot in slots} | {slot.chosen_by for slot in slots}
    return [slot for place, slot in at.items() if place in wanted and slot.place == place]


def _check_corpus(config: Tables, corpus: TableCorpus, find: Callable[[Corpus], Source]) -> tuple[Settings, str]:
    """A corpus' settings, and the fingerprint of its files, once it is sure that there is something to test on.

    Raises:
        ValueError: it isn't there, or has no counterparts to find.
    """
    settings = settings_of(config, corpus, METHODS["start"], config.seeds[0], None, config.name)
    try:
        if settings.train.similarity == "dot" and settings.encoder.whiten != "off":
            raise ValueError(
                "train.similarity = dot: inner products aren't whitened, and every row is shown plain and whitened; "
                "set encoder.whiten to off, or train.similarity to cosine"
            )
        source = find(settings.corpus)
        if not source.has("counterpart"):
            raise ValueError(
                "corpus.counterpart: no such column; name the column of counterparts (headline, query, ...)"
            )
        if not source.has("split") and not settings.corpus.test_fraction:
            raise ValueError("corpus.test_fraction = 0.0: there are no documents to test on; raise it")
    except ValueError as error:
        raise ValueError(f"corpus {corpus.name}: {error}") from error
    return settings, source.fingerprint


def _check_label_sizes(asked: list[Slot]) -> None:
    """Refuse, before the first cell, labels that are fewer than a batch of fine-tuning.

    Raises:
        ValueError: a cell has so few.
    """
    for cell in (slot.cells[0] for slot in asked if slot.cells[0].labelled):
        size, batch = cell.settings.labels.train_size, cell.settings.finetune.batch_size
        if size != "all" and size < batch:
            raise ValueError(
                f"label_sizes: {size} labelled examples are fewer than a batch (finetune.batch_size = {batch}, "
                f"{cell.title}); set finetune.batch_size to {size} or less"
            )


def _lasting(content: Any) -> Any:
    """Settings as they are named by: without the credentials of URIs, which may change."""
    if isinstance(content, dict):
        return {name: _lasting(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_lasting(value) for value in content]
    return without_credentials(content) if isinstance(content, str) and is_remote(content) else content


def _stamp(path: str | None) -> Any:
    """What tells, without reading it, that an encoder was changed: `pretrain` then looks at its content."""
    if path is None:
        return None
    if is_remote(path):
        infos = sorted(Storage.open(path).files().items())
        return [(name, info.size, info.mtime_ns) for name, info in infos] or None
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return None
    files = sorted((f, f.stat()) for f in folder.rglob("*") if f.is_file())
    return [(f.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime_ns) for f, stat in files]
