"""The plots show the tables' numbers, and say what to install where they can't be drawn."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infocse_ray.report import plots
from infocse_ray.report.runner import reproduce
from infocse_ray.report.studies import STUDIES
from tests.unit.table_runs import Runs, tables


def content(means: dict[str, list[float | None]], sd: float | None = 0.1) -> dict[str, Any]:
    def row(mean: float | None) -> dict[str, Any]:
        return {"metrics": {"recall@5": {"mean": mean, "sd": None if mean is None else sd}}}

    return {"corpora": {name: {"tables": {"clustering": [row(m) for m in rows]}} for name, rows in means.items()}}


def test_bars_are_the_means(figures: list[Any]):
    plots.plot(STUDIES["clustering"], content({"a_$b$": [0.2, 0.5], "c": [None, 0.4], "d": [0.0, 0.3]}))
    axes = figures[0].axes[0]
    first, second = (
        [bar.get_height() for bar in container] for container in axes.containers if hasattr(container, "patches")
    )
    assert first == pytest.approx([0.2, np.nan, 0.0], nan_ok=True)  # a score of 0 is a bar, none is none
    assert second == [0.5, 0.4, 0.3]
    # The error bars reach from mean - sd to mean + sd.
    segments = [s for c in axes.collections for s in c.get_segments() if len(s)]
    assert any(np.allclose(segment[:, 1], [0.4, 0.6]) for segment in segments)
    assert axes.get_xlabel() == "corpus"
    assert "recall@5" in axes.get_ylabel()
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["IDC (K-means)", "IDC (partition)"]


def test_every_table_has_a_picture(tmp_path: Path):
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    runs = Runs(lambda method, seed, t: [1, 30])
    reproduce(tables(tmp_path, tables=["zero_shot", "clustering"], only_rows=["start", "infocse"]), runs)
    for name in ("zero_shot", "clustering"):
        with image.open(io.BytesIO((tmp_path / "runs" / "t" / f"{name}.png").read_bytes())) as picture:
            picture.verify()
            assert picture.format == "PNG"
            assert min(picture.size) > 500


def test_no_matplotlib_is_said_before_any_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runs = Runs(lambda method, seed, t: [1, 30])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"matplotlib is missing; install it with: pip install .*\[report\]"):
        reproduce(tables(tmp_path), runs)
    assert runs.calls == []
    assert not (tmp_path / "runs" / "t").exists()
