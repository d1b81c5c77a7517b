"""A training that whitens at every validation, stopped between two of them and resumed, is the uninterrupted one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.retrieval.refit import Refit, WhiteningPlan
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from infocse_ray.train import loop
from infocse_ray.train.checkpoints import OfOneProcess
from infocse_ray.train.loop import Training, TrainingWorker
from infocse_ray.train.schedule import Budget
from tests.unit.passes import SPLITS, pieces, small_store
from tests.unit.stores import counted
from tests.unit.train.test_checkpoints import steps
from tests.unit.train.test_training_worker import FakeBoard, asked_at
from tests.unit.trainees import annotated, load_encoder, method_for, settings_for

CPU = torch.device("cpu")
PLAN = WhiteningPlan(None, None, SPLITS, 3, whole=True)


def whitened_start(settings: Settings, store: TokenStore, tiny_encoder: Path, folder: Path) -> EncoderFolder:
    """What a run's training starts from: the encoder with its map."""
    encoder = load_encoder(tiny_encoder, settings.encoder, True)
    encoder.whitening = Refit.of(PLAN, store, encoder, CPU)(encoder)
    return EncoderFolder.save(encoder, Storage.open(str(folder)))


@pytest.fixture
def training(
    request: pytest.FixtureRequest, tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> Training:
    """Six steps of InfoCSE with distillation, validated after every three; `train.whitened` is the parameter."""
    nothing: Any = None
    chosen = {"similarity": "cosine", "temperature": 0.05, "distillation": 0.5, "learning_rate": 2e-3}
    settings = settings_for(
        "idc", tiny_encoder, whitened=request.param, never_worse=False, interpolation=[0.5], **chosen
    )
    settings = settings.model_copy(update={"validate": settings.validate.model_copy(update={"every": 3})})
    method = method_for("idc", EncoderSpec.of(load_encoder(tiny_encoder, settings.encoder, True)), settings)
    store = small_store(tmp_path / "store", count=60, by_key=True)
    for name, fake in {"worker_device": lambda: CPU, "assigned_cores": lambda: 1}.items():
        monkeypatch.setattr(loop, name, fake)
    return Training(
        settings,
        store,
        counted(annotated(tmp_path / "source", tiny_encoder), method),
        method,
        Budget(6, None, 99),
        whitened_start(settings, store, tiny_encoder, tmp_path / "start"),
        5,
        nothing,
        "sentence",
        whitening=PLAN,
    )


def begun(training: Training, folder: Path) -> TrainingWorker:
    """A worker in a stage's folder."""
    stage = Storage.open(str(folder))
    return TrainingWorker(training._replace(folder=stage, board=FakeBoard()), OfOneProcess(stage))


def restored(worker: TrainingWorker) -> dict[str, Any]:
    """A copy of all that is restored, the whitening's map and power among it."""
    encoder = worker._encoder
    assert encoder.whitening is not None
    copies = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    assert {"whitening.mean", "whitening.matrix"} <= copies.keys()
    return copies | {"power": torch.tensor(encoder.whitening.power)}


def assert_same(found: dict[str, Any], right: dict[str, Any]) -> None:
    assert found.keys() == right.keys()
    for name, tensor in right.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("training", [False, True], indirect=True, ids=["loss before the map", "loss behind the map"])
def test_a_whitened_training_that_was_stopped_goes_on_as_if_it_had_not_been(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    uninterrupted = begun(training, tmp_path / "stage")
    uninterrupted.validate()
    start = restored(uninterrupted)
    for _ in range(4):
        uninterrupted.step()
    at_four = restored(uninterrupted)
    assert not torch.equal(at_four["whitening.matrix"], start["whitening.matrix"]), "the map is of the third step"
    uninterrupted.run()

    asked_at(4, monkeypatch)
    begun(training, tmp_path / "again").run()
    assert steps(tmp_path / "again") == [3, 4]
    asked_at(None, monkeypatch)
    resumed = begun(training, tmp_path / "again")
    assert resumed.progress["step"] == 4
    assert_same(restored(resumed), at_four)
    resumed.run()
    assert_same(restored(resumed), restored(uninterrupted))
    found, right = ((tmp_path / stage) for stage in ("again", "stage"))
    ours, theirs = (Storage.open(str(stage / "result.json")).read_json() for stage in (found, right))
    assert ours["resumed_at"] == [4]
    for name in ("history", "between", "chosen", "stopping", "tokens"):
        assert ours[name] == theirs[name], name
    assert pieces(found / "models") == pieces(right / "models"), "what comes back, its map in a folder of its own"
