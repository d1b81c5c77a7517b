"""Weights & Biases offline, read back from its own file; where its package is installed."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.tracking.sink import TrackedRun
from infocse_ray.tracking.tracking import Tracking, check_sinks
from infocse_ray.tracking.wandb import WandB
from tests.unit.tracking.runs import METRICS, settings_for, show_training

wandb = pytest.importorskip("wandb")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for folder in ("DIR", "CONFIG_DIR", "CACHE_DIR", "DATA_DIR"):
        monkeypatch.setenv(f"WANDB_{folder}", str(tmp_path / "wandb-here"))
    (tmp_path / "wandb-here").mkdir()


def contents(file: bytes) -> Iterator[bytes]:
    """The entries of a W&B file: a header, then LevelDB's log format, 32 KiB a block."""
    assert file[:4] == b":W&B"
    at, whole = 7, b""
    while at < len(file):
        if 32768 - at % 32768 < 7:  # no room for a header
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack("<IHB", file[at : at + 7])
        whole += file[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield whole
            whole = b""


def records(folder: Path) -> list[Any]:
    """What W&B would send of the runs kept in a folder, in the order of its commands."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore

    files = sorted(folder.rglob("run-*.wandb"), key=lambda file: file.stat().st_mtime)
    return [Record.FromString(content) for file in files for content in contents(file.read_bytes())]


def logged(every: list[Any]) -> list[dict[str, Any]]:
    rows = [record.history.item for record in every if record.HasField("history")]
    return [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row} for row in rows]


def test_a_run_that_goes_on_keeps_its_id_and_shows_every_step_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["infocse", "--storage", "s3://KEY:hidden-secret@bucket/runs"])
    settings = settings_for("wandb", storage="s3://KEY:hidden-secret@bucket/runs", tracking={"group": "first"})
    run = Storage(str(tmp_path), "news")
    stage = Stage("train", "f", run / "iteration_1" / "train")
    with Tracking(settings, "pretrain", run) as tracking:
        show_training(tracking, stage, range(0, 8), ends=False)
    time.sleep(1.1)  # W&B names a command's folder by the second
    with Tracking(settings, "pretrain", run) as tracking:
        show_training(tracking, stage, range(6, 11))
        tracking.summary(METRICS, "i")
    wandb.teardown()  # its service writes the file to the end
    every = records(tmp_path / "wandb-here")
    runs = [record.run for record in every if record.HasField("run")]
    assert len({one.run_id for one in runs}) == 1
    assert {(one.display_name, one.run_group, one.job_type, one.project) for one in runs} == {
        ("news", "first", "pretrain", "infocse")
    }
    rows = logged(every)
    assert [row["iteration_1/step"] for row in rows if "iteration_1/train/loss" in row] == list(range(1, 11))
    validated = [row["iteration_1/validation/recall_at_5"] for row in rows if "iteration_1/validation/mrr" in row]
    assert validated == [0.5, 0.6]
    assert [row["iterations/train/seconds"] for row in rows if "iterations/number" in row] == [3.0]
    sent = str(every)
    assert "result/validation/recall_at_5" in sent
    assert "WIN, against the encoder as it came" in sent
    kept = b"".join(file.read_bytes() for file in (tmp_path / "wandb-here").rglob("*") if file.is_file())
    assert b"hidden-secret" not in kept
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


def test_the_end_of_a_run_does_not_wait_for_a_server_that_is_gone(tmp_path):
    sink = WandB()
    sink.open(TrackedRun("news", "pretrain", Storage(str(tmp_path), "news"), {}, None))
    # By default W&B waits until all is uploaded.
    assert 0 < sink._run.settings.finish_timeout < 60
    assert sink._run.settings.finish_timeout_raises
    sink.close("finished")


def test_no_key_is_said_before_work_starts(monkeypatch, tmp_path):
    check_sinks(settings_for("wandb"))
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"tracking.sinks = wandb: .* has no key here; set WANDB_API_KEY"):
        check_sinks(settings_for("wandb"))
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    check_sinks(settings_for("wandb"))
