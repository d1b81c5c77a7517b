"""The command `infocse report`: names as people give them, mistakes in one line, nothing heavy loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from infocse_ray.commands import report
from infocse_ray.commands.report import main
from infocse_ray.settings.report import ReportPage
from infocse_ray.storage.folder import Storage
from tests.unit.page.runs import write_run


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (["news"], ["news"]),
        (["news", "small", "--storage", "runs"], ["news", "small"]),
        (["--storage", "runs", "news", "small"], ["news", "small"]),
        (["news,small", "--storage=runs"], ["news", "small"]),
        (["news", "--names", "small"], ["news", "small"]),
        (["--names=[news, small]"], ["news", "small"]),
        (["--storage=runs", "--", "news", "small"], ["news", "small"]),
    ],
)
def test_names_stand_where_people_put_them(argv: list[str], names: list[str], monkeypatch: pytest.MonkeyPatch):
    asked: list[ReportPage] = []
    monkeypatch.setattr(report, "_work", asked.append)
    assert main(argv) == 0
    assert asked[0].names == names


def test_a_page_for_one_and_a_page_for_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    root = Storage.open(str(tmp_path))
    for name in ("news", "small"):
        write_run(root, name)
    assert main(["news", "--storage", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path}/news/report.html\n"
    assert main(["--storage", str(tmp_path), "news", "small"]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path}/report-news+small.html\n"
    assert (tmp_path / "report-news+small.html").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "names is required"),
        (["nwes"], "names = 'nwes': no such run in {root}; did you mean news?"),
        (["trials"], "no such run in {root}; it is a sweep, shown in {root}/trials/sweep.md; `infocse runs` lists its"),
        (["news", "news"], "name every run once"),
        (["../news"], "use letters, digits"),
        (["news", "--storage", "{root}/none"], "storage = '{root}/none': no such folder"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], argv, message):
    write_run(Storage.open(str(tmp_path)))
    (Storage.open(str(tmp_path)) / "trials" / "sweep.md").write_bytes(b"")
    argv = [argument.replace("{root}", str(tmp_path)) for argument in argv]
    with pytest.raises(SystemExit) as ended:
        main(argv if "--storage" in argv else [*argv, "--storage", str(tmp_path)])
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message.replace("{root}", str(tmp_path)) in line


def test_of_many_runs_some_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for number in range(12):
        (Storage.open(str(tmp_path)) / f"run-{number:02}" / "manifest.json").write_bytes(b"{}")
    with pytest.raises(SystemExit):
        main(["else", "--storage", str(tmp_path)])
    error = capsys.readouterr().err
    assert "there are run-00, run-01, " in error
    assert "run-09 and 2 more, which `infocse runs` lists" in error


def test_torch_and_ray_are_not_loaded(tmp_path: Path):
    write_run(Storage.open(str(tmp_path)))
    code = f"""
import sys
from infocse_ray.cli import main
assert main(["report", "news", "--storage", {str(tmp_path)!r}]) == 0
print(sorted({{"torch", "ray", "transformers"}} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
