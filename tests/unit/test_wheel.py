"""The wheel: what it holds, and the command that it gives, away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel was installed to; what it depends on is this environment's."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "infocse_ray", source / "infocse_ray", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    built = subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, source], capture_output=True, text=True)
    if "No matching distribution found for setuptools" in built.stderr:
        pytest.skip("no package index, which building a wheel needs")
    assert built.returncode == 0, built.stderr
    [wheel] = folder.glob("infocse_ray-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", folder / "site", wheel], check=True)
    return folder / "site"


def run(installed: Path, tmp_path: Path, *command: str | Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_is_there_with_the_shipped_configurations(installed: Path, tmp_path: Path):
    command = installed / "bin" / "infocse"
    assert "pretrain" in run(installed, tmp_path, sys.executable, command, "--help")
    printed = run(installed, tmp_path, sys.executable, command, "pretrain", "--config", "paper", "--print_config")
    assert "batch_size: 3200" in printed


def test_it_is_not_the_checkout_that_runs(installed: Path, tmp_path: Path):
    code = "import infocse_ray; print(infocse_ray.__file__); from infocse_ray import Settings"
    assert run(installed, tmp_path, sys.executable, "-c", code).strip() == str(
        installed / "infocse_ray" / "__init__.py"
    )


def test_it_holds_the_package_and_nothing_beside_it(installed: Path):
    names = {file.name for file in installed.iterdir() if not file.name.endswith(".dist-info")}
    assert names == {"infocse_ray", "bin"}
    files = {str(file.relative_to(installed / "infocse_ray")) for file in (installed / "infocse_ray").rglob("*")}
    there = {str(file.relative_to(ROOT / "infocse_ray")) for file in (ROOT / "infocse_ray").rglob("*.*")}
    assert {name for name in there if not name.endswith(".pyc")} <= files
