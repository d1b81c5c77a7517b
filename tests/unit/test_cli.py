"""The command `infocse`: which commands there are, how they are found, and that none of it loads more than it needs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infocse_ray import __version__, cli
from infocse_ray.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]


def test_every_command_has_a_file_and_a_job():
    for folder in (ROOT / "infocse_ray" / "commands", ROOT / "jobs"):
        assert {file.stem for file in folder.glob("*.py")} - {"__init__", "job"} == set(COMMANDS)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, does in COMMANDS.items():
        assert name in text
        assert does in text


def test_without_a_command_the_help_and_an_error_status(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    assert "usage: infocse COMMAND" in capsys.readouterr().out


def test_help_may_be_asked_for_in_a_word(capsys: pytest.CaptureFixture[str]):
    said: list[str] = []
    for argv in (["--help"], ["help"], ["runs", "--help"], ["help", "runs"], ["runs", "--help", "all"]):
        with contextlib.suppress(SystemExit):
            main(argv)
        said.append(capsys.readouterr().out)
    with contextlib.suppress(SystemExit):
        main(["help", "runs", "all"])
    assert said == [said[0], said[0], said[2], said[2], capsys.readouterr().out]
    assert len({*said}) == 3


def test_version(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"infocse {__version__}\n"


def test_a_command_that_is_none_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]):
    assert main(["pretrian", "--name", "x"]) == 2
    assert capsys.readouterr().err == "infocse: error: pretrian is no command: did you mean pretrain? (see --help)\n"
    assert main(["zzz"]) == 2
    assert "there are demo, pretrain" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_its_own_name(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: infocse {name}" in text
    assert len(text.splitlines()) < 60


def help_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What a command prints, in one line."""
    with pytest.raises(SystemExit):
        main(argv)
    return " ".join(capsys.readouterr().out.split())


def test_short_help_says_which_words_a_setting_takes(capsys: pytest.CaptureFixture[str]):
    said = help_of(capsys, "embed", "--help")
    assert "--precision How numbers are stored. (fp32 | fp16 | int8; default: fp32) --dimensions" in said
    assert "--sentences Write the vectors of sentences, too. --reading" in said
    assert "(list of sts | beir | mteb; default: [])" in help_of(capsys, "evaluate", "--help")


def test_help_counts_the_settings_that_it_leaves_out(capsys: pytest.CaptureFixture[str]):
    assert "Options (and 1 more setting, by --help all):" in help_of(capsys, "push", "--help")
    assert "more settings, by --help all):" in help_of(capsys, "embed", "--help")


def test_help_of_lists_of_sections_of_tracking_and_of_what_may_be_unnamed(capsys: pytest.CaptureFixture[str]):
    assert "optionally `like`. (list of mapping; required)" in help_of(capsys, "reproduce", "--help", "all")
    assert "tracking: what shows a run while it works" in help_of(capsys, "pretrain", "--help", "all")
    for command, name in (("search", "query"), ("explorer", "name"), ("report", "names")):
        assert f"may be given without --{name}" in help_of(capsys, command, "--help")


def test_ctrl_c_while_libraries_are_loaded_is_one_line(monkeypatch, capsys):
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    assert cli.main(["pretrain"]) == 130
    assert capsys.readouterr().err == "infocse: stopped by Ctrl-C\n"


def test_nothing_heavy_is_loaded_before_a_command_is_called():
    code = """
import sys
import infocse_ray.cli
infocse_ray.cli.main(["--help"])
print(*{"torch", "ray", "transformers", "pydantic"} & {*sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


def heavy_after(*argv: str) -> tuple[str, set[str]]:
    """What a command says, and what of torch and Ray its process has loaded then."""
    code = f"""
import sys
from infocse_ray.cli import main
try:
    main({list(argv)!r})
except SystemExit:
    pass
print(*{{"torch", "ray", "transformers"}} & {{*sys.modules}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr, {*done.stdout.splitlines()[-1].split()}


def test_help_of_any_command_loads_neither_torch_nor_ray():
    code = f"""
import contextlib, io, sys
from infocse_ray.cli import main
for name in {list(COMMANDS)!r}:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main([name, "--help"])
    print(name, *{{"torch", "ray", "transformers"}} & {{*sys.modules}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(COMMANDS)
    assert done.stderr == ""


def test_work_says_first_what_it_loads():
    pretrain = ("pretrain", "--name", "x", "--encoder.model", "m", "--corpus.source", "nowhere.jsonl")
    said, loaded = heavy_after(*pretrain)
    first, error = said.splitlines()
    assert first == f"infocse {__version__}: loading torch and Ray ..."
    assert "nowhere.jsonl" in error
    assert {"torch", "ray"} <= loaded
    said, loaded = heavy_after(*pretrain, "--trian.k", "1")
    assert "loading" not in said, "a mistake on the command line is answered at once"
    assert loaded == set()


def test_who_has_seen_enough_of_a_help_gets_no_traceback():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "infocse_ray.cli", "clean", "--help"]
    # What is buffered is written at the end alone.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=buffered)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
