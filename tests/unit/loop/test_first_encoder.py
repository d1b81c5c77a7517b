"""An encoder for the first annotations: its own tokens, the run's rows, and errors by the setting's name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from infocse_ray.annotate.idc import cluster
from infocse_ray.encoder.layout import write_layout
from infocse_ray.loop.first_encoder import load_first_encoder
from infocse_ray.settings import Annotate, Settings
from infocse_ray.storage.folder import Storage
from tests.unit.passes import (
    document_vectors,
    small_store,
    written_clusters,
)
from tests.unit.stores import Written, write_store


def settings(model: str | None, **encoder: Any) -> Settings:
    content = {
        "name": "run",
        "corpus": {"source": "unused"},
        "encoder": {"model": "unused"} | encoder,
        "annotate": {"first_encoder": model},
        "train": {"similarity": "dot"},
    }
    return Settings.model_validate(content)


@pytest.mark.parametrize("section", [{}, {"k": 2}, {"clustering": "kmeans", "kmeans_clusters": 3}], ids=str)
def test_clusters_of_other_tokens_are_matched_back(passes, tmp_path, section):
    own, other = small_store(tmp_path / "own"), small_store(tmp_path / "other", shift=9)
    kind = Annotate.model_validate(section)
    passes.annotate(other, tmp_path / "of-other", kind)
    summary = passes.annotate(own, tmp_path / "matched", kind, encoder_store=other)
    # The rows are the run's, the clusters those that the other store gives alone.
    matched = written_clusters(own, tmp_path / "matched")
    assert matched == written_clusters(other, tmp_path / "of-other")
    passes.annotate(own, tmp_path / "of-own", kind)
    assert matched != written_clusters(own, tmp_path / "of-own")
    assert summary["documents"] == len(matched)
    if not section:
        vectors = document_vectors(other, passes.encoder)
        assert matched == {key: cluster(torch.from_numpy(v), np.array([0, len(v)]), 1).tolist() for key, v in vectors}


def documents(*lengths: int, first: str = "d0") -> list[Written]:
    names = [first, *(f"d{i}" for i in range(1, len(lengths)))]
    return [Written(name, [[7, 8]] * length) for name, length in zip(names, lengths, strict=True)]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (documents(3, 2, 3), r"differ in the number of sentences; delete both"),
        (documents(3, 3), r"differ in the number of documents; delete both"),
        (documents(2, 3, 2), r"differ in the documents of shard 0; delete both"),
        (documents(3, 2, 2, first="e0"), r"differ in the documents of shard 0; delete both"),
    ],
)
def test_stores_of_two_corpora_are_refused(passes, tmp_path, other, message):
    own = write_store(Storage.open(str(tmp_path / "own")), documents(3, 2, 2), 1)
    with pytest.raises(ValueError, match=f"annotate.first_encoder: .* should hold one corpus and {message}") as error:
        passes.annotate(
            own, tmp_path / "out", Annotate(), encoder_store=write_store(Storage.open(str(tmp_path / "o")), other, 1)
        )
    assert "\n" not in str(error.value)


def test_it_pools_as_its_folder_says_and_is_cut_at_its_positions(tiny_encoder, tmp_path):
    folder = Path(shutil.copytree(tiny_encoder, tmp_path / "first"))
    write_layout(folder, 32, "cls", True, 64)
    first = load_first_encoder(settings(str(folder), pooling="mean", max_length=256))
    assert first is not None
    assert (first.pooling, first.normalize, first.max_length) == ("cls", True, 64)
    assert load_first_encoder(settings(None)) is None
    plain = load_first_encoder(settings(str(tiny_encoder), pooling="cls", max_length=16))
    assert plain is not None
    assert (plain.pooling, plain.normalize, plain.max_length) == ("mean", False, 16)


def broken(folder: Path, what: str) -> None:
    match what:
        case "no Hugging Face model":
            (folder / "config.json").unlink()
        case "no encoder" | "language model":
            kind = "vit" if what == "no encoder" else "gpt2"
            (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        case "weights":
            (folder / "model.safetensors").unlink()
        case "tokenizer":
            (folder / "tokenizer.json").write_text("no JSON")
        case "LayerNorm" | "several poolings":
            write_layout(folder, 32, "mean", False, 16)
            pooling = {"pooling_mode": "mean" if what == "LayerNorm" else ["mean", "max"]}
            (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
            if what == "LayerNorm":
                modules = json.loads((folder / "modules.json").read_text())
                (folder / "modules.json").write_text(
                    json.dumps([*modules, {"type": "x.LayerNorm", "path": "2_LayerNorm"}])
                )


@pytest.mark.parametrize(
    "what",
    [
        *("no such folder", "no Hugging Face model", "no encoder", "language model"),
        *("weights", "tokenizer", "LayerNorm", "several poolings"),
    ],
)
def test_what_is_wrong_with_it_is_said_by_its_own_name(tiny_encoder, tmp_path, what):
    folder = tmp_path / "first"
    if what != "no such folder":
        shutil.copytree(tiny_encoder, folder)
        broken(folder, what)
    said = r"pooling mean\+max is not supported" if what == "several poolings" else what
    with pytest.raises(ValueError, match=said) as error:
        load_first_encoder(settings(str(folder)))
    assert str(error.value).startswith("annotate.first_encoder")
    assert "encoder.model" not in str(error.value)
    assert "encoder.pooling" not in str(error.value)
    assert "\n" not in str(error.value)
