"""What whitening found: the spectrum it levels, and how well held-out sentences are found by power and dimensions."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from infocse_ray.page.blocks import Block, Figure, Note, Section, listed, thinned
from infocse_ray.page.figure import MARKERS, MUTED, SERIES, drawing
from infocse_ray.page.record import Record, StageRecord
from infocse_ray.page.scores import metric_name
from infocse_ray.storage.checksums import verified

_METRICS = ("recall@5", "mrr")


def whitening_section(record: Record) -> Section:
    """Of the whitening of the encoder that the run started from."""
    title, stage = "Whitening", record.stages.get("iteration_0/whitening")
    if stage is None:
        off = record.finished or record.settings.get("encoder", {}).get("whiten") == "off"
        return Section("whitening", title, [Note("No whitening: it is off." if off else "Nothing is whitened yet.")])
    kept = _kept(stage)
    summary = stage.summary or kept
    power, sentences = summary.get("power"), summary.get("sentences", 0)
    blocks: list[Block] = []
    if power is not None:
        texts = f" and {whole:,} whole documents" if (whole := summary.get("whole")) else ""
        said = f"Power {power:g}, fitted on {sentences:,} sentences{texts}; "
        blocks.append(Note(f"{said}vectors have {summary['dimension']:,} dimensions."))
    if record.whitening_left_out:
        blocks.append(Note("Left out: by validation the encoder as it came was better than whitened."))
    curves = kept.get("curves")
    if curves is None:
        blocks.append(Note("No spectrum and no curves: an earlier version made this whitening and kept none."))
        if scores := summary.get("scores"):
            blocks.insert(0, _by({p: {"mrr": s} for p, s in scores.items()}, None, "power", f"{power:g}"))
        return Section("whitening", title, [*blocks, *_powers(record)])
    blocks.append(_spectrum(np.array(curves["spectrum"])))
    if "powers" in curves:
        blocks.append(_by(curves["powers"], curves["plain"], "power", f"{power:g}"))
        blocks.append(_by(curves["cuts"], curves["plain"], "dimensions", str(summary["dimension"])))
        blocks.append(
            Note(
                "Asked without labels: a validation document, without one of its sentences, must find that sentence "
                "among all that were held out. By this the power is chosen."
            )
        )
    else:
        blocks.append(Note("Nothing was asked by power and dimensions: encoder.whiten gives the power."))
    return Section("whitening", title, [*blocks, *_powers(record)])


def _kept(stage: StageRecord) -> dict[str, Any]:
    """What the stage wrote of what it found; nothing where that is missing or damaged."""
    with contextlib.suppress(OSError):
        return verified((stage.folder / "whitening.json").read_bytes()) or {}
    return {}


def _spectrum(values: np.ndarray) -> Figure:
    """Variances by direction, on a logarithmic scale."""
    share = np.cumsum(values) / values.sum()
    half = int(np.searchsorted(share, 0.5)) + 1
    alt = f"Variance of the sentence vectors along their {len(values)} principal directions, from {values[0]:.2g} down "
    alt += f"to {values[-1]:.2g}: half of all variance is in the first {half}."
    with drawing(alt) as (axes, drawn):
        axes.plot(np.arange(1, len(values) + 1), values, color=SERIES[0], linewidth=1.8)
        axes.set_yscale("log")
        axes.set_xlabel("principal direction", color=MUTED)
        axes.set_ylabel("variance", color=MUTED)
        axes.axvline(half, color=MUTED, linestyle=":", linewidth=1.2)
        axes.annotate(f"half of it in {half}", (half, values[0]), (5, -3), textcoords="offset points", va="top")
    places = thinned(range(len(values)))
    rows = [[place + 1, float(values[place]), f"{100 * share[place]:.1f} %"] for place in places]
    table = listed("Spectrum", ("direction", "variance", "share up to it"), rows, folded=True)
    return Figure("Spectrum before whitening", drawn.svg, table)


def _by(scores: Mapping[str, Mapping[str, float]], plain: Mapping[str, float] | None, what: str, chosen: str) -> Figure:
    """Recall and MRR over powers or dimensions, the unwhitened encoder as a line."""
    points = sorted(scores, key=float)
    there = [metric for metric in _METRICS if metric in scores[points[0]]]
    best = {metric: max(points, key=lambda point: scores[point][metric]) for metric in there}
    said = "; ".join(f"{metric_name(m)} is best at {best[m]} ({scores[best[m]][m]:.3f})" for m in there)
    alt = f"Held-out sentences found, by {what}: {said}; chosen: {chosen}."
    with drawing(alt) as (axes, drawn):
        for number, metric in enumerate(there):
            values = np.array([scores[point][metric] for point in points])
            low, high = (
                np.array([scores[p].get(f"{metric}_{end}", scores[p][metric]) for p in points]) for end in _ENDS
            )
            axes.errorbar(
                [float(point) for point in points],
                values,
                yerr=[np.maximum(values - low, 0), np.maximum(high - values, 0)],
                color=SERIES[number],
                marker=MARKERS[number],
                capsize=3,
                label=metric_name(metric),
            )
            if plain is not None:
                axes.axhline(plain[metric], color=SERIES[number], linestyle=":", linewidth=1.4)
        if plain is not None:
            axes.plot([], [], color=MUTED, linestyle=":", label="not whitened")
        axes.axvline(float(chosen), color=MUTED, linewidth=0.9, linestyle="--", label="chosen")
        if what == "dimensions":
            axes.set_xscale("log", base=2)
            axes.minorticks_off()
            shown = points if len(points) <= 7 else points[::2]
            axes.set_xticks([float(point) for point in shown], shown)
        axes.set_xlabel(what, color=MUTED)
        axes.set_ylabel("score", color=MUTED)
        axes.figure.legend(loc="outside upper center", ncols=4, handlelength=1.4, columnspacing=1.0)
    rows = [[point, *(_with_interval(scores[point], metric) for metric in there)] for point in points]
    if plain is not None:
        rows.insert(0, ["not whitened", *(_with_interval(plain, metric) for metric in there)])
    head = (what, *(f"{metric_name(metric)} (95 % interval)" for metric in there))
    return Figure(f"By {what}", drawn.svg, listed(f"Scores by {what}", head, rows, folded=True))


_ENDS = ("low", "high")


def _with_interval(scores: Mapping[str, float], metric: str) -> str:
    value = f"{scores[metric]:.4f}"
    low, high = (scores.get(f"{metric}_{end}") for end in _ENDS)
    return value if low is None or high is None else f"{value} ({low:.3f} to {high:.3f})"


def _powers(record: Record) -> list[Block]:
    """The power that each training's result was whitened with."""
    rows = []
    for name in record.trainings:
        chosen = record.stages[f"{name}/train"].summary.get("chosen", {})
        if (whitening := chosen.get("whitening")) is not None:
            rows.append([name.replace("_", " "), whitening["power"], whitening["dimension"]])
    return [listed("Whitening of what was trained", ("training", "power", "dimensions"), rows)] if rows else []
