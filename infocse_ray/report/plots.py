"""A plot of each table: a panel a corpus, a line a row, recall@5 of the plain and of the whitened encoder as points.

Error bars are one standard deviation; a dashed line is the encoder as it is, whitened, which rows are to pass.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from infocse_ray.page.figure import literal
from infocse_ray.report.outcome import PLAIN, WHITENED
from infocse_ray.report.studies import START, Study

_COLOURS = {PLAIN: "#E69F00", WHITENED: "#0072B2"}
"""Okabe and Ito's, which people with any colour vision tell apart."""
_METRIC = "recall@5"
_ACROSS = 2


def plot(study: Study, tables: dict[str, Any]) -> bytes:
    """A table as PNG.

    Args:
        study: with the rows to show.
        tables: what `summarise` returns.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    corpora, variants = list(tables["corpora"]), tables["variants"]
    across = min(_ACROSS, len(corpora))
    down = -(-len(corpora) // across)
    size = (2.6 + 3.2 * across, 1.2 + down * (0.8 + 0.26 * len(study.rows)))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(down, across, squeeze=False, sharey=True)
    places = np.arange(len(study.rows))
    for number, axes in enumerate(panels.flat):
        if number >= len(corpora):
            axes.set_visible(False)
            continue
        rows = tables["corpora"][corpora[number]]["tables"][study.name]
        for variant in variants:
            scores = [row["metrics"][variant][_METRIC] for row in rows]
            axes.errorbar(
                [np.nan if one["mean"] is None else one["mean"] for one in scores],  # no score, no point
                places,
                xerr=[one["sd"] or 0.0 for one in scores],
                fmt="o",
                markerfacecolor=_COLOURS[variant] if variant == variants[-1] else "white",
                color=_COLOURS[variant],
                capsize=2,
                label=variant if len(variants) > 1 else _METRIC,
            )
        for row in rows:
            start = row["metrics"][variants[-1]][_METRIC]["mean"]
            if row["key"] == START.key and start is not None:
                whitened = ", whitened" if variants[-1] == WHITENED else ""
                axes.axvline(start, color="#555555", linestyle="--", linewidth=1, label=f"{START.label}{whitened}")
        axes.set_yticks(places, [literal(row.label) for row in study.rows])
        axes.set_title(literal(corpora[number]), fontsize="medium")
        axes.grid(axis="y", color="#DDDDDD")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0, 0].invert_yaxis()  # the first row on top; the panels share it
    figure.suptitle(f"{study.title}: {_METRIC} (test; mean ± sd over seeds)", fontsize="large")
    # A corpus whose start hasn't run has no line.
    named = {
        label: handle for axes in panels.flat for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        list(named.values()), list(named), loc="outside lower center", ncols=3, frameon=False, fontsize="small"
    )
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=150, bbox_inches="tight")
    return out.getvalue()
