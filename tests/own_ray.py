"""A Ray beside the one that tests share: `ray start --head` as a child, with its own ports, folder and token."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

RAY = str(Path(sys.executable).with_name("ray"))


@contextlib.contextmanager
def own_ray(home: Path, *arguments: str, port: int | None = None, **variables: str) -> Iterator[dict[str, str]]:
    """Start a head, yield the environment in which commands find it and its token, and end it.

    Args:
        home: a folder that the commands take for the user's, so that `~/.ray/auth_token` is made there.
        arguments: for `ray start`, after `--head --block`.
        port: of the head; None for a free one.
        variables: added to the environment of the head, not to what is yielded.
    """
    port, dashboard, agent = port or free_port(), free_port(), free_port()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environment |= {"HOME": str(home), "RAY_AUTH_MODE": "token"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    token = home / ".ray" / "auth_token"
    token.parent.mkdir(exist_ok=True)
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    # Sockets' paths are limited to about 100 characters, which pytest's folders leave nothing of.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        log = home / "ray-start.log"
        command = [RAY, "start", "--head", "--block", "--disable-usage-stats"]
        command += [f"--temp-dir={folder}", f"--port={port}", f"--dashboard-port={dashboard}"]
        command += [f"--dashboard-agent-listen-port={agent}"]
        command += [f"--ray-client-server-port={free_port()}", "--object-store-memory=100000000", *arguments]
        with log.open("wb") as output:
            head = psutil.Popen(command, env=environment | variables, stdout=output, stderr=subprocess.STDOUT)
        try:
            _await_answer(head, dashboard, log)
            yield environment | {
                "RAY_ADDRESS": f"127.0.0.1:{port}",
                "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}",
            }
        finally:
            _end(head)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await_answer(head: psutil.Popen, port: int, log: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        assert head.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise TimeoutError(log.read_text())


def _end(head: psutil.Popen) -> None:
    """Kill the head and all that descends from it; `ray stop` would end every Ray of the machine."""
    processes = [*head.children(recursive=True), head] if head.is_running() else []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=20)
