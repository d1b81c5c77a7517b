"""What the benchmark of validators computes from one embedding is what validation says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from infocse_ray.benchmarks import validators
from infocse_ray.benchmarks.labelled import Truth, WithoutLabels
from infocse_ray.benchmarks.validators import VALIDATORS, score_once
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.retrieval.validation import On, questions_for, score
from infocse_ray.settings import Encoder
from infocse_ray.storage.folder import Storage
from tests.unit.passes import small_store
from tests.unit.stores import Written, write_store


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("on", ["sentence", "halves", "readings"])
def test_a_validator_without_labels_scores_as_validation_does(
    on: On, whitened: bool, tiny_encoder: Path, tmp_path: Path
) -> None:
    assert on in VALIDATORS
    store = small_store(tmp_path / "store", count=60, by_key=True)
    encoder = load_encoder(tiny_encoder, Encoder(model=str(tiny_encoder), max_length=16), cosine=True).eval()
    draw = torch.Generator().manual_seed(0)
    whitening = Whitening(torch.zeros(32), torch.randn(32, 8, generator=draw), 1.0) if whitened else None
    found = getattr(WithoutLabels.of(encoder, store, 3), on)(whitening)
    encoder.whitening = whitening
    with torch.inference_mode():
        assert found == score(encoder, questions_for(store, "valid", on, seed=3)).metrics
    assert 0 < found["mrr"] < 1


def test_labels_score_as_a_test_does_also_where_a_document_has_several(tiny_encoder: Path, tmp_path: Path) -> None:
    # Their counterparts begin alike, so that a document's others would be in each other's way.
    documents = [
        Written(f"d{i}", [[10 + i, 40], [10 + i, 41]], counterparts=[[10 + i, 50 + j] for j in range(3)], split="test")
        for i in range(12)
    ]
    store = write_store(Storage.open(str(tmp_path / "store")), documents, 2, by_key=True)
    encoder = load_encoder(tiny_encoder, Encoder(model=str(tiny_encoder), max_length=16), cosine=True).eval()
    with torch.inference_mode():
        expected = score(encoder, questions_for(store, "test", "counterpart")).metrics
        assert Truth.of(encoder, store).scores(None) == expected


def test_an_encoders_scores_are_kept_and_those_of_another_seed_or_encoder_are_others(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[object] = []
    compute = validators._scores
    monkeypatch.setattr(validators, "_scores", lambda *given: [scored.append(given), *compute(*given)][1:])
    documents = [
        Written(f"d{i}", [[10 + i, 40], [10 + i, 41]], counterparts=[[10 + i, 50]], split=split)
        for i, split in enumerate(["valid", "test"] * 12)
    ]
    store = write_store(Storage.open(str(tmp_path / "store")), documents, 2, by_key=True)
    kept = str(tmp_path / "kept")
    first = score_once(str(tiny_encoder), store, 0, kept)
    assert len(first) == 1 + len(validators.POWERS)
    assert first[0]["truth"]["queries"] == 12
    moved = shutil.copytree(tiny_encoder, tmp_path / "moved")
    again = score_once(str(moved), store, 0, kept)
    assert [row | {"model": str(tiny_encoder)} for row in again] == first
    assert len(scored) == 1
    score_once(str(tiny_encoder), store, 1, kept)
    assert len(scored) == 2
    weights = moved / "model.safetensors"
    save_file({name: 1.1 * value for name, value in load_file(weights).items()}, weights, {"format": "pt"})
    score_once(str(moved), store, 0, kept)
    assert len(scored) == 3


def test_scores_that_are_all_alike_rank_nothing() -> None:
    rows = [{"sentence": {"mrr": score}, "truth": {"recall@5": recall}} for score, recall in ((0.5, 0.1), (0.5, 0.2))]
    assert validators._correlation(rows, "sentence", "mrr") == "all alike"
    rows[1]["sentence"]["mrr"] = 0.6
    assert validators._correlation(rows, "sentence", "mrr") == "1.000"
