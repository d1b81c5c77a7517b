"""`kill -9` of the driver in its phases: the same command goes on, to the same result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import make_documents, write_jsonl

ROOT = Path(__file__).parents[2]


def start(folder: Path, name: str, encoder: Path, job: str = "pretrain", **more: str) -> subprocess.Popen[bytes]:
    options = {
        "--name": name,
        # A storage of its own, so that no stage is shared with the undisturbed run.
        "--storage": str(folder / name),
        "--encoder.model": str(encoder),
        "--encoder.max_length": "16",
        "--corpus.source": str(folder / "corpus.jsonl"),
        "--corpus.lanes": "8",
        "--corpus.valid_fraction": "0.2",
        "--train.batch_size": "32",
        "--train.max_steps": "30",
        "--train.learning_rate": "0.001",
        "--train.similarity": "cosine",
        "--train.temperature": "0.05",
        "--train.chunk_tokens": "128",
        "--validate.every": "10",
        "--train.checkpoint_every": "10",
        "--loop.initialization": "none",
        "--loop.max_iterations": "1",
    } | {f"--{setting.replace('__', '.')}": value for setting, value in more.items()}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "jobs" / f"{job}.py"), *(part for option in options.items() for part in option)],
        env=os.environ | {"RAY_ADDRESS": "local", "INFOCSE_TRACEBACK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(driver: subprocess.Popen[bytes]) -> str:
    output = driver.communicate(timeout=900)[0].decode()
    assert driver.returncode == 0, output
    return output


def kill_when(driver: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    while not reached():
        assert driver.poll() is None, (driver.stdout.read() if driver.stdout else b"").decode()
        time.sleep(0.02)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()


def recorded(training: Path) -> bool:
    """Whether Ray has recorded a checkpoint, which a restart will take."""
    try:
        snapshot = (training / "checkpoints" / "checkpoint_manager_snapshot.json").read_text()
        return bool(json.loads(snapshot)["checkpoint_results"])
    except (FileNotFoundError, json.JSONDecodeError):
        return False


def test_a_killed_run_goes_on_to_the_same_result(tmp_path: Path, tiny_encoder: Path) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", make_documents(200))
    finish(start(tmp_path, "whole", tiny_encoder))
    run = tmp_path / "killed" / "killed"
    annotations, training = run / "iteration_1" / "annotations", run / "iteration_1" / "train"

    kill_when(start(tmp_path, "killed", tiny_encoder), lambda: any(annotations.glob("shard-*.parquet")))
    assert not (run / "model").exists()
    kill_when(start(tmp_path, "killed", tiny_encoder), lambda: recorded(training))
    assert not (run / "model").exists()
    shards = {file: file.stat().st_mtime_ns for file in annotations.glob("shard-*.parquet")}
    finish(start(tmp_path, "killed", tiny_encoder))

    assert {file: file.stat().st_mtime_ns for file in annotations.glob("shard-*.parquet")} == shards, "annotated twice"
    whole = tmp_path / "whole" / "whole"
    iterations = [json.loads((r / "metrics.json").read_text())["iterations"][1] for r in (whole, run)]
    histories = [iteration["history"] for iteration in iterations]
    resumed_at = [iteration["train"]["resumed_at"] for iteration in iterations]
    assert resumed_at in ([[], [10]], [[], [20]])
    counts = [{k: v for k, v in i["annotations"].items() if k != "seconds"} for i in iterations]
    assert counts[0] == counts[1]
    assert [entry["step"] for entry in histories[0]] == [0, 10, 20, 30]
    assert histories[0] == histories[1]
    weights = [(r / "model" / "model.safetensors").read_bytes() for r in (whole, run)]
    assert weights[0] == weights[1]

    before = {file: file.stat().st_mtime_ns for file in run.rglob("*") if file.is_file()}
    assert "nothing to do" in finish(start(tmp_path, "killed", tiny_encoder))
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*") if file.is_file()} == before


@pytest.mark.slow
def test_infocse_plusplus_killed_in_each_phase_of_each_round_goes_on_to_the_same_result(
    tmp_path: Path, tiny_encoder: Path
) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", make_documents(200))
    settings = {"labels__train_size": "64", "finetune__batch_size": "16", "finetune__learning_rate": "0.001"}
    settings |= {"finetune__epochs": "6", "finetune__patience": "6", "plusplus__max_rounds": "2"}
    settings |= {"train__max_steps": "20"}

    def begin(name: str) -> subprocess.Popen[bytes]:
        return start(tmp_path, name, tiny_encoder, "plusplus", **settings)

    finish(begin("whole"))
    run, whole = tmp_path / "killed" / "killed", tmp_path / "whole" / "whole"
    for number in (1, 2):
        annotations = run / f"iteration_{number}" / "annotations"
        kill_when(begin("killed"), lambda annotations=annotations: any(annotations.glob("shard-*.parquet")))
        for phase in ("iteration", "fine_tuning"):
            training = run / f"{phase}_{number}" / "train"
            kill_when(begin("killed"), lambda at=training: recorded(at) or (at / "result.json").exists())
            assert not (run / "model").exists()
    finish(begin("killed"))

    found = [json.loads((r / "metrics.json").read_text()) for r in (whole, run)]
    phases = [phase for one in found[1]["rounds"] for phase in (one["iterations"][-1], one["fine_tuned"])]
    resumed = [phase["train"]["resumed_at"] for phase in phases]
    assert any(resumed), "some phase went on from a checkpoint"
    assert [len(metrics["rounds"]) for metrics in found] == [2, 2]
    for one, other in zip(found[0]["rounds"], found[1]["rounds"], strict=True):
        assert one["zero_shot"] == other["zero_shot"]
        for part in ("history", "validation", "test"):
            assert one["fine_tuned"][part] == other["fine_tuned"][part]
    weights = [(r / "model" / "model.safetensors").read_bytes() for r in (whole, run)]
    assert weights[0] == weights[1]
    assert "nothing to do" in finish(begin("killed"))
