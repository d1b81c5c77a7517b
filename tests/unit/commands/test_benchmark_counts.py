"""Counts that `infocse benchmark` takes."""

from __future__ import annotations

import pytest

from infocse_ray.commands.benchmark import main


@pytest.mark.parametrize("given", ["x", "0", "1.5"])
def test_what_is_no_count_is_told_in_words(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--steps", given])
    assert f"argument --steps: {given}: give a whole number from 1" in capsys.readouterr().err
