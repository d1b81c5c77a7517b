"""Commands' exit statuses, and which work is done for what was asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infocse_ray.commands import clean, evaluate, prepare, reproduce, sweep
from infocse_ray.loop import prepared, scored
from infocse_ray.suites import judge, write_beir


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        (clean, []),
        (reproduce, ["--config", "tables", "--encoder", "m"]),
        (sweep, ["--config", "sweep", "--settings.encoder.model", "m"]),
    ],
)
def test_what_failed_or_is_in_use_is_told_by_the_status(command: Any, argv: list[str], monkeypatch: pytest.MonkeyPatch):
    for failed, status in ((0, 0), (1, 1), (3, 1)):
        monkeypatch.setattr(command, "_work", lambda _, failed=failed: failed)
        assert command.main(argv) == status


def test_a_corpus_or_suites_are_judged(monkeypatch: pytest.MonkeyPatch):
    done: list[str] = []
    monkeypatch.setattr(judge, "judge", lambda _: done.append("suites"))
    monkeypatch.setattr(scored, "evaluate_encoders", lambda _: done.append("corpus"))
    assert evaluate.main(["--model", "m", "--suite", "sts", "--suite_path", "a.tsv"]) == 0
    assert evaluate.main(["--model", "m", "--corpus.source", "a.jsonl"]) == 0
    assert done == ["suites", "corpus"]


def test_beirs_layout_is_written_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done: list[str] = []
    monkeypatch.setattr(prepared, "prepare_corpus", lambda _: done.append("prepared"))
    monkeypatch.setattr(write_beir, "write_beir", lambda corpus, folder: done.append(f"{corpus.source} in {folder}"))
    argv = ["--model", "m", "--corpus.source", "a.jsonl"]
    assert prepare.main(argv) == 0
    assert done == ["prepared"]
    assert prepare.main([*argv, "--beir", str(tmp_path / "beir")]) == 0
    assert done[1:] == ["prepared", f"a.jsonl in {tmp_path / 'beir'}"]
