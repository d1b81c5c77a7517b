"""Counts that `infocse benchmark` takes, and how it ends where something is missing."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import pytest

from infocse_ray.benchmarks import memory
from infocse_ray.commands.benchmark import main


@pytest.mark.parametrize("given", ["x", "0", "1.5"])
def test_what_is_no_count_is_told_in_words(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--steps", given])
    assert f"argument --steps: {given}: give a whole number from 1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "--chunk_tokens", given])
    assert f"argument --chunk_tokens: {given}: give a whole number from 1" in capsys.readouterr().err


def test_what_is_no_language_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["alternatives", "--language", "English"])
    said = "argument --language: English: give the language's ISO 639-1 code, such as en, de or zh"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("kind", [OSError, ImportError, ValueError])
def test_what_is_missing_is_told_in_a_line_and_nothing_is_fetched(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("INFOCSE_TRACEBACK", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    monkeypatch.delenv("HF_HUB_OFFLINE")

    def run(arguments: Any) -> NoReturn:
        assert os.environ["HF_HUB_OFFLINE"] == "1"
        raise kind(f"there is no {arguments.model}.\nCheck its name, or\n  install it.")

    monkeypatch.setattr(memory, "run", run)
    assert main(["memory", "--model", "nowhere"]) == 2
    said = "infocse benchmark: error: there is no nowhere. Check its name, or install it.\n"
    assert capsys.readouterr().err == said
    monkeypatch.setenv("INFOCSE_TRACEBACK", "1")
    with pytest.raises(kind, match="there is no nowhere"):
        main(["memory", "--model", "nowhere"])
