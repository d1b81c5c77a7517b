"""Settings of `infocse evaluate`: a corpus or suites, and one clear line on a mix-up."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infocse_ray.settings.command_line import parse
from infocse_ray.settings.evaluate import Evaluate

SUITE = ("--suite", "sts,beir", "--suite_path", "a.tsv,b")


def given(*argv: str) -> Evaluate:
    return parse(Evaluate, ["--model", "m", *argv], "infocse evaluate", "It evaluates.")


def test_suites_and_paths_are_lists():
    settings = given(*SUITE, "--corpus.language", "de")
    assert settings.suite == ["sts", "beir"]
    assert settings.suite_path == ["a.tsv", "b"]
    assert settings.corpus.language == "de"
    assert given("--suite", "mteb", "--tasks", "A, B").tasks == ["A", "B"]
    twice = given("--suite", "sts,beir,sts", "--suite_path", "a.tsv,b,a.tsv")
    assert (twice.suite, twice.suite_path) == (settings.suite, settings.suite_path), "each is judged once"
    assert Evaluate(model="m", suite=["beir"], suite_path=["a,b"]).suite_path == ["a,b"]  # pyright: ignore


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "corpus.source is required, or in its place suite (sts, beir, mteb)"),
        (("--suite_path", "x"), "suite_path: is for suites; add suite = sts, beir or mteb, or leave it out"),
        (("--corpus.source", "x", "--tasks", "x"), "tasks: is for suites"),
        ((*SUITE, "--corpus.source", "x"), "corpus.source with suite = sts,beir: the questions come from the one or"),
        ((*SUITE, "--split", "test"), "split: is for a corpus, not for suite = sts,beir; leave it out"),
        ((*SUITE, "--sts", "x"), "sts: is for a corpus, not for suite = sts,beir; name the file in suite_path"),
        ((*SUITE, "--corpus.text", "x"), "corpus.text: is for a corpus"),
        ((*SUITE, "--tasks", "x"), "tasks: is for suite = mteb; add that to suite, or leave tasks out"),
        (("--suite", "beir"), "suite = beir: name its files (sts) or folders (beir) with suite_path"),
        (("--suite", "mteb"), "suite = mteb: name its tasks with tasks, such as STSBenchmark,NFCorpus"),
        (("--suite", "mteb", "--tasks", "x", "--suite_path", "y"), "suite_path: is for suite = sts or beir"),
        (("--suite", "sts", "--suite_path", "y", "--qrels", "dev"), "qrels: is for suite = beir"),
        (("--suite", "bier", "--suite_path", "y"), "suite = 'bier': should be 'sts', 'beir' or 'mteb'"),
    ],
)
def test_a_mix_up_is_one_line(argv: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        given(*argv)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"infocse evaluate: error: {said}" in error
    assert error.count("\n") == 1


def test_a_printed_configuration_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        given(*SUITE, "--print_config")
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed)["qrels"] == "test"
    (tmp_path / "suite.yaml").write_text(printed)
    assert given("--config", str(tmp_path / "suite.yaml")) == given(*SUITE)
