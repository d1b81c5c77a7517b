"""The plots show the tables' numbers, and say what to install where they can't be drawn."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infocse_ray.report import plots
from infocse_ray.report.runner import reproduce
from infocse_ray.report.studies import STUDIES
from tests.unit.table_runs import Runs, tables


def content(means: dict[str, list[float | None]], sd: float | None = 0.1, variants: int = 2) -> dict[str, Any]:
    """Rows of the table `clustering`, plain and, by 0.1 more, whitened."""
    names = ["plain", "whitened"][:variants]

    def row(key: str, mean: float | None) -> dict[str, Any]:
        found = {
            name: {"recall@5": {"mean": None if mean is None else mean + more, "sd": None if mean is None else sd}}
            for name, more in zip(names, (0.0, 0.1), strict=False)
        }
        return {"key": key, "metrics": found}

    keys = [row.key for row in STUDIES["clustering"].rows]
    return {
        "variants": names,
        "corpora": {
            name: {"tables": {"clustering": [row(key, mean) for key, mean in zip(keys, rows, strict=True)]}}
            for name, rows in means.items()
        },
    }


def test_points_are_the_means(figures: list[Any]):
    plots.plot(STUDIES["clustering"], content({"a_$b$": [0.2, 0.5, 0.3], "c": [0.4, None, 0.4], "d": [0.1, 0.3, 0.0]}))
    panels = [axes for axes in figures[0].axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == [r"a_\$b\$", "c", "d"]
    for axes, expected in zip(panels, ([0.2, 0.5, 0.3], [0.4, np.nan, 0.4], [0.1, 0.3, 0.0]), strict=True):
        plain, whitened = (container.lines[0].get_xdata() for container in axes.containers)
        assert plain == pytest.approx(expected, nan_ok=True)  # a score of 0 is a point, none is none
        assert whitened == pytest.approx(np.array(expected) + 0.1, nan_ok=True)
        # What rows are to pass: the encoder as it is, whitened.
        [start] = [line for line in axes.lines if line.get_linestyle() == "--"]
        assert start.get_xdata() == pytest.approx([expected[0] + 0.1] * 2)
    # The error bars reach from mean - sd to mean + sd.
    segments = [s for c in panels[0].collections for s in c.get_segments() if len(s)]
    assert any(np.allclose(segment[:, 0], [0.4, 0.6]) for segment in segments)
    assert figures[0].get_suptitle() == "Clustering: recall@5 (test; mean ± sd over seeds)"
    assert [text.get_text() for text in panels[0].get_yticklabels()] == [
        "The encoder as it is",
        "IDC (K-means)",
        "IDC (partition)",
    ]
    low, high = panels[0].get_ylim()
    assert low > high, "the first row is on top"
    legend = {text.get_text() for text in figures[0].legends[0].get_texts()}
    assert legend == {"plain", "whitened", "The encoder as it is, whitened"}


def test_the_line_is_named_whichever_corpus_has_it_first(figures: list[Any]):
    plots.plot(STUDIES["clustering"], content({"not run yet": [None, 0.5, 0.3], "b": [0.2, 0.5, 0.3], "c": [0.1] * 3}))
    legend = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert sorted(legend) == ["The encoder as it is, whitened", "plain", "whitened"], "each once"


def test_without_whitening_there_is_one_point_a_row(figures: list[Any]):
    plots.plot(STUDIES["clustering"], content({"a": [None, 0.5, 0.3]}, variants=1))
    [axes] = figures[0].axes
    [points] = axes.containers
    assert points.lines[0].get_xdata() == pytest.approx([np.nan, 0.5, 0.3], nan_ok=True)
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["recall@5"]


def test_every_table_has_a_picture(tmp_path: Path):
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    runs = Runs(lambda method, seed, t: [1, 30])
    reproduce(tables(tmp_path, tables=["zero_shot", "clustering"], only_rows=["start", "infocse"]), runs)
    for name in ("zero_shot", "clustering"):
        with image.open(io.BytesIO((tmp_path / "runs" / "t" / f"{name}.png").read_bytes())) as picture:
            picture.verify()
            assert picture.format == "PNG"
            assert min(picture.size) > 400
