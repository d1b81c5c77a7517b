"""A backbone that can't compute in the precision of training is found out before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.settings import Settings
from infocse_ray.train.precision import check_precision
from infocse_ray.train.state import TrainState
from tests.unit.encoder.test_unusual_folders import backbone_in
from tests.unit.trainees import method_for, settings_for


def in_precision(settings: Settings, precision: str) -> Settings:
    return settings.model_copy(update={"encoder": settings.encoder.model_copy(update={"precision": precision})})


def test_deberta_is_trained_in_fp32_alone(tmp_path: Path, tiny_encoder: Path):
    folder = backbone_in(tmp_path, tiny_encoder, "deberta")
    settings = settings_for("idc", folder)
    encoder = load_encoder(folder, settings.encoder.model_copy(update={"pooling": "mean"}), cosine=True)
    with pytest.raises(ValueError, match=r"^encoder\.precision = bf16: a deberta model can't .*; set it to fp32$"):
        TrainState(encoder, method_for("idc"), in_precision(settings, "bf16"), 0)
    assert TrainState(encoder, method_for("idc"), settings, 0).memory


def test_what_computes_in_bf16_does_and_memory_that_runs_out_is_another_matter(
    tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = in_precision(settings_for("idc", tiny_encoder), "bf16")
    encoder = load_encoder(tiny_encoder, settings.encoder, cosine=True)
    check_precision(encoder, settings)

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(SentenceEncoder, "hidden", full)
    with pytest.raises(torch.OutOfMemoryError):
        check_precision(encoder, settings)
    check_precision(encoder, in_precision(settings, "fp32"))  # isn't tried: nothing would be learned
