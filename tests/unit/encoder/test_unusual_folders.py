"""Folders and backbones that others handle otherwise than most: as sentence-transformers does, or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.texts import TextEncoder
from infocse_ray.settings import Encoder
from tests.unit.trainees import Run, annotated

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
}


def backbone_in(folder: Path, tiny_encoder: Path, kind: str, **more: Any) -> Path:
    """A backbone of another kind, of random weights, with the tiny encoder's tokenizer."""
    torch.manual_seed(0)
    vocabulary = json.loads((tiny_encoder / "config.json").read_text())["vocab_size"]
    config = transformers.AutoConfig.for_model(kind, vocab_size=vocabulary, **SHAPE, **more)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    for file in tiny_encoder.glob("*token*"):
        shutil.copy(file, folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "more"),
    [("convbert", {"embedding_size": 32, "head_ratio": 2, "conv_kernel_size": 3}), ("nystromformer", {})],
)
def test_backbones_whose_vectors_change_with_padding_are_refused(
    kind: str, more: dict[str, Any], tmp_path: Path, tiny_encoder: Path
):
    folder = backbone_in(tmp_path, tiny_encoder, kind, **more)
    with pytest.raises(ValueError, match=rf"^encoder\.model = .*: a {kind} encoder makes other vectors .*; use BERT"):
        load_encoder(folder, Encoder(model=str(folder)), cosine=True)


@pytest.mark.parametrize("case", ["consert", "declutr"])
def test_word_embeddings_may_be_shorter_than_what_the_embedding_layer_puts_out(
    case: str, tmp_path: Path, tiny_encoder: Path
):
    folder = backbone_in(tmp_path / "model", tiny_encoder, "mobilebert", embedding_size=16, intra_bottleneck_size=32)
    run = Run(folder, annotated(tmp_path / "source", tiny_encoder), case=case)
    assert np.isfinite(run.losses(2)).all()


@pytest.mark.parametrize(("lower", "normalised"), [(True, True), (True, False), (False, False)])
def test_capitals_are_as_in_sentence_transformers(lower: bool, normalised: bool, tmp_path: Path, tiny_encoder: Path):
    library = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "model"
    load_encoder(tiny_encoder, Encoder(model="x"), cosine=True).save(folder)
    config = folder / "sentence_bert_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"do_lower_case": lower}))
    if not normalised:
        said = json.loads((folder / "tokenizer.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps(said | {"normalizer": None}))
    texts = ["The SHIP and the Tide.", "the ship and the tide."]
    loaded = load_encoder(folder, Encoder(model="x"), cosine=True)
    ours = TextEncoder(loaded).vectors(texts).numpy()
    assert np.allclose(ours[0], ours[1]) == (lower or normalised)
    loaded.save(tmp_path / "saved")
    for place in (folder, tmp_path / "saved"):
        theirs = library.SentenceTransformer(str(place), device="cpu").encode(texts)
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_what_is_saved_cuts_long_texts_as_it_does_here(tmp_path: Path, tiny_encoder: Path):
    library = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "model"
    shutil.copytree(tiny_encoder, folder)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"truncation_side": "left"}))
    loaded = load_encoder(folder, Encoder(model="x", max_length=8), cosine=True)
    loaded.save(tmp_path / "saved")
    long = ["the ship and the tide and the judge of the court and the coast"]
    saved = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    saved.max_seq_length = 8
    np.testing.assert_allclose(TextEncoder(loaded).vectors(long).numpy(), saved.encode(long), atol=1e-6)
