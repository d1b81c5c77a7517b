"""What `infocse embed` says at its end."""

import pytest

from infocse_ray.cli import main
from infocse_ray.embedding import embed


def test_the_last_line_is_the_command_that_searches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(embed, "embed_corpus", lambda settings: None)
    assert main(["embed", "--model", "m", "--corpus.source", "c.jsonl", "--output", "my vectors"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == "search them: infocse search --index 'my vectors' 'what you look for'"
