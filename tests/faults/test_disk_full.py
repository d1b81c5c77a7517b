"""A disk that is really full: the job ends in one line that names path and need; after room is made it goes on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infocse_ray.commands.job import run_job
from infocse_ray.loop import iteration_stages
from infocse_ray.loop.infocse import pretrain
from infocse_ray.loop.prepared import prepare_corpus
from infocse_ray.settings import Settings
from infocse_ray.settings.commands import Prepare
from tests.conftest import make_documents, write_jsonl

pytestmark = pytest.mark.usefixtures("ray_cluster")

ROOT = Path(__file__).parents[2]
NEED = r"no space left: [\d,]+ bytes to write, [\d,]+ free; make room, then the same command goes on"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of 4 MiB."""
    monkeypatch.delenv("INFOCSE_TRACEBACK", raising=False)
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("mounting a small disk takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, but: int) -> None:
    """Leave so many bytes free."""
    (disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free - but))


def said_on_failing(run: Callable[[], object], capfd: pytest.CaptureFixture[str]) -> str:
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 1
    said = capfd.readouterr().err
    assert "Traceback" not in said
    (line,) = (line for line in said.splitlines() if "error" in line)
    return line


def test_preparing_goes_on_after_room_is_made(
    disk: Path, tmp_path: Path, tiny_encoder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", make_documents(600))
    options = {"storage": disk / "runs", "model": tiny_encoder, "corpus.source": corpus, "corpus.lanes": 2}
    argv = [part for name, value in options.items() for part in (f"--{name}", str(value))]

    def prepare() -> None:
        run_job(Prepare, argv, "prepare.py", "", prepare_corpus)

    fill(disk, but=4 * os.sysconf("SC_PAGE_SIZE"))  # enough for notes, not for a shard
    said = said_on_failing(prepare, capfd)
    assert re.match(rf"prepare.py: error: {disk}/runs/corpora/\w+/sorting/\w+/[\w-]+(.json)?: {NEED}$", said)
    assert not list(disk.rglob("stage.json"))
    (disk / "filler").unlink()
    prepare()
    assert "token store: " in capfd.readouterr().out
    assert list(disk.rglob("stage.json"))


@pytest.mark.slow
def test_training_goes_on_after_room_is_made(
    disk: Path,
    tmp_path: Path,
    tiny_encoder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {
        "name": "run",
        "storage": disk,
        "encoder.model": tiny_encoder,
        "encoder.max_length": 16,
        "corpus.source": write_jsonl(tmp_path / "c.jsonl", make_documents(80)),
        "corpus.lanes": 2,
        "corpus.valid_fraction": 0.3,
        "train.batch_size": 8,
        "train.max_steps": 4,
        "train.checkpoint_every": 1,
        "train.max_failures": 0,
        "train.similarity": "cosine",
        "validate.every": 4,
        "loop.max_iterations": 1,
        "loop.initialization": "none",
    }
    argv = [part for name, value in settings.items() for part in (f"--{name}", str(value))]

    def run() -> dict:
        return run_job(Settings, argv, "pretrain.py", "", pretrain)

    train = iteration_stages.train

    def train_on_a_full_disk(*arguments):
        fill(disk, but=64 * 2**10)  # enough for what Ray Train notes, not for a checkpoint
        return train(*arguments)

    with monkeypatch.context() as full:
        full.setattr(iteration_stages, "train", train_on_a_full_disk)
        said = said_on_failing(run, capfd)
    assert re.match(rf"pretrain.py: error: {disk}/run/iteration_1/train: {NEED}$", said)
    (disk / "filler").unlink()
    annotated = {file: file.stat().st_mtime_ns for file in (disk / "run/iteration_1/annotations").rglob("*")}
    assert run()["iterations"][1]["train"]["steps"] == 4
    for file, before in annotated.items():
        assert file.stat().st_mtime_ns == before, "annotated twice"
    assert (disk / "run/model/model.safetensors").exists()
