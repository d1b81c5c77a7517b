"""Commands without a run show that they are at work, from before they read what is shared until they end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.embedding import embed
from infocse_ray.loop import scored
from infocse_ray.loop.contents import Contents
from infocse_ray.settings.embed import Embed
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents, write_jsonl


def drivers_during(work: Callable[[], object], module: Any, name: str, root: Path, monkeypatch: Any) -> list[str]:
    """Who is at work on the storage while a command does what needs Ray; nobody is, once it has ended."""
    seen: list[str] = []
    monkeypatch.setattr(module, name, lambda *_: seen.extend(Contents.of(Storage.open(str(root))).drivers))
    work()
    assert not Contents.of(Storage.open(str(root))).drivers
    return seen


@pytest.mark.parametrize("command", ["embed", "evaluate"])
def test_a_command_without_a_run_is_seen(command: str, tmp_path: Path, tiny_encoder: Path, monkeypatch: Any):
    write_jsonl(tmp_path / "a.jsonl", make_documents(4))
    root = tmp_path / "runs"
    given = {"model": str(tiny_encoder), "storage": str(root), "corpus": {"source": str(tmp_path / "a.jsonl")}}
    if command == "embed":
        settings = Embed.model_validate(given | {"output": str(tmp_path / "vectors")})
        seen = drivers_during(lambda: embed.embed_corpus(settings), embed, "_embed_into", root, monkeypatch)
    else:
        asked = Evaluate.model_validate(given)
        seen = drivers_during(lambda: scored.evaluate_encoders(asked), scored, "_scored_and_shown", root, monkeypatch)
    assert len(seen) == 1
