"""SIGTERM (of `ray job stop`) and Ctrl-C in the midst of training: it ends at a checkpoint and goes on from it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import make_documents, write_jsonl
from tests.faults.drivers import checkpoints, finish, metrics_of, said, start, weights_of


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_stopped_run_goes_on_from_the_step_it_stopped_at(
    tmp_path: Path, tiny_encoder: Path, number: int, status: int
) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", make_documents(60))

    def begin(name: str) -> subprocess.Popen[bytes]:
        settings = {"train__batch_size": "16", "train__max_steps": "400", "train__chunk_tokens": "1024"}
        settings |= {"validate__every": "50", "train__checkpoint_every": "100000"}
        return start(tmp_path, name, tiny_encoder, **settings)

    finish(begin("whole"))
    stopped = begin("stopped")
    said(stopped, "step 50: validation")
    # To the whole group, as a terminal does.
    os.killpg(stopped.pid, number)
    output = finish(stopped, status)
    assert f"pretrain.py: stopped by {signal.Signals(number).name}; what is finished is kept" in output
    run, whole = tmp_path / "stopped" / "stopped", tmp_path / "whole" / "whole"
    [step] = checkpoints(run / "iteration_1" / "train")
    assert f"step {step}: stopped, at a checkpoint" in output
    assert 50 < step < 400

    finish(begin("stopped"))
    found, expected = (metrics_of(r)["iterations"][1] for r in (run, whole))
    assert found["train"]["resumed_at"] == [step]
    assert found["history"] == expected["history"]
    assert weights_of(run) == weights_of(whole)
