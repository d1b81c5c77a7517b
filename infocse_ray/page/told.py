"""Sections that tell what a run has said and was told: questions that moved, time, settings, versions, warnings."""

from __future__ import annotations

from typing import Any

from infocse_ray.page.blocks import Block, Figure, Lines, Note, Question, Section, listed
from infocse_ray.page.figure import MUTED, SERIES, drawing, label
from infocse_ray.page.record import Record
from infocse_ray.runtime.progress import duration
from infocse_ray.settings import Settings
from infocse_ray.settings.fields import defaults_of
from infocse_ray.settings.nested import flat

_STAGES = {
    "prepare": "reading the corpus",
    "encoder": "saving the encoder",
    "whitening": "whitening the start",
    "annotate": "annotating",
    "examples": "counting examples",
    "train": "training",
    "evaluate": "scoring",
    "labels": "drawing labels",
}
_OPEN = 3
"""Questions that are open when the page is."""
_BARS = 24
"""Stages that the plot shows; the table has all."""


def moved_section(record: Record) -> Section:
    """The questions whose rank changed most, with what was found before and after."""
    title = "Questions that moved most"
    if record.moved is None:
        why = "an earlier version made it and kept none" if record.finished else "it isn't finished"
        return Section("moved", title, [Note(f"This run has no list of questions: {why}.")])
    moved = record.moved
    counts, split = moved["questions"], {"valid": "validation"}.get(moved["split"], moved["split"])
    what = {
        "counterpart": "its counterpart among all counterparts",
        "sentence": "a sentence that was taken out of it among all that were",
        "halves": "its other half among all halves",
        "readings": "the mean of its sentences among those of all, by its text as a whole",
    }[moved["on"]]
    said = f"Of {sum(counts.values()):,} {split} questions {counts['up']:,} rank better than with {moved['before']}, "
    said += f"{counts['down']:,} worse, {counts['same']:,} the same. Each document has to find {what}. "
    said += "Texts are as the tokenizer has them."
    blocks: list[Block] = [Note(said)]
    for place, one in enumerate(moved["moved"]):
        blocks.append(Question(one, one["ranks"][1] < one["ranks"][0], folded=place >= _OPEN))
    return Section("moved", title, blocks)


def time_section(record: Record) -> Section:
    """Seconds of every stage, each once however often it is referred to."""
    stages: dict[str, tuple[str, str, float | None, float]] = {}
    for name in sorted(record.stages, key=_natural):
        stage = record.stages[name]
        stages.setdefault(stage.fingerprint, (name, _STAGES.get(stage.kind, stage.kind), stage.starting, stage.seconds))
    rows = list(stages.values())
    if not rows:
        return Section("time", "Where the time went", [Note("No stage is finished yet.")])
    total = sum(seconds for *_, seconds in rows)
    bars = sorted(rows, key=lambda row: -row[-1])[:_BARS]
    longest = bars[0]
    alt = f"Seconds of the stages, {duration(total)} in all; the longest is {longest[0]} with {duration(longest[-1])}."
    kinds = list(dict.fromkeys(kind for _, kind, *_ in bars))
    with drawing(alt, 0.9 + 0.24 * len(bars)) as (axes, drawn):
        for kind in kinds:
            places = [i for i, row in enumerate(bars) if row[1] == kind]
            colour = SERIES[kinds.index(kind) % len(SERIES)]
            axes.barh(places, [bars[i][-1] for i in places], color=colour, height=0.7)
        for i, (*_, seconds) in enumerate(bars):
            axes.annotate(duration(seconds), (seconds, i), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(bars)), [label(name) for name, *_ in bars])
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.margins(x=0.16)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("seconds", color=MUTED)
    cells = [
        [
            name,
            kind,
            f"{seconds:,.1f}",
            "" if starting is None else f"{starting:,.1f}",
            f"{100 * seconds / max(total, 1e-9):.1f} %",
        ]
        for name, kind, starting, seconds in rows
    ]
    table = listed("Seconds by stage", ("stage", "work", "seconds", "of these starting", "share"), cells, folded=True)
    said = f"{duration(total)} in finished stages, one after the other. A stage that another run of this storage had "
    said += "finished is counted with the time that it took then. Starting is what passed until a stage's workers, "
    said += "whose processes load libraries and the encoder first, began or had done something."
    return Section("time", "Where the time went", [Figure("Seconds by stage", drawn.svg, table), Note(said)])


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Orders iteration_2 before iteration_10, the corpus first, the result last."""
    if name == "corpus":
        return [(-1, 0)]
    words = name.replace("/", "_").split("_")
    return [(0, int(word)) if word.isdigit() else (1, word) for word in words]


def settings_section(record: Record) -> Section:
    """What differs from the defaults, then everything."""
    given = dict(flat(record.settings))
    if not given:
        return Section("settings", "Settings", [Note("The run's manifest has no settings.")])
    defaults = {name: text_of(value) for name, value in defaults_of(Settings).items()}
    changed = [
        [name, text_of(value), defaults.get(name)]
        for name, value in given.items()
        if defaults.get(name) != text_of(value)
    ]
    head = ("setting", "value")
    return Section(
        "settings",
        "Settings",
        [
            listed("Settings that differ from the defaults", (*head, "default"), changed),
            listed("All settings", head, [[name, text_of(value)] for name, value in given.items()], folded=True),
        ],
    )


def text_of(value: Any) -> str:
    """A setting's value as the command line takes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, float) and float(short := f"{value:g}") == value:
        return short
    return str(value)


def versions_section(record: Record) -> Section:
    """Of what computed the result."""
    versions = (record.metrics or {}).get("versions")
    if versions is None:
        why = "Versions are kept when a run is finished."
        if record.finished and record.metrics is None:
            why = f"No versions: {record.why_no_metrics}."
        return Section("versions", "Versions", [Note(why)])
    return Section("versions", "Versions", [listed("Versions", ("package", "version"), sorted(versions.items()))])


def warnings_section(record: Record) -> Section:
    """What the run warned of."""
    title = "Warnings"
    if record.metrics is None:
        why = "Warnings are kept when a run is finished; till then its log has them."
        return Section("warnings", title, [Note(f"No warnings: {record.why_no_metrics}." if record.finished else why)])
    warnings = record.metrics.get("warnings")
    if warnings is None:
        return Section("warnings", title, [Note("An earlier version made this run and kept no warnings.")])
    return Section("warnings", title, [Lines(warnings) if warnings else Note("It warned of nothing.")])
