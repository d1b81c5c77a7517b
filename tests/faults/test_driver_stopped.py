"""SIGTERM (of `ray job stop`) and Ctrl-C in the midst of training: it ends at a checkpoint and goes on from it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.faults.clusters import ACTOR, ALONE, TASK, frozen, processes
from tests.faults.drivers import checkpoints, finish, metrics_of, said, start, wait_until, weights_of


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_run_goes_on_from_the_step_it_stopped_at(
    corpus: Path, undisturbed: Path, tiny_encoder: Path, number: int, status: int
) -> None:
    name = signal.Signals(number).name
    run = corpus / name / name
    # Checkpoints so far apart that only being stopped makes one.
    driver = start(corpus, name, tiny_encoder, train__checkpoint_every="100000")
    said(driver, "step 0: validation")
    workers = processes(ALONE, driver.pid)
    assert len(workers) == 1
    said(driver, "step 30: validation")
    with frozen(workers):
        # To all processes of its group, as a terminal sends Ctrl-C, and `timeout` its signal.
        os.killpg(driver.pid, number)
        said(driver, "asked to stop: training ends at a checkpoint once its workers know")
    output = finish(driver, status)
    [step] = checkpoints(run / "iteration_1" / "train")
    assert 30 < step < 120
    assert f"step {step}: asked to stop; this step is the last, and a checkpoint follows" in output
    assert f"step {step}: stopped, at a checkpoint" in output
    assert f"pretrain.py: stopped by {name}; what is finished is kept; the same command resumes" in output

    resumed = finish(start(corpus, name, tiny_encoder))
    assert f"step {step}: training goes on from its checkpoint" in resumed
    found, expected = (metrics_of(r)["iterations"][1] for r in (run, undisturbed))
    assert found["train"]["resumed_at"] == [step]
    assert found["history"] == expected["history"]
    assert weights_of(run) == weights_of(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "process", "settings"), [("actors", ACTOR, {"annotate__num_workers": "2"}), ("task", TASK, {})]
)
def test_outside_training_a_run_stops_at_once(
    corpus: Path, undisturbed: Path, tiny_encoder: Path, name: str, process: str, settings: dict[str, str]
) -> None:
    driver = start(corpus, name, tiny_encoder, **settings)
    wait_until(driver, lambda: processes(process, driver.pid))
    with frozen(processes(process, driver.pid)):  # who waited for them would wait for ever
        os.kill(driver.pid, signal.SIGTERM)
        assert "pretrain.py: stopped by SIGTERM; what is finished is kept" in finish(driver, 143)
    run = corpus / name / name
    assert not (run / "iteration_1" / "train").exists()
    finish(start(corpus, name, tiny_encoder))
    assert weights_of(run) == weights_of(undisturbed)
