"""`kill -9` of the driver in its phases: the same command goes on, to the same result."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import make_documents, write_jsonl
from tests.faults.drivers import checkpoints, finish, kill_when, metrics_of, start, weights_of


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_result(corpus: Path, undisturbed: Path, tiny_encoder: Path) -> None:
    run = corpus / "killed" / "killed"
    annotations, training = run / "iteration_1" / "annotations", run / "iteration_1" / "train"

    kill_when(start(corpus, "killed", tiny_encoder), lambda: any(annotations.glob("shard-*.parquet")))
    assert not (run / "model").exists()
    kill_when(start(corpus, "killed", tiny_encoder), lambda: bool(checkpoints(training)))
    assert not (run / "model").exists()
    shards = {file: file.stat().st_mtime_ns for file in annotations.glob("shard-*.parquet")}
    finish(start(corpus, "killed", tiny_encoder))

    assert {file: file.stat().st_mtime_ns for file in annotations.glob("shard-*.parquet")} == shards, "annotated twice"
    iterations = [metrics_of(r)["iterations"][1] for r in (undisturbed, run)]
    histories = [iteration["history"] for iteration in iterations]
    resumed_at = [iteration["train"]["resumed_at"] for iteration in iterations]
    assert resumed_at in ([[], [step]] for step in (30, 60, 90))
    counts = [{k: v for k, v in i["annotations"].items() if k != "seconds"} for i in iterations]
    assert counts[0] == counts[1]
    assert [entry["step"] for entry in histories[0]] == [0, 30, 60, 90, 120]
    assert histories[0] == histories[1]
    assert weights_of(undisturbed) == weights_of(run)

    before = {file: file.stat().st_mtime_ns for file in run.rglob("*") if file.is_file()}
    assert "nothing to do" in finish(start(corpus, "killed", tiny_encoder))
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*") if file.is_file()} == before


@pytest.mark.slow
def test_infocse_plusplus_killed_in_each_phase_of_each_round_goes_on_to_the_same_result(
    tmp_path: Path, tiny_encoder: Path
) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", make_documents(200))
    settings = {"labels__train_size": "64", "finetune__batch_size": "16", "finetune__learning_rate": "0.001"}
    settings |= {"finetune__epochs": "6", "finetune__patience": "6", "plusplus__max_rounds": "2"}
    settings |= {"train__max_steps": "20", "validate__every": "10", "train__checkpoint_every": "10"}

    def begin(name: str) -> subprocess.Popen[bytes]:
        return start(tmp_path, name, tiny_encoder, "plusplus", **settings)

    finish(begin("whole"))
    run, whole = tmp_path / "killed" / "killed", tmp_path / "whole" / "whole"
    for number in (1, 2):
        annotations = run / f"iteration_{number}" / "annotations"
        kill_when(begin("killed"), lambda annotations=annotations: any(annotations.glob("shard-*.parquet")))
        for phase in ("iteration", "fine_tuning"):
            training = run / f"{phase}_{number}" / "train"
            kill_when(begin("killed"), lambda at=training: bool(checkpoints(at)) or (at / "result.json").exists())
            assert not (run / "model").exists()
    finish(begin("killed"))

    found = [metrics_of(r) for r in (whole, run)]
    phases = [phase for one in found[1]["rounds"] for phase in (one["iterations"][-1], one["fine_tuned"])]
    resumed = [phase["train"]["resumed_at"] for phase in phases]
    assert any(resumed), "some phase went on from a checkpoint"
    assert [len(metrics["rounds"]) for metrics in found] == [2, 2]
    for one, other in zip(found[0]["rounds"], found[1]["rounds"], strict=True):
        assert one["zero_shot"] == other["zero_shot"]
        for part in ("history", "validation", "test"):
            assert one["fine_tuned"][part] == other["fine_tuned"][part]
    assert weights_of(whole) == weights_of(run)
    assert "nothing to do" in finish(begin("killed"))
