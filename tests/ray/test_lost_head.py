"""The head dies with all that it runs: Ray ends the driver, and the last line of that says why."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil

from tests.own_ray import own_ray

ROOT = Path(__file__).parents[2]
DRIVER = """
import time
from infocse_ray.runtime.cluster import connect
connect()
print("joined", flush=True)
time.sleep(300)
"""


def kill_head(port: str) -> None:
    """`kill -9` the processes of this process's own Ray that are, or ask, the head at a port."""
    killed = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words and words[0].endswith(("/gcs_server", "/raylet")) and any(port in word for word in words):
                process.kill()
                killed.append(Path(words[0]).name)
    assert sorted(killed) == ["gcs_server", "raylet"]


def test_a_driver_says_that_its_head_is_lost_before_ray_ends_it(tmp_path: Path) -> None:
    with own_ray(tmp_path, "--num-cpus=1") as environment:
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER],
            cwd=ROOT,
            # Ray waits for it a minute, unless told otherwise.
            env=environment | {"RAY_gcs_rpc_server_reconnect_timeout_s": "18"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert driver.stdout is not None
        assert driver.stdout.readline() == "joined\n"
        port = environment["RAY_ADDRESS"].rpartition(":")[2]
        kill_head(port)
        said = driver.communicate(timeout=100)[0]
    assert driver.returncode == 1, said
    [line] = said.splitlines()
    assert line.startswith("infocse: error: Ray's head at ")
    assert f":{port} doesn't answer any more (" in line
    assert line.endswith("; what is finished is kept, and the same command goes on once a Ray is there")
