"""Files damaged in storage, and a second driver: named, repaired by the same command, and never another result."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.conftest import make_documents, write_jsonl
from tests.faults.test_driver_killed import finish, kill_when, start

SETTINGS = {"train__max_steps": "60", "train__checkpoint_every": "5", "train__max_failures": "0"}


def flip(file: Path, place: float = 0.5) -> None:
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1
    file.write_bytes(bytes(content))


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def result(run: Path) -> tuple[bytes, list[dict], dict]:
    """Weights, history and counts of a finished run, which must not depend on what happened on the way."""
    iteration = json.loads((run / "metrics.json").read_text())["iterations"][1]
    counts = {k: v for k, v in iteration["annotations"].items() if k != "seconds"}
    return (run / "model" / "model.safetensors").read_bytes(), iteration["history"], counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    write_jsonl(folder / "corpus.jsonl", make_documents(200))
    return folder


@pytest.fixture(scope="module")
def whole(folder: Path, tiny_encoder: Path) -> tuple[bytes, list[dict], dict]:
    finish(start(folder, "whole", tiny_encoder, **SETTINGS))
    return result(folder / "whole" / "whole")


def test_a_second_driver_of_a_run_refuses_naming_the_first(tmp_path: Path, tiny_encoder: Path) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", make_documents(40))
    first = start(tmp_path, "news", tiny_encoder)
    try:
        while not (tmp_path / "news" / "news" / "driver.lease").exists():
            assert first.poll() is None
        second = start(tmp_path, "news", tiny_encoder)
        said = second.communicate(timeout=300)[0].decode()
    finally:
        first.kill()
        first.communicate()
    assert second.returncode
    refusal = said.strip().splitlines()[-1]
    assert f"name = 'news': another driver is at work on it (host {os.uname().nodename}, pid {first.pid}, " in refusal


@pytest.mark.slow
def test_damaged_stages_are_named_and_made_again_to_the_same_result(
    folder: Path, tiny_encoder: Path, whole: tuple[bytes, list[dict], dict]
) -> None:
    storage, run = folder / "whole", folder / "whole" / "whole"
    # As if only training were to be done again, which reads what is damaged.
    for name in ("manifest.json", "metrics.json", "iteration_1/train/stage.json", "iteration_1/train/result.json"):
        (run / name).unlink()
    [store] = (storage / "corpora").iterdir()
    hurt = {
        run / "iteration_1" / "annotations" / "shard-000003.parquet": flip,
        run / "iteration_1" / "annotations" / "shard-000005.parquet": cut_off,
        store / "documents" / "shard-000002.parquet": cut_off,
        store / "documents" / "shard-000003.parquet": flip,
        run / "iteration_1" / "examples" / "stage.json": flip,
        run / "iteration_0" / "encoder" / "model" / "model.safetensors": flip,
    }
    before = {file: file.read_bytes() for file in hurt}
    untouched = run / "iteration_1" / "annotations" / "shard-000001.parquet"
    made = untouched.stat().st_mtime_ns
    for file, damage in hurt.items():
        damage(file)
    said = finish(start(folder, "whole", tiny_encoder, **SETTINGS))
    for file in hurt:
        assert f"{file} is damaged (" in said
    assert {file: file.read_bytes() for file in hurt if file.suffix != ".json"} == {
        file: content for file, content in before.items() if file.suffix != ".json"
    }
    assert untouched.stat().st_mtime_ns == made, "a whole piece was made again"
    assert not [file for file in storage.rglob("*") if file.name.endswith((".damaged", ".lease"))]
    assert result(run) == whole

    # What was exported is looked at too, before there is said to be nothing to do.
    flip(run / "model" / "model.safetensors")
    assert "model.safetensors is damaged (" in finish(start(folder, "whole", tiny_encoder, **SETTINGS))
    assert result(run) == whole
    assert "nothing to do" in finish(start(folder, "whole", tiny_encoder, **SETTINGS))


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, True], ids=["the newest", "every"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    folder: Path, tiny_encoder: Path, whole: tuple[bytes, list[dict], dict], every: bool
) -> None:
    name = f"killed-{every}"
    run = folder / name / name
    checkpoints = run / "iteration_1" / "train" / "checkpoints"

    def recorded() -> list[str]:
        try:
            found = json.loads((checkpoints / "checkpoint_manager_snapshot.json").read_text())["checkpoint_results"]
        except (FileNotFoundError, json.JSONDecodeError):
            return []
        return [one["checkpoint_dir_name"] for one in found]

    kill_when(start(folder, name, tiny_encoder, **SETTINGS), lambda: len(recorded()) > 1)
    *_, before, newest = recorded()
    (flip if every else cut_off)(checkpoints / newest / "optimizer.pt")
    if every:
        flip(checkpoints / before / "encoder.safetensors")
    step = json.loads((checkpoints / before / "progress.json").read_text())["step"]
    said = finish(start(folder, name, tiny_encoder, **SETTINGS))
    assert f"{newest} is damaged (optimizer.pt: " in said
    assert ("no checkpoint is whole: training begins at its first step" in said) == every
    iteration = json.loads((run / "metrics.json").read_text())["iterations"][1]
    assert iteration["train"]["resumed_at"] == ([] if every else [step])
    assert result(run) == whole
