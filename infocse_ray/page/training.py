"""Training curves: loss, gradient and spread by step, and what each validation found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from infocse_ray.page.blocks import Block, Figure, Note, Section, listed, thinned
from infocse_ray.page.events import Curve, read_curves
from infocse_ray.page.figure import DASHES, MARKERS, MUTED, SERIES, drawing
from infocse_ray.page.record import Record
from infocse_ray.page.scores import metric_name

_POINTS = 240
"""Points of a line at most: a page has no room for more."""

_Curves = Mapping[str, Mapping[str, Curve]]
"""Of each training, by what is drawn."""
_Histories = Mapping[str, Sequence[Mapping[str, Any]]]
"""Of each training, its validations."""

_DRAWN = {
    "loss": ("Training loss", "loss of a batch"),
    "gradient_norm": ("Norm of the gradient", "norm of the gradient"),
    "spread": ("Spread of the vectors", "spread: 0 if all are the same"),
}


def training_section(record: Record) -> Section:
    """Of every training, finished or under way."""
    curves = {name: _curves_of(record, name) for name in _begun(record)}
    histories = {name: record.stages[f"{name}/train"].summary.get("history", []) for name in record.trainings}
    for name in [name for name in curves if name not in histories]:  # under way
        seen = curves[name].get(f"validation/{record.metric}", [])
        histories[name] = [{"step": step, record.metric: value} for step, value in seen]
    if not any(curves.values()) and not any(histories.values()):
        what = "Nothing was trained" if record.finished else "Nothing is trained yet"
        return Section("training", "Training curves", [Note(f"{what}, so there are no curves.")])
    blocks: list[Block] = [*_figures_of_steps(curves, histories)]
    blocks[1:1] = _of_validations(record.metric, histories)
    if any(not curves.get(name, {}).get("train/loss") for name in histories):
        blocks.append(_why_so_few_points(record))
    return Section("training", "Training curves", blocks)


def _figures_of_steps(curves: _Curves, histories: _Histories) -> Iterator[Figure]:
    """A figure for each of `_DRAWN` that is known of a training."""
    for kept, (title, axis) in _DRAWN.items():
        lines = {
            _said(name): _line(curves.get(name, {}), histories.get(name, []), kept) for name in {**curves, **histories}
        }
        if known := {name: line for name, line in lines.items() if line}:
            yield _curves_figure(title, axis, known)


def _of_validations(metric: str, histories: _Histories) -> Iterator[Block]:
    """The figure of all trainings, and whether their scores can be compared."""
    found = {_said(name): history for name, history in histories.items() if history}
    if not found:
        return
    yield _validations(metric, found)
    counts = [[history[0].get(name) for name in ("queries", "candidates")] for history in found.values()]
    # Of a training under way there is the score alone.
    if len({tuple(asked) for asked in counts if None not in asked}) > 1:
        yield Note("These trainings were not all asked the same questions: their scores can't be compared.")


def _why_so_few_points(record: Record) -> Note:
    sinks = record.settings.get("tracking", {}).get("sinks", ["tensorboard"])
    gone = "its event files are gone" if "tensorboard" in sinks else "tracking.sinks was without tensorboard"
    return Note(
        "Where a training has points at its validations only, or begins late, another run of this storage trained it, "
        f"or it was killed and went on, or {gone}: steps are kept in the events/ folder of the run that took them."
    )


def _curves_of(record: Record, training: str) -> dict[str, Curve]:
    """Those that are of this run's training, and not of what ran under its name before."""
    stage = record.stages.get(f"{training}/train")
    its = (record.begun or {}).get(training) if stage is None else (stage.folder.relative, stage.fingerprint)
    return read_curves(record.folder, training, its, record.earlier)


def _begun(record: Record) -> list[str]:
    """Trainings that are finished, and those that have begun."""
    if record.finished:
        return record.trainings
    if record.begun is not None:
        return [*record.trainings, *sorted(record.begun.keys() - {*record.trainings})]
    # An earlier version noted none: there may be steps.
    there = {path.partition("/")[0] for path in (record.folder / "events").files()} - {"run", "iterations"}
    known = {name for name in there if name.rpartition("_")[2].isdigit() and not name.endswith("s")}
    return [*record.trainings, *sorted(known - {*record.trainings})]


