"""A notebook, run by a real kernel: a bar and lines come out, nothing else, and a result is a table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infocse_ray.loop.shown_in_notebook import result_table

METRICS = {
    "name": "news",
    "start": {
        "validation": {"recall@5": 0.25, "recall@5_low": 0.2, "recall@5_high": 0.3, "mrr": 0.125, "queries": 1200}
    },
    "result": {
        "validation": {"recall@5": 0.5, "recall@5_low": 0.4, "recall@5_high": 0.6, "mrr": 0.25, "queries": 1200}
    },
    "verdict": {"label": "WIN", "line": "WIN, against <script>alert(1)</script>", "judged_on": "validation"},
}

WORKS = """
from infocse_ray.runtime import progress
def work(title):
    bar = progress.Bar(title, 100, "steps")
    for step in range(1, 101):
        bar.to(step, f"loss {1 / step:.2f}")
        if step == 50:
            progress.say("    step 50: validation recall@5 0.5000")
    bar.close()
work("training")
"""
WITHOUT_WIDGETS = """
import sys
sys.modules["ipywidgets"] = None
progress._LINE_SECONDS = 0
work("annotating")
"""
RESULT = """
from infocse_ray.api.results import RunResult
from infocse_ray.storage.folder import Storage
RunResult(Storage("/runs", "news"), {metrics})
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What each cell shows."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("ipywidgets")
    sources = (WORKS, WITHOUT_WIDGETS, RESULT.format(metrics=METRICS))
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    folder = tmp_path_factory.mktemp("notebook")
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in notebook.cells]


def text(cell: list[Any], stream: str) -> str:
    return "".join(output.text for output in cell if output.output_type == "stream" and output.name == stream)


def test_a_bar_is_a_widget_and_events_are_lines(outputs: list[list[Any]]) -> None:
    shown = [output for output in outputs[0] if output.output_type == "display_data"]
    assert any("application/vnd.jupyter.widget-view+json" in output.data for output in shown)
    assert text(outputs[0], "stdout") == "    step 50: validation recall@5 0.5000\n"
    assert text(outputs[0], "stderr") == ""


def test_without_ipywidgets_there_are_lines_alone(outputs: list[list[Any]]) -> None:
    assert {output.output_type for output in outputs[1]} == {"stream"}
    lines = text(outputs[1], "stdout").splitlines()
    assert "    step 50: validation recall@5 0.5000" in lines
    assert any(line.startswith("  annotating: 100 of 100 steps") for line in lines)
    assert text(outputs[1], "stderr") == ""


def test_no_cell_has_a_terminals_letters(outputs: list[list[Any]]) -> None:
    everything = json.dumps(outputs)
    assert "\\u001b" not in everything
    assert "\\r" not in everything


def test_a_result_is_a_table_and_in_a_terminal_a_line(outputs: list[list[Any]]) -> None:
    (result,) = [output for output in outputs[2] if output.output_type == "execute_result"]
    assert result.data["text/html"] == result_table(METRICS, "/runs/news/model")
    assert result.data["text/plain"] == f"RunResult('/runs/news/model', {METRICS['verdict']['line']!r})"


def test_the_table_has_scores_with_intervals_and_no_markup_from_outside() -> None:
    html = result_table(METRICS, "s3://KEY:secret@bucket/<b>")
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "s3://***@bucket/&lt;b&gt;" in html
    assert '<tr><th scope="row">the result</th><td>0.5000 (0.4000 to 0.6000)</td><td>0.2500</td></tr>' in html
    assert "validation, 1,200 questions" in html
    assert "recall@10" not in html, "there is none"
