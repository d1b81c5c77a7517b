"""A run that is given minutes, on a shared local cluster: it measures once, and says how long it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.loop import infocse, minutes
from infocse_ray.loop.infocse import pretrain
from infocse_ray.loop.manifest import read_manifest
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import read_stage
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents, write_jsonl

pytestmark = pytest.mark.usefixtures("ray_cluster", "workers_here")


def settings_for(folder: Path, model: Path, name: str) -> Settings:
    return Settings.model_validate(
        {
            "name": name,
            "storage": str(folder / "runs"),
            "minutes": 30,
            "corpus": {"source": str(folder / "corpus.jsonl"), "lanes": 4, "valid_fraction": 0.2},
            "encoder": {"model": str(model), "max_length": 16, "precision": "fp32"},
            "train": {"batch_size": 16, "max_steps": 40, "interpolation": []},
            "validate": {"every": 2, "patience": 2},
            "loop": {"max_iterations": 1},
        }
    )


def test_a_run_measures_its_cluster_once_and_trains_by_that(
    tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", make_documents(60))
    metrics = pretrain(settings_for(tmp_path, tiny_encoder, "a"))
    said = capsys.readouterr().out.splitlines()
    [line] = [line for line in said if line.startswith("some ")]
    assert "annotating" in line
    root = Storage.open(str(tmp_path / "runs"))
    settled = read_stage(root / read_manifest(root / "a")["stages"]["minutes"]["folder"]).summary
    assert settled is not None
    assert settled["speed"][0] > 0
    assert settled["speed"][2] > 0, "tokens trained on a second"
    assert settled["max_iterations"] == 1
    assert metrics["settings"]["train"]["max_tokens"] == settled["max_tokens"]
    assert metrics["settings"]["minutes"] is None, "what it settled stands in its place"
    assert 1 < metrics["iterations"][1]["train"]["steps"] <= 40, "as many as are asked for, in half an hour"
    assert "speed" not in metrics["iterations"][0].get("whitening", {})
    monkeypatch.setattr(infocse, "sized", lambda run, begun, compared: pytest.fail(f"compared: {compared}"))
    for after, compared in ((None, False), (print, True)):
        with pytest.raises(pytest.fail.Exception, match=f"compared: {compared}"):
            pretrain(settings_for(tmp_path, tiny_encoder, "trial"), after)
    monkeypatch.setattr(infocse, "sized", minutes.sized)
    monkeypatch.setattr(minutes, "measured", lambda run: pytest.fail("it was measured again"))
    again = pretrain(settings_for(tmp_path, tiny_encoder, "b"))
    assert again["iterations"][1]["validation"] == metrics["iterations"][1]["validation"]
    trained = read_manifest(root / "a")["stages"]["iteration_1/train"]
    given = pretrain(Settings.model_validate(metrics["settings"]))
    assert given["iterations"][1]["validation"] == metrics["iterations"][1]["validation"]
    assert read_manifest(root / "a")["stages"]["iteration_1/train"] == trained, "the same training, found"