def _said(training: str) -> str:
    return training.replace("_", " ")


def _line(curves: Mapping[str, Curve], history: Sequence[Mapping[str, Any]], name: str) -> Curve:
    """Values by step, of the event files, else of the validations."""
    if line := curves.get(f"train/{name}"):
        return line
    return [(entry["step"], entry[name]) for entry in history if name in entry]


def _curves_figure(title: str, axis: str, lines: Mapping[str, Curve]) -> Figure:
    """A line a training."""
    ends = "; ".join(f"{name} from {line[0][1]:.3g} to {line[-1][1]:.3g}" for name, line in [*lines.items()][:4])
    alt = f"{title} by step: {ends}."
    with drawing(alt, _height(len(lines))) as (axes, drawn):
        for number, (name, line) in enumerate(lines.items()):
            steps, values = _averaged(line)
            marker = MARKERS[number % len(MARKERS)] if len(steps) <= 12 else None
            colour, dashes = SERIES[number % len(SERIES)], DASHES[number % len(DASHES)]
            axes.plot(steps, values, color=colour, linestyle=dashes, linewidth=1.5, marker=marker, label=name)
        axes.set_xlabel("step", color=MUTED)
        axes.set_ylabel(axis, color=MUTED)
        _legend(axes, len(lines))
    rows = [[name, step, value] for name, line in lines.items() for step, value in thinned(line)]
    return Figure(title, drawn.svg, listed(title, ("training", "step", axis), rows, folded=True))


def _averaged(line: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values (float64 each), means of neighbours where there are too many."""
    points = np.array(line, np.float64)
    parts = np.array_split(points, min(len(points), _POINTS))
    return np.array([part[:, 0].mean() for part in parts]), np.array([part[:, 1].mean() for part in parts])


def _validations(metric: str, histories: _Histories) -> Figure:
    """The score of every validation, with its interval where there are few."""
    name = metric_name(metric)
    ends = "; ".join(f"{said} best {max(one[metric] for one in h):.4f}" for said, h in [*histories.items()][:4])
    alt = f"Validation {name} by step: {ends}."
    few = sum(map(len, histories.values())) <= 24
    span = max((entry["step"] for history in histories.values() for entry in history), default=1)
    with drawing(alt, _height(len(histories))) as (axes, drawn):
        for number, (said, history) in enumerate(histories.items()):
            values = np.array([entry[metric] for entry in history])
            # Beside each other, not one over the other.
            steps = np.array([entry["step"] for entry in history]) + (0.012 * span * number if few else 0.0)
            ends_of = [np.array([entry.get(f"{metric}_{end}", entry[metric]) for entry in history]) for end in _ENDS]
            errors = [np.maximum(values - ends_of[0], 0), np.maximum(ends_of[1] - values, 0)] if few else None
            axes.errorbar(
                steps,
                values,
                yerr=errors,
                color=SERIES[number % len(SERIES)],
                linestyle=DASHES[number % len(DASHES)],
                marker=MARKERS[number % len(MARKERS)],
                capsize=3,
                label=said,
            )
        axes.set_xlabel("step", color=MUTED)
        axes.set_ylabel(f"validation {name}", color=MUTED)
        _legend(axes, len(histories))
    rows = []
    for said, history in histories.items():
        for entry in thinned(history):
            low, high = (entry.get(f"{metric}_{end}") for end in _ENDS)
            interval = "" if low is None or high is None else f"{low:.4f} to {high:.4f}"
            rows.append([said, entry["step"], f"{entry[metric]:.4f}", interval])
    head = ("training", "step", f"validation {name}", "95 % interval")
    return Figure(f"Validation {name}", drawn.svg, listed("Validations", head, rows, folded=True))


_ENDS = ("low", "high")
_COLUMNS = 3
"""Of a legend."""


def _height(lines: int) -> float:
    """Inches of a figure whose legend leaves the plot its room, however many lines there are."""
    return 3.0 + 0.24 * max(0, math.ceil(lines / _COLUMNS) - 2)


def _legend(axes: Any, lines: int) -> None:
    axes.figure.legend(loc="outside upper right", ncols=min(lines, _COLUMNS))
