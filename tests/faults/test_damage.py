"""Files damaged in storage, and a second driver: named, repaired by the same command, and never another result."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import make_documents, write_jsonl
from tests.faults.clusters import ALONE, processes
from tests.faults.drivers import checkpoints, finish, kill_when, metrics_of, start, wait_until, weights_of


def flip(file: Path, place: float = 0.5) -> None:
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1
    file.write_bytes(bytes(content))


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def result(run: Path) -> tuple[bytes, list[dict[str, Any]], dict[str, Any]]:
    """Weights, history and counts of a finished run, which must not depend on what happened on the way."""
    iteration = metrics_of(run)["iterations"][1]
    counts = {k: v for k, v in iteration["annotations"].items() if k != "seconds"}
    return weights_of(run), iteration["history"], counts


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
    corpus: Path, undisturbed: Path, tiny_encoder: Path
) -> None:
    # Folders in it are relative to it, so that the whole storage may be copied.
    storage = shutil.copytree(undisturbed.parent, corpus / "damaged")
    run = storage / undisturbed.name

    def again() -> str:
        return finish(start(corpus, run.name, tiny_encoder, storage=str(storage)))

    # As if only training were to be done again, which reads what is damaged.
    for name in ("manifest.json", "metrics.json", "iteration_1/train/stage.json", "iteration_1/train/result.json"):
        (run / name).unlink()
    [store] = (storage / "corpora").iterdir()
    hurt = {
        run / "iteration_1" / "annotations" / "shard-000003.parquet": flip,
        run / "iteration_1" / "annotations" / "shard-000005.parquet": cut_off,
        store / "documents" / "shard-000003.parquet": flip,
        run / "iteration_1" / "examples" / "stage.json": flip,
        run / "iteration_0" / "whitening" / "model" / "model.safetensors": flip,
    }
    before = {file: file.read_bytes() for file in hurt}
    untouched = run / "iteration_1" / "annotations" / "shard-000001.parquet"
    made = untouched.stat().st_mtime_ns
    for file, damage in hurt.items():
        damage(file)
    said = again()
    for file in hurt:
        assert f"{file} is damaged (" in said
    assert {file: file.read_bytes() for file in hurt if file.suffix != ".json"} == {
        file: content for file, content in before.items() if file.suffix != ".json"
    }
    assert untouched.stat().st_mtime_ns == made, "a whole piece was made again"
    assert not [file for file in storage.rglob("*") if file.name.endswith((".damaged", ".lease"))]
    assert result(run) == result(undisturbed)

    # What was exported is looked at too, before there is said to be nothing to do.
    flip(run / "model" / "model.safetensors")
    assert "model.safetensors is damaged (" in again()
    assert result(run) == result(undisturbed)
    assert "nothing to do" in again()


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, True], ids=["the newest", "every"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    corpus: Path, undisturbed: Path, tiny_encoder: Path, every: bool
) -> None:
    name = f"damaged-{every}"
    run = corpus / name / name
    training = run / "iteration_1" / "train"

    def begin() -> subprocess.Popen[bytes]:
        return start(corpus, name, tiny_encoder, train__checkpoint_every="5", train__max_failures="0")

    driver = begin()
    wait_until(driver, lambda: len(checkpoints(training)) > 1)
    training_on = processes(ALONE, driver.pid)
    kill_when(driver, lambda: True)
    # It ends a moment after its driver, and may write a checkpoint till then.
    assert len(training_on) == 1
    assert not psutil.wait_procs(training_on, timeout=120)[1]
    *_, (step, before), (_, newest) = checkpoints(training).items()
    (flip if every else cut_off)(newest / "optimizer.pt")
    if every:
        flip(before / "encoder.safetensors")
    said = finish(begin())
    assert f"{newest.name} is damaged (optimizer.pt: " in said
    assert ("no checkpoint is whole: training begins at its first step" in said) == every
    assert metrics_of(run)["iterations"][1]["train"]["resumed_at"] == ([] if every else [step])
    assert result(run) == result(undisturbed)
