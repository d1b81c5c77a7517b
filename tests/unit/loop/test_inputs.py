"""What a run says of its encoder before any work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.loop.inputs import check
from infocse_ray.settings import Settings
from tests.conftest import make_documents, write_jsonl


def said(capsys: pytest.CaptureFixture[str], corpus: Path, model: Path, method: str = "idc", **encoder: Any) -> str:
    content = {
        "name": "r",
        "corpus": {"source": str(corpus)},
        "train": {"method": method},
        "encoder": {"model": str(model), "max_length": 16, **encoder},
    }
    check(Settings.model_validate(content))
    return "".join(capsys.readouterr())


def test_an_encoder_without_pooling_may_be_a_language_model(tmp_path: Path, tiny_encoder: Path, capsys) -> None:
    corpus = write_jsonl(tmp_path / "d.jsonl", make_documents(3))
    assert "`--config paper-plus` has the settings for these" in said(capsys, corpus, tiny_encoder)
    # Whoever names it knows.
    assert "paper-plus" not in said(capsys, corpus, tiny_encoder, pooling="mean")
    # Other methods have a pooling that they publish, and settings of their own.
    assert "paper-plus" not in said(capsys, corpus, tiny_encoder, method="simcse")
    pooled = shutil.copytree(tiny_encoder, tmp_path / "pooled")
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    modules.append({"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"})
    (pooled / "modules.json").write_text(json.dumps(modules))
    (pooled / "1_Pooling").mkdir()
    (pooled / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    assert "paper-plus" not in said(capsys, corpus, pooled)
