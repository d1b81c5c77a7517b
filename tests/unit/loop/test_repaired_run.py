"""A whole run in this process, without Ray, whose files are damaged: repaired by the same command, to the same end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.errors import LeaseLost, RunInUse
from infocse_ray.loop import iteration_stages
from infocse_ray.loop import run as run_module
from infocse_ray.loop.infocse import pretrain
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import look_again
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents, write_jsonl
from tests.unit.passes import Passes, pieces
from tests.unit.runs_here import settings_here


@pytest.fixture
def settings(passes: Passes, tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return settings_here(tmp_path, tiny_encoder, monkeypatch)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def result(run: Path) -> tuple[bytes, list[dict]]:
    iteration = (Storage.open(str(run)) / "metrics.json").read_json()["iterations"][1]
    return (run / "model" / "model.safetensors").read_bytes(), iteration["history"]


def test_what_training_finds_damaged_is_made_again_from_what_is_made_again(settings, tmp_path, capsys):
    pretrain(settings)
    run = tmp_path / "runs" / "run"
    [store] = (tmp_path / "runs" / "corpora").iterdir()
    whole = result(run)
    (run / "manifest.json").unlink()
    shutil.rmtree(run / "iteration_1" / "train")
    hurt = {
        run / "iteration_1" / "annotations" / "shard-000003.parquet": flip,
        run / "iteration_1" / "annotations" / "shard-000004.parquet": cut_off,
        store / "documents" / "shard-000003.parquet": flip,
        run / "iteration_0" / "encoder" / "model" / "model.safetensors": flip,
    }
    before = {file: file.read_bytes() for file in hurt}
    kept = (run / "iteration_1" / "annotations" / "shard-000001.parquet").stat().st_mtime_ns
    for file, damage in hurt.items():
        damage(file)
    look_again()  # as in another process
    capsys.readouterr()
    pretrain(settings)
    said = capsys.readouterr().out
    for file in hurt:
        assert f"{file} is damaged (" in said
    assert {file: file.read_bytes() for file in hurt} == before
    assert (run / "iteration_1" / "annotations" / "shard-000001.parquet").stat().st_mtime_ns == kept
    assert result(run) == whole
    left = [file.name for file in (tmp_path / "runs").rglob("*") if file.name.endswith((".damaged", ".lease"))]
    assert left == []


def test_an_exported_model_that_is_damaged_is_exported_again(settings, tmp_path, monkeypatch, capsys):
    pretrain(settings)
    run = tmp_path / "runs" / "run"
    whole = result(run)
    flip(run / "model" / "model.safetensors")
    monkeypatch.setattr(iteration_stages, "train", lambda *_: pytest.fail("trained again"))
    pretrain(settings)
    assert f"{run / 'model' / 'model.safetensors'} is damaged (" in capsys.readouterr().out
    assert result(run) == whole
    pretrain(settings)
    assert "nothing to do" in capsys.readouterr().out


def test_a_changed_corpus_file_is_told_before_work_starts(settings, tmp_path, capsys):
    pretrain(settings)
    write_jsonl(tmp_path / "corpus.jsonl", make_documents(20, seed=1))
    capsys.readouterr()
    pretrain(settings)
    of_the_encoder, first, *rest = capsys.readouterr().out.splitlines()
    assert "names no pooling" in of_the_encoder
    assert first.startswith("changed since this name was last run: the corpus' files. Stale: corpus and what is made")
    assert not [line for line in rest if line.startswith("changed since")]


def test_a_run_has_its_lease_while_it_trains_and_none_after(settings, tmp_path, monkeypatch):
    train = iteration_stages.train

    def meanwhile(*arguments: Any) -> dict[str, Any]:
        with pytest.raises(RunInUse, match="name = 'run': another driver is at work on it"):
            pretrain(settings)
        return train(*arguments)

    monkeypatch.setattr(iteration_stages, "train", meanwhile)
    pretrain(settings)
    assert not (tmp_path / "runs" / "run" / "driver.lease").exists()


def test_a_model_that_is_served_is_not_replaced_by_a_driver_that_lost_the_run(settings, tmp_path, monkeypatch):
    pretrain(settings)
    run = tmp_path / "runs" / "run"
    served = pieces(run / "model") | {"metrics.json": (run / "metrics.json").read_bytes()}

    def taken() -> dict[str, str]:
        (run / "driver.lease").write_bytes(b'{"token": "another"}')
        return {}

    monkeypatch.setattr(run_module, "versions", taken)  # what is asked last, before the model is exported
    trained = settings.train.model_copy(update={"learning_rate": 1e-2})
    with pytest.raises(LeaseLost, match="name = 'run': its lease was taken"):
        pretrain(settings.model_copy(update={"train": trained}))
    assert pieces(run / "model") | {"metrics.json": (run / "metrics.json").read_bytes()} == served
