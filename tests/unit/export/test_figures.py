"""What an export says of itself, its figures and its folder, and what becomes of that after a stop."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.reading import ReadAs
from infocse_ray.export import questions as questions_module
from infocse_ray.export import run as run_module
from infocse_ray.export.card import exported_card
from infocse_ray.export.check import Check, apart
from infocse_ray.export.contents import parts_of
from infocse_ray.export.formats import GraphEncoder
from infocse_ray.export.questions import max_length_of
from infocse_ray.export.run import export, size_of
from infocse_ray.loop.its_run import how_read
from infocse_ray.retrieval.bootstrap import Lead
from infocse_ray.settings.export import Export
from infocse_ray.storage.folder import Storage
from tests.unit.encoder.test_encoder import SENTENCES, load, tokenised
from tests.unit.export.test_export import a_run, form_of, refused, whitened


@pytest.mark.parametrize(("metric", "name"), [("recall@5", "recall"), ("mrr", "MRR")])
def test_what_is_lost_is_what_the_original_scored_more(metric: Any, name: str) -> None:
    before = {metric: 0.8, f"{metric}_low": 0.7, f"{metric}_high": 0.9}
    after = {metric: 0.75, f"{metric}_low": 0.65, f"{metric}_high": 0.85}
    found = Check(metric, "counterpart", before, after, Lead(-0.05, -0.09, -0.01, 1.0, 24, 20))
    assert found.line() == (
        f"{name} lost: 0.0500 ({metric} 0.8000 (0.70 to 0.90) before, 0.7500 (0.65 to 0.85) after; "
        "difference -0.0500 (95 % interval -0.0900 to -0.0100), 24 questions of 20 documents)"
    )
    said = {"metric": metric, "on": "counterpart", "before": before, "after": after}
    said |= {"difference": -0.05, "low": -0.09, "high": -0.01, "questions": 24, "documents": 20}
    assert found.content() == said


def test_vectors_are_as_far_apart_as_those_of_the_text_that_is_furthest(tiny_encoder: Path) -> None:
    encoder = load(tiny_encoder, True)
    texts = tokenised(encoder, [*SENTENCES[:5], "judge"])
    [token] = tokenised(encoder, ["judge"]).values.tolist()

    def run(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        moved = (ids[:, 1] == token) & (mask.sum(1) == 3)
        with torch.inference_mode():
            vectors = encoder(torch.from_numpy(ids), torch.from_numpy(mask)).numpy().copy()
        vectors[moved, 3] -= 0.25
        return vectors

    found = apart(encoder, GraphEncoder(encoder, run), texts)
    ours = embed(encoder, texts).vectors[-1]
    theirs = ours - 0.25 * torch.eye(32)[3]
    assert found.difference == pytest.approx(0.25, abs=1e-5)
    assert found.cosine == pytest.approx(float(ours @ theirs / theirs.norm()), abs=1e-5)
    assert found.cosine < 0.99
    assert found.texts == 6


def test_the_size_of_a_graph_is_that_of_its_weights_too(tmp_path: Path) -> None:
    sizes = {"openvino_model.xml": 3, "openvino_model.bin": 5, "openvino_model_qint8.bin": 7, "model.onnx": 9}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"." * size)
    assert size_of(tmp_path / "openvino_model.xml") == 8
    assert size_of(tmp_path / "model.onnx") == 9


def test_the_card_names_the_originals_dimensions_where_some_are_cut(tmp_path: Path) -> None:
    content = {"exports": {"onnx": form_of(None)}, "dimensions": 4}
    cut = exported_card(tmp_path, "m", "news", content | {"dimensions_of_original": 6})
    assert "have 4 dimensions, of the original's 6 the leading components, scaled to length 1." in cut
    whole = exported_card(tmp_path, "m", "news", content | {"dimensions_of_original": 4})
    assert "Sentence vectors have 4 dimensions.\n" in whole
    assert "cut alike" not in whole


def test_a_folder_that_a_stop_left_is_gone_on_with(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whitened(tiny_encoder, tmp_path).save(tmp_path / "news")
    settings = Export(model=str(tmp_path / "news"), format="torch", dimensions=5, check=False)

    def stopped(storage: Storage, folder: Path) -> None:
        (storage / "modules.json").write_bytes((folder / "modules.json").read_bytes())
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "upload", stopped)
        with pytest.raises(KeyboardInterrupt):
            export(settings)
    folder = Path(str(export(settings).folder))

    def no_number(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    said = json.loads((folder / "export.json").read_text(), parse_constant=no_number)
    assert said["exports"]["torch"]["vectors"] == {"difference": None, "cosine": None, "texts": 27}
    assert (said["dimensions"], said["dimensions_of_original"]) == (5, 12)


def test_an_export_in_torch_may_be_exported_again(tiny_encoder: Path, tmp_path: Path) -> None:
    whitened(tiny_encoder, tmp_path).save(tmp_path / "news")
    model = str(tmp_path / "news")
    for dimensions in (5, 3):
        model = str(export(Export(model=model, format="torch", dimensions=dimensions, check=False)).folder)
    assert model.endswith("news_5_3")
    assert load(model).dimension == 3
    assert not (Path(model) / "infocse.json").exists(), "nobody knows how documents are read"


def test_an_export_says_how_documents_are_read_as_its_model_does(tiny_encoder: Path, tmp_path: Path) -> None:
    read = ReadAs(reading="whole", max_length=14, similarity="dot", language="de")
    whitened(tiny_encoder, tmp_path).save(tmp_path / "news")
    read.write(Storage.open(str(tmp_path / "news")))
    model = str(tmp_path / "news")
    for dimensions in (5, 3):
        model = str(export(Export(model=model, format="torch", dimensions=dimensions, check=False)).folder)
        assert ReadAs.of(Storage.open(model)) == read
    assert "infocse.json" in {part.name for part in parts_of(Path(model))}, "it is pushed"


def test_the_check_cuts_texts_as_it_is_told_else_as_the_run_did(tiny_encoder: Path, tmp_path: Path) -> None:
    model = str(a_run(whitened(tiny_encoder, tmp_path), tmp_path / "runs"))
    assert max_length_of(Export(model=model, max_length=20), how_read(model)) == 20
    assert max_length_of(Export(model=model), how_read(model)) == 12
    assert max_length_of(Export(model=model), None) == 32


@pytest.mark.parametrize(("read", "reading"), [(None, "both"), ("whole", "whole")])
def test_questions_of_a_corpus_are_asked_as_documents_are_read(
    read: Any, reading: str, tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs.jsonl").write_text(
        "".join(json.dumps({"text": f"The ship {n}. The tide. The storm.", "title": "a"}) + "\n" for n in range(40))
    )
    seen: list[str] = []

    def asked(*_: Any, reading: str, **__: Any) -> Any:
        seen.append(reading)
        return SimpleNamespace(doc_ids=["a"])

    monkeypatch.setattr(questions_module, "questions_for", asked)
    monkeypatch.setattr(questions_module, "connect", lambda: None)
    monkeypatch.setattr(questions_module, "prepare", lambda *_: None)
    monkeypatch.setattr(questions_module, "validation_of", lambda *_: "sentence")
    settings = Export.model_validate({"model": str(tiny_encoder), "corpus": {"source": str(tmp_path / "docs.jsonl")}})
    had = read and ReadAs(reading=read, max_length=14, similarity="dot", language="de")
    questions_module.questions(settings, None, had, load(tiny_encoder))
    assert seen == [reading]


def test_documents_that_are_not_there_are_missed_before_anything_is_written(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_module, "write_form", None)
    model = a_run(whitened(tiny_encoder, tmp_path), tmp_path / "runs")
    cut = ("--model", str(model), "--format", "torch", "--dimensions", "5")
    assert "no such file" in refused(*cut, "--corpus.source", str(tmp_path / "gone.parquet"), capsys=capsys)
    assert not model.with_name("model_5").exists()
    shutil.rmtree(tmp_path / "runs" / "corpora")
    said = refused(*cut, capsys=capsys)
    assert said.endswith("the run's tokenised corpus is gone; name its documents with corpus.source")
