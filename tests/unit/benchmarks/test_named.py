"""What benchmarks look at again, an index or runs, where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.commands.benchmark import main


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["words", "--index", "{}"], "--index = '{}': no vectors are there; name what `infocse embed` wrote"),
        (["search", "--index", "{}"], "--index = '{}': no vectors are there; name what `infocse embed` wrote"),
        (["readings", "--storage", "{}", "--runs", "news"], "--runs: {}/news is no run; give finished runs, as"),
    ],
)
def test_what_isnt_there_is_told_in_a_line(
    argv: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("lance")
    assert main([one.format(tmp_path) for one in argv]) == 2
    assert line.format(tmp_path) in capsys.readouterr().err
