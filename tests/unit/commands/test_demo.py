"""The demo's time: it is the run's `minutes`, whatever machine it is on."""

import errno
import os
from typing import Any, NoReturn

import pytest

from infocse_ray.commands import demo
from infocse_ray.settings import Settings
from infocse_ray.settings.command_line import parse


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Settings of the run that the demo would lead."""
    monkeypatch.setattr(demo, "write_docstrings", lambda *_, **__: None)
    monkeypatch.setattr(demo, "bundled_encoder", lambda: "m")
    led = []

    def lead(model, given, *_, **__):
        led.append(parse(model, given, "infocse demo", ""))

    monkeypatch.setattr(demo, "run_job", lead)

    def settings(*arguments: str) -> Settings:
        assert demo.main(["--storage", str(tmp_path), *arguments]) == 0
        return led[-1]

    return settings


def test_it_takes_as_long_as_the_user_says(run, capsys):
    assert run("--minutes", "3").minutes == 3
    assert "about 3 minutes" in capsys.readouterr().out


def test_by_default_a_larger_corpus_has_longer(run):
    assert run().minutes == pytest.approx(12.2)
    assert run("--documents", "1800").minutes == pytest.approx(16.2)


def test_a_tilde_is_the_home_folder(run, tmp_path, monkeypatch):
    """As in every other command; a shell leaves it alone behind an equals sign."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert run("--storage=~/x").storage == str(tmp_path / "home" / "x")
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize(
    ("storage", "said"),
    [("s3://user:secret-key@bucket/runs", "s3://***@bucket/runs: is a URI; give a folder"), ("{file}", "{file}: ")],
)
def test_a_place_that_is_no_folder_is_refused(run, capsys, tmp_path, monkeypatch, storage: str, said: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        run("--storage", storage.replace("{file}", "file"))
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"infocse demo: error: --storage = {said.replace('{file}', 'file')}")
    assert told.count("\n") == 1, "one line"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_written_to_is_refused_in_a_line(run, capsys, tmp_path, monkeypatch):
    def refused(error: int):
        def fail(*_: object, **__: object) -> NoReturn:
            raise OSError(error, os.strerror(error))

        return fail

    there = tmp_path / "there"
    monkeypatch.setattr(demo.tempfile, "TemporaryFile", refused(errno.EROFS))
    with pytest.raises(SystemExit) as ended:
        run("--storage", str(there))
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert "reading" not in told.out, "which takes a minute"
    assert told.err.startswith(f"infocse demo: error: --storage = {there}: Read-only file system; give a folder that ")
    assert told.err.count("\n") == 1

    monkeypatch.undo()
    monkeypatch.setattr(demo, "write_docstrings", refused(errno.ENOSPC))
    with pytest.raises(SystemExit):
        demo.main(["--storage", str(there)])
    told = capsys.readouterr().err
    assert told.startswith(f"infocse demo: error: --storage = {there}: No space left on device; give a folder that ")
    assert told.count("\n") == 1
    monkeypatch.setattr(demo.tempfile, "mkdtemp", refused(errno.ENOSPC))
    with pytest.raises(SystemExit):
        demo.main([])
    assert f"--storage = {demo.tempfile.gettempdir()}: No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_no_time_is_refused_before_anything_is_read(run, capsys, minutes):
    with pytest.raises(SystemExit):
        run("--minutes", minutes)
    assert f"--minutes = {minutes}: should be" in capsys.readouterr().err


def scores(value: float, **more: int) -> dict[str, Any]:
    """Of a test."""
    of = {"recall@5": value, "recall@10": value + 0.125, "recall@20": value + 0.25, "mrr": value / 2}
    return {"test": of | {f"{name}_{end}": of[name] for name in of for end in ("low", "high")} | more}


def test_the_table_has_each_encoder_once(capsys):
    demo.show_table(
        {
            "start": scores(0.25, queries=1_234, candidates=5_678),
            "whitened": scores(0.375),
            "iterations": [{"iteration": 0} | scores(0.375), {"iteration": 1} | scores(0.5)],
        }
    )
    said = capsys.readouterr().out
    assert "Finding the summary line of each of 1,234 docstrings among 5,678 (95 % intervals):" in said
    rows = [line.split(" | ") for line in said.splitlines() if line.startswith("| ")]
    assert rows[0] == ["| encoder", "R@5", "R@10", "R@20", "MRR |"]
    assert [row[0] for row in rows[2:]] == ["| before", "| whitened, without training", "| after iteration 1"]
    assert [cell.split()[0] for cell in rows[2][1:]] == ["0.2500", "0.3750", "0.5000", "0.1250"]
    assert [row[1].split()[0] for row in rows[2:]] == ["0.2500", "0.3750", "0.5000"]


def test_the_corpus_is_read_once_and_a_run_that_stopped_is_told_how_it_goes_on(tmp_path, monkeypatch):
    written, led = [], []
    monkeypatch.setattr(demo, "write_docstrings", lambda path, **_: written.append(path) or path.write_text(""))
    monkeypatch.setattr(demo, "bundled_encoder", lambda: "m")
    monkeypatch.setattr(demo, "run_job", lambda model, given, *_, again, **__: led.append((given, again)))
    monkeypatch.setattr(demo.tempfile, "mkdtemp", lambda prefix: str(tmp_path / "temporary"))
    demo.main([])
    demo.main(["--storage", str(tmp_path)])
    demo.main(["--storage", str(tmp_path)])
    assert written == [tmp_path / "temporary" / "docstrings-800.jsonl", tmp_path / "docstrings-800.jsonl"]
    assert [again for _, again in led] == [
        f"the same command with --storage {tmp_path / 'temporary'}",
        *["the same command"] * 2,
    ]
    for given, _ in led[1:]:
        asked = parse(Settings, given, "infocse demo", "")
        assert (asked.storage, asked.corpus.source) == (str(tmp_path), str(tmp_path / "docstrings-800.jsonl"))


def test_a_missing_encoder_and_a_corpus_too_small_are_told_in_a_line(run, capsys, monkeypatch):
    def missing() -> NoReturn:
        raise ValueError("the demo's encoder is missing")

    monkeypatch.setattr(demo, "bundled_encoder", missing)
    for argv, said in (([], "the demo's encoder is missing"), (["--documents", "199"], "training needs at least 200")):
        with pytest.raises(SystemExit) as ended:
            run(*argv)
        assert ended.value.code == 2
        assert capsys.readouterr().err.endswith(f"{said} (see --help)\n")
