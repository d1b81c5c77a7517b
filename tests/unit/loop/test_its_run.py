"""A run's encoder that is read otherwise than its run read it: said, unless it was asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.loop import its_run
from infocse_ray.settings.embed import Embed

GIVEN = {"model": "runs/news/model", "output": "o", "corpus": {"source": "a"}}


@pytest.mark.parametrize(
    ("asked", "had", "advice"),
    [
        ({}, {}, None),
        ({}, {"reading": "whole"}, "give --reading whole"),
        ({}, {"max_length": 64, "similarity": "dot"}, "give --max_length 64 --similarity dot"),
        ({"reading": "both"}, {"reading": "whole"}, None),
        ({"max_length": 32}, {"reading": "whole", "max_length": 64}, "give --reading whole"),
    ],
)
def test_what_nobody_asked_for_is_said_in_one_line(
    asked: dict[str, Any],
    had: dict[str, Any],
    advice: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    settings = Embed.model_validate(GIVEN | asked)
    its = {"reading": "both", "max_length": 32, "similarity": "cosine"} | had
    run = SimpleNamespace(
        validate=SimpleNamespace(reading=its["reading"]),
        encoder=SimpleNamespace(max_length=its["max_length"]),
        train=SimpleNamespace(similarity=its["similarity"]),
    )
    monkeypatch.setattr(its_run, "run_of", lambda _: SimpleNamespace(settings=run))
    its_run.say_unlike_its_run(settings)
    out = capsys.readouterr().out
    assert out.count("\n") == (advice is not None)
    assert out.strip().endswith(advice or "")
    its_run.say_unlike_its_run(settings, reading=False)
    assert "--reading" not in capsys.readouterr().out
    monkeypatch.setattr(its_run, "run_of", lambda _: None)
    its_run.say_unlike_its_run(settings)
    assert not capsys.readouterr().out
