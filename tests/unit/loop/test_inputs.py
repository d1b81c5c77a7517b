"""What a run says of its encoder before any work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.encoder.load import load_encoder
from infocse_ray.loop.inputs import check, crowded
from infocse_ray.settings import Encoder, Settings
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


def test_a_prompt_that_leaves_a_text_little_is_told(tmp_path: Path, tiny_encoder: Path, capsys) -> None:
    corpus = write_jsonl(tmp_path / "d.jsonl", make_documents(3))
    long, short = "find find ", "find "  # four tokens a word
    at_16 = "warning: encoder.max_length = 16: encoder.{} takes 8 of these tokens, so that a {} is cut at 6; "
    told = said(capsys, corpus, tiny_encoder, document_prompt=long)
    assert at_16.format("document_prompt", "sentence") + "raise encoder.max_length by 8" in told
    assert "warning" not in said(capsys, corpus, tiny_encoder, document_prompt=short)
    assert "warning" not in said(capsys, corpus, tiny_encoder, document_prompt=long, max_length=24), "as it advises"
    assert at_16.format("query_prompt", "counterpart") in said(capsys, corpus, tiny_encoder, query_prompt=long)
    unlabelled = write_jsonl(tmp_path / "u.jsonl", [{"sentences": one["sentences"]} for one in make_documents(3)])
    assert "warning" not in said(capsys, unlabelled, tiny_encoder, query_prompt=long), "nothing is asked"
    for query in (long, long.strip()):  # with which counterparts are tokenised, as its last word runs into theirs
        encoder = load_encoder(tiny_encoder, Encoder(model="m", max_length=16, query_prompt=query), cosine=False)
        assert (encoder.corpus_tokenizer().prompt is None) == (query == long)
        [line] = crowded(encoder, asked=True)
        assert f"warning: {line}".startswith(at_16.format("query_prompt", "counterpart"))
