"""A plot of each table: recall@5 as bars, grouped by corpus, with one standard deviation as error bars."""

from __future__ import annotations

import importlib.util
import io
from typing import Any

import numpy as np

from infocse_ray.report.studies import Study

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999", "#000000")
"""Okabe and Ito's, which people with any colour vision tell apart; black last, for InfoCSE of the first table."""
_METRIC = "recall@5"


def require_matplotlib() -> None:
    """Raise a ValueError that says what to install, before any cell has run, if plots can't be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("matplotlib is missing; install it with: pip install -c constraints.txt -e '.[report]'")


def plot(study: Study, tables: dict[str, Any]) -> bytes:
    """A table as PNG.

    Args:
        study: with the rows to show.
        tables: what `summarise` returns.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    corpora = list(tables["corpora"])
    places, width = np.arange(len(corpora)), 0.8 / len(study.rows)
    figure = Figure(figsize=(max(6.4, 1.5 + 0.3 * len(corpora) * len(study.rows)), 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, row in enumerate(study.rows):
        found = [tables["corpora"][name]["tables"][study.name][number]["metrics"][_METRIC] for name in corpora]
        axes.bar(
            places + (number - (len(study.rows) - 1) / 2) * width,
            [np.nan if one["mean"] is None else one["mean"] for one in found],  # no score, no bar
            width,
            yerr=[one["sd"] or 0.0 for one in found],
            capsize=2,
            color=_COLOURS[number % len(_COLOURS)],
            ecolor="#555555",
            label=_literal(row.label),
        )
    axes.set_xticks(places, [_literal(name) for name in corpora])
    axes.set_xlabel("corpus")
    axes.set_ylabel(f"{_METRIC} (test; mean ± sd over seeds)")
    axes.set_title(study.title)
    axes.spines[["top", "right"]].set_visible(False)
    long = max(len(row.label) for row in study.rows) > 30
    figure.legend(loc="outside lower center", ncols=2 if long else 3, frameon=False, fontsize="small")
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=150, bbox_inches="tight")  # a long legend widens the picture
    return out.getvalue()


def _literal(text: str) -> str:
    """Matplotlib would read what is between dollar signs as a formula."""
    return text.replace("$", r"\$")
