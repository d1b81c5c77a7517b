"""A folder with a user's files is no run's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infocse_ray.loop.own_folder import check_own_folder
from infocse_ray.loop.run import open_run
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage


@pytest.mark.parametrize("path", ["docs.jsonl", "labels/train.csv", "model/weights.bin", "iteration_1/train/mine.txt"])
def test_a_folder_with_files_that_no_run_made_is_refused(tmp_path: Path, path: str):
    folder = Storage.open(str(tmp_path)) / "news"
    (folder / path).write_bytes(b"mine")
    said = f"^name = 'news': {folder} has {path}, which no run made and which would be lost; give another name$"
    with pytest.raises(ValueError, match=said):
        check_own_folder(folder, "news")
    assert (folder / path).read_bytes() == b"mine"


@pytest.mark.parametrize(
    "paths",
    [
        [],
        [".DS_Store"],
        ["manifest.json", "labels/stage.json"],
        ["driver.lease", "iteration_0/encoder/model/config.json"],
        ["cells/a.json"],
        ["sweep.json", "best.yaml"],
        ["events/train/events.out.tfevents.0", "tracking/mlflow.json"],
        ["iteration_1/annotations/stage.json", "iteration_1/annotations/shard-000000.parquet", "metrics.json"],
        ["iteration_1/train/started.json", "iteration_1/train/models/step/model.safetensors"],
    ],
)
def test_what_a_run_or_what_is_left_of_one_has_is_its_own(tmp_path: Path, paths: list[str]):
    folder = Storage.open(str(tmp_path)) / "news"
    for path in paths:
        (folder / path).write_bytes(b"ours")
    check_own_folder(folder, "news")


def test_a_manifest_of_other_software_makes_no_folder_a_runs(tmp_path: Path):
    folder = Storage.open(str(tmp_path)) / "news"
    (folder / "manifest.json").write_bytes(b'{"name": "My app", "icons": []}')
    with pytest.raises(ValueError, match=r"has manifest\.json, which no run made and which would be lost"):
        check_own_folder(folder, "news")
    for content in (b'{"format": 2, "checksum": "of something else"}', b'{"job": "pretrain", "stages": {}}', b"{}"):
        (folder / "manifest.json").write_bytes(content)
        check_own_folder(folder, "news")


def test_a_run_begins_nothing_in_such_a_folder(tmp_path: Path):
    (tmp_path / "news" / "labels").mkdir(parents=True)
    (tmp_path / "news" / "labels" / "a.csv").write_text("mine")
    content = {"name": "news", "storage": str(tmp_path), "corpus": {"source": "c"}, "encoder": {"model": "m"}}
    nothing: Any = None
    with (
        pytest.raises(ValueError, match=r"^name = 'news': .*/news has labels/a.csv, which no run made"),
        open_run("finetune", Settings.model_validate(content), nothing, "identity"),
    ):
        pass
    assert [file.name for file in (tmp_path / "news").rglob("*")] == ["labels", "a.csv"]
