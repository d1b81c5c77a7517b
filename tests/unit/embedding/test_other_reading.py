"""A run's encoder that is embedded with other readings than the run validated: said, unless it was asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from infocse_ray.embedding import embed
from infocse_ray.settings.embed import Embed


@pytest.mark.parametrize(
    ("there", "asked", "said"),
    [("whole", None, True), ("whole", "both", False), ("both", None, False), (None, None, False)],
)
def test_it_is_said_once(
    there: str | None,
    asked: str | None,
    said: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    run = SimpleNamespace(settings=SimpleNamespace(validate=SimpleNamespace(reading=there)))
    monkeypatch.setattr(embed, "run_of", lambda _: None if there is None else run)
    given = {"model": "runs/news/model", "output": "o", "corpus": {"source": "a"}}
    embed._say_other_reading(Embed.model_validate(given | ({} if asked is None else {"reading": asked})))
    out = capsys.readouterr().out
    assert ("give --reading whole" in out) == bool(out) == said
