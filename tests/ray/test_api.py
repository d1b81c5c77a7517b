"""The Python API, as docs/python.md and the README have it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from infocse_ray.corpus import unknown
from tests.conftest import make_documents

ROOT = Path(__file__).parents[2]
NAMED = "sentence-transformers/all-MiniLM-L6-v2"


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)


def rows(count: int) -> list[dict[str, str]]:
    return [{"body": " ".join(d["sentences"]), "headline": d["counterpart"]} for d in make_documents(count)]


@pytest.mark.usefixtures("ray_cluster", "workers_here")
def test_the_examples_of_the_page_run_one_after_the_other(
    tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(unknown, "_MANY", 0.0)
    names: dict[str, Any] = {"documents": rows(80)}
    for code in examples("docs/python.md"):
        # Its name is looked for on the hub, which tests don't ask; the length is what so small an encoder has.
        exec(code.replace(f'"{NAMED}"', f'"{tiny_encoder}"'), names)
    result, again = names["result"], names["again"]
    assert result.verdict in ("WIN", "LEVEL", "LOSS", "START RETURNED")
    assert result.verdict in result.summary
    assert again.metrics == result.metrics
    out = capsys.readouterr().out
    assert "is finished with these settings" in out
    # As every command says that reads a corpus, where there is much.
    said = re.findall(r"tokens are unknown to the tokenizer of (\S+), which", out)
    assert said == [str(tiny_encoder), result.model_path, result.model_path, result.model_path]
    assert names["vectors"].shape == (2, 32)
    stored = pq.read_table(tmp_path / "news-vectors" / "vectors" / "documents").to_pylist()
    texts = {one["text"]: one["vector"] for one in stored}
    expected = [texts[document["body"]] for document in names["documents"][:3]]
    # In bf16, where the machine has it, sums depend on what is beside.
    np.testing.assert_allclose(names["read"], expected, atol=2e-3)
    np.testing.assert_allclose(names["asked"], names["index"].vector("trains that were late"), atol=2e-3)
    assert [hit.rank for hit in names["index"].search("ship", top=3)] == [1, 2, 3]
    assert names["scores"].metrics["queries"] == 80
    assert sum(len(group) for group in names["clustered"].groups()) == len(names["clustered"].sentences)
    assert result.encoder().dimension == 32
    assert {"config.json", "model.safetensors", "modules.json"} <= result.files.keys()
    assert "README.md" not in result.files
    assert Path(result.model_path) == tmp_path / "runs" / "news" / "model"


def test_the_readme_calls_what_there_is():
    import infocse_ray

    [code] = examples("README.md")
    for name in re.findall(r"^from infocse_ray import (.*)$", code, flags=re.MULTILINE):
        assert all(one.strip() in infocse_ray.__all__ for one in name.split(","))
    for attribute in re.findall(r"result\.(\w+)", code):
        assert hasattr(infocse_ray.RunResult, attribute)
