"""The plot of a sweep: the score over its parameters.

One or two listed parameters give lines, one for each value of the second; more, or drawn ones, a scatter for each.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from infocse_ray.sweep.plan import shown_value


def plot(results: dict[str, Any]) -> bytes:
    """A sweep as PNG.

    Args:
        results: what `summarise` returns.
    """
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(results["parameters"])
    lines = len(names) <= 2 and all("grid" in how for how in results["parameters"].values())
    panels = 1 if lines else len(names)
    figure = Figure(figsize=(max(6.4, 4.0 * panels), 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    for number, axes in enumerate(figure.subplots(1, panels, squeeze=False, sharey=True)[0]):
        axes.set_prop_cycle(style.library["tableau-colorblind10"]["axes.prop_cycle"])
        (_lines if lines else _scatter)(axes, names[number:], results)
        if results["start"] is not None:
            axes.axhline(results["start"], color="#999999", linestyle="--", linewidth=1)
        axes.set_xlabel(_literal(names[number]))
        axes.spines[["top", "right"]].set_visible(False)
        if not number:
            axes.set_ylabel(f"{results['metric']} (validation, best iteration; dashed: before)")
    figure.suptitle(_literal(results["name"]))
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=150)
    return out.getvalue()


def _lines(axes: Any, names: list[str], results: dict[str, Any]) -> None:
    rows = results["trials"]
    found = {tuple(shown_value(row["values"][name]) for name in names): row["score"] for row in rows}
    # In the order of the trials, which is that of the grid.
    first, *second = (list(dict.fromkeys(shown_value(row["values"][name]) for row in rows)) for name in names)
    for line in second[0] if second else [None]:
        scores = [found[(tick,) if line is None else (tick, line)] for tick in first]
        label = None if line is None else _literal(f"{names[1]} = {line}")
        axes.plot(range(len(first)), [np.nan if s is None else s for s in scores], marker="o", label=label)
    axes.set_xticks(range(len(first)), [_literal(tick) for tick in first])
    if second:
        axes.legend(frameon=False)


def _scatter(axes: Any, names: list[str], results: dict[str, Any]) -> None:
    rows = [row for row in results["trials"] if row["score"] is not None]
    values = [row["values"][names[0]] for row in rows]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        if "loguniform" in results["parameters"][names[0]]:
            axes.set_xscale("log")
    else:
        values = [_literal(shown_value(value)) for value in values]
    axes.scatter(values, [row["score"] for row in rows])


def _literal(text: str) -> str:
    """Matplotlib would read what is between dollar signs as a formula."""
    return text.replace("$", r"\$")
