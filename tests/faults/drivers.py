"""Jobs in processes of their own, to be killed, stopped and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infocse_ray.train.checkpoint import WHOLE
from infocse_ray.train.checkpoints import RAYS_RECORD
from tests.job_options import options_for

ROOT = Path(__file__).parents[2]


def start(
    folder: Path, name: str, encoder: Path, job: str = "pretrain", address: str = "local", **more: str
) -> subprocess.Popen[bytes]:
    """Start a job with the settings of `options_for`."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "jobs" / f"{job}.py"), *options_for(folder, name, encoder, **more)],
        # Ray Train as users have it, not as `tests/conftest.py` hurries it.
        env={name: value for name, value in os.environ.items() if not name.startswith("RAY_TRAIN_")}
        | {"RAY_ADDRESS": address, "INFOCSE_TRACEBACK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,  # what was not read as a line is left for `communicate`
        # As at a terminal: a group of its own, which Ctrl-C is for, and SIGINT not ignored.
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def finish(driver: subprocess.Popen[bytes], status: int = 0) -> str:
    """What a job has said once it has ended with `status`."""
    output = driver.communicate(timeout=900)[0].decode()
    assert driver.returncode == status, output
    return output


def wait_until(driver: subprocess.Popen[bytes], reached: Callable[[], object]) -> None:
    """Wait for what a job is to reach."""
    while not reached():
        assert driver.poll() is None, (driver.stdout.read() if driver.stdout else b"").decode()
        time.sleep(0.002)


def said(driver: subprocess.Popen[bytes], text: str) -> str:
    """Wait until a job says `text`; what it has said up to there."""
    assert driver.stdout is not None
    output = ""
    while text not in output:
        line = driver.stdout.readline().decode()
        assert line, output
        output += line
    return output


def kill_when(driver: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    """`kill -9` a job that has reached something."""
    wait_until(driver, reached)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()


def checkpoints(training: Path) -> dict[int, Path]:
    """The checkpoints that one process has written, or else Ray has recorded, by step; a restart takes the last."""
    folder = training / "checkpoints"
    try:
        snapshot = json.loads((folder / RAYS_RECORD).read_text())
    except FileNotFoundError:
        written = sorted(file.parent for file in folder.glob(f"checkpoint_0*/{WHOLE}"))  # not those of Ray, by date
        return {int(one.name.removeprefix("checkpoint_")): one for one in written}
    except json.JSONDecodeError:
        return {}
    return {one["metrics"]["step"]: folder / one["checkpoint_dir_name"] for one in snapshot["checkpoint_results"]}


def metrics_of(run: Path) -> dict[str, Any]:
    """A finished run's `metrics.json`."""
    return json.loads((run / "metrics.json").read_text())


def weights_of(run: Path) -> bytes:
    """A finished run's encoder."""
    return (run / "model" / "model.safetensors").read_bytes()
