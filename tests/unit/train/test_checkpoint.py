"""Checkpoints cut off, flipped or missing a file: all workers go on from the same one, the newest that is whole."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ray.train import Checkpoint

from infocse_ray.distributed.collectives import rank
from infocse_ray.storage.folder import Storage
from infocse_ray.train import checkpoint as checkpoint_module
from infocse_ray.train.checkpoint import Snapshot, damage, load_checkpoint
from infocse_ray.train.restore import drop_unreadable, newest_whole
from tests.unit.group import on_workers

NAMES = ["checkpoint_2026-01-01_10-00-00.000001", "checkpoint_2026-01-01_10-00-01.000001"]


def small_state() -> Any:
    backbone, head = torch.nn.Linear(3, 2), torch.nn.Identity()
    optimizer = torch.optim.AdamW(backbone.parameters())
    backbone(torch.ones(3)).sum().backward()
    optimizer.step()
    encoder: Any = torch.nn.Module()
    encoder.backbone, encoder.whitening = backbone, None
    return SimpleNamespace(encoder=encoder, head=head, optimizer=optimizer)


def write(folder: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint as that many workers write it."""
    folder.mkdir(parents=True)
    monkeypatch.setattr(checkpoint_module, "workers", lambda: workers)
    for number in reversed(range(workers)):
        # Each has a folder of its own, and Ray brings them together.
        own = folder / f"of-{number}"
        own.mkdir()
        lanes = {f"lane-{number}": torch.arange(4).numpy()}
        Snapshot.of(number, small_state(), lanes, {"step": 7, "best": 0.25}).write(own)
        for file in own.iterdir():
            file.rename(folder / file.name)
        own.rmdir()
    return folder


FILES = ["encoder.safetensors", "optimizer.pt", "progress.json", "lanes-00000.npz", "lanes-00001.npz"]


@pytest.mark.parametrize("name", [*FILES, "files-00000.json", "files-00001.json"])
def test_every_file_of_a_checkpoint_is_looked_at(tmp_path, monkeypatch, name):
    folder = write(tmp_path / "c", 2, monkeypatch)
    assert damage(folder) is None
    good = (folder / name).read_bytes()
    for place in (0, len(good) // 2, len(good) - 2):
        (folder / name).write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        assert (damage(folder) or "").startswith(name), place
    (folder / name).write_bytes(good[:-3])
    assert (damage(folder) or "").startswith(name)
    (folder / name).unlink()
    assert "is missing" in (damage(folder) or "")


def test_the_newest_whole_checkpoint_is_taken_and_the_damaged_named(tmp_path, monkeypatch):
    old, new = (write(tmp_path / name, 1, monkeypatch) for name in NAMES)
    (tmp_path / "checkpoint_2026-01-01_10-00-02.000001").mkdir()  # later than what Ray recorded
    offered = Checkpoint.from_directory(str(new))
    said: list[str] = []
    found = newest_whole(offered, said.append)
    assert found is not None
    assert found.path == str(new)
    assert said == []
    (new / "encoder.safetensors").write_bytes(b"cut off")
    found = newest_whole(offered, said.append)
    assert found is not None
    assert found.path == str(old)
    [line] = said
    assert f"the checkpoint {new} is damaged (encoder.safetensors: it has 7 bytes" in line
    (old / "progress.json").unlink()
    said.clear()
    assert newest_whole(offered, said.append) is None
    assert [line.split()[0:2] for line in said] == [["the", "checkpoint"], ["the", "checkpoint"], ["no", "checkpoint"]]


def test_a_checkpoint_that_ray_names_but_is_gone_is_passed_over(tmp_path, monkeypatch):
    old = write(tmp_path / NAMES[0], 1, monkeypatch)
    found = newest_whole(Checkpoint(str(tmp_path / NAMES[1])), lambda _: None)
    assert found is not None
    assert found.path == str(old)


def _choose(old: str, new: str) -> list[str]:
    # Worker 1 finds damage that worker 0 doesn't see, as where its copy of the checkpoint is damaged.
    own = restore_module()
    if rank() == 1:
        look = own.damage
        own.damage = lambda folder: "its copy is cut off" if str(folder) == new else look(folder)
    found = own.newest_whole(Checkpoint(new), lambda _: None)
    return [found.path if found else "none"]


def restore_module() -> Any:
    from infocse_ray.train import restore

    return restore


def test_workers_agree_although_one_alone_sees_the_damage(tmp_path, monkeypatch):
    old, new = (str(write(tmp_path / name, 2, monkeypatch)) for name in NAMES)
    assert on_workers(2, _choose, old, new) == [[old], [old]]


def test_a_record_of_checkpoints_that_ray_cannot_read_is_dropped_with_them(tmp_path, capsys):
    folder = Storage.open(str(tmp_path)) / "checkpoints"
    drop_unreadable(folder)
    record = folder / "checkpoint_manager_snapshot.json"
    record.write_bytes(b"{}")
    drop_unreadable(folder)
    assert record.exists()
    record.write_bytes(b'{"checkpoint_results": [')
    drop_unreadable(folder)
    assert not folder.exists()
    assert f"{record} is damaged" in capsys.readouterr().out


class Touches:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("name", ["optimizer.pt", "lanes-00000.npz"])
def test_nothing_of_a_checkpoint_is_unpickled(tmp_path, monkeypatch, name):
    folder, touched = write(tmp_path / "c", 1, monkeypatch), tmp_path / "touched"
    if name == "optimizer.pt":
        torch.save({"state": Touches(touched)}, folder / name)
    else:
        np.savez(folder / name, allow_pickle=True, lane=np.array([Touches(touched)], dtype=object))
    stream: Any = SimpleNamespace(restore=lambda lanes: None)
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        load_checkpoint(folder, small_state(), stream)
    assert not touched.exists()
