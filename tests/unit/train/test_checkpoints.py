"""One process's own checkpoints: the last two, the last whole one offered, to Ray Train's workers, too."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow.fs as pafs
import pytest
import ray.train

from infocse_ray.errors import NoSpace
from infocse_ray.storage.folder import Storage
from infocse_ray.train import checkpoints as module
from infocse_ray.train.checkpoint import damage
from infocse_ray.train.checkpoints import OfOneProcess, OfRayTrain
from infocse_ray.train.restore import newest_whole
from tests.unit.train.test_checkpoint import write


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole checkpoint of one worker, in a local folder."""
    return write(tmp_path / "part", 1, monkeypatch)


def steps(stage: Path) -> list[int]:
    """Of the checkpoints that are kept."""
    return sorted(int(folder.name.removeprefix("checkpoint_")) for folder in (stage / "checkpoints").iterdir())


def test_the_last_two_are_kept_and_the_last_is_offered(tmp_path: Path, part: Path) -> None:
    kept = OfOneProcess(Storage.open(str(tmp_path / "stage")))
    assert kept.last() is None
    for step in (9, 10, 100):
        kept.add(part, step)
    assert steps(tmp_path / "stage") == [10, 100]
    found = kept.last()
    assert found is not None
    assert Path(found.path).name == "checkpoint_000000000100"
    assert damage(Path(found.path)) is None


def test_what_is_written_after_damaged_ones_takes_their_place(tmp_path: Path, part: Path) -> None:
    stage = tmp_path / "stage"
    kept = OfOneProcess(Storage.open(str(stage)))
    for step in (1000, 1500):
        kept.add(part, step)
        weights = stage / "checkpoints" / f"checkpoint_{step:012d}" / "encoder.safetensors"
        weights.write_bytes(b"x" + weights.read_bytes()[1:-1])
    offered = kept.last()
    assert offered is not None
    assert newest_whole(offered, lambda _: None) is None
    kept.add(part, 500)
    assert steps(stage) == [500]
    found = kept.last()
    assert found is not None
    assert damage(Path(found.path)) is None


def test_one_that_is_cut_off_is_not_offered_and_makes_room_for_the_next(
    tmp_path: Path, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = OfOneProcess(Storage.open(str(tmp_path / "stage")))
    kept.add(part, 3)
    copied: list[str] = []
    copy = pafs.copy_files

    def copy_some(source: str, *more: object, **named: object) -> None:
        copied.append(Path(source).name)
        if len(copied) == len(list(part.iterdir())):
            raise SystemExit("the process ends here")
        copy(source, *more, **named)

    monkeypatch.setattr(module.pafs, "copy_files", copy_some)
    with pytest.raises(SystemExit, match="ends here"):
        kept.add(part, 6)
    assert copied[-1] == "files-00000.json", "what says that it is whole comes last"
    assert steps(tmp_path / "stage") == [3, 6]
    found = kept.last()
    assert found is not None
    assert found.path.endswith("_000000000003")
    monkeypatch.setattr(module.pafs, "copy_files", copy)
    kept.add(part, 9)
    assert steps(tmp_path / "stage") == [3, 9]


def test_what_is_left_of_a_damaged_one_of_the_same_step_is_replaced(tmp_path: Path, part: Path) -> None:
    kept = OfOneProcess(Storage.open(str(tmp_path / "stage")))
    kept.add(part, 3)
    place = tmp_path / "stage" / "checkpoints" / "checkpoint_000000000003"
    (place / "lanes-00007.npz").write_bytes(b"of other workers")
    kept.add(part, 3)
    assert not (place / "lanes-00007.npz").exists()


def test_ray_trains_workers_go_on_from_it_until_ray_has_one(
    tmp_path: Path, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Storage.open(str(tmp_path / "stage"))
    OfOneProcess(stage).add(part, 3)
    monkeypatch.setattr(ray.train, "get_checkpoint", lambda: None)
    found = OfRayTrain(stage).last()
    assert found is not None
    assert found.path.endswith("_000000000003")
    # Ray's comes after it, and should it be damaged, this one is before it.
    rays = write(tmp_path / "stage" / "checkpoints" / "checkpoint_2026-01-01_10-00-00.000001", 1, monkeypatch)
    monkeypatch.setattr(ray.train, "get_checkpoint", lambda: ray.train.Checkpoint(str(rays)))
    offered = OfRayTrain(stage).last()
    assert offered is not None
    assert offered.path == str(rays)
    (rays / "progress.json").unlink()
    whole = newest_whole(offered, lambda _: None)
    assert whole is not None
    assert whole.path == found.path


def test_a_full_disk_is_told_and_not_filled_with_a_part(
    tmp_path: Path, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = OfOneProcess(Storage.open(str(tmp_path / "stage")))
    kept.add(part, 3)

    def full(source: str, target: str, *_: object, **__: object) -> None:
        Path(target).write_bytes(b"what still had room")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.pafs, "copy_files", full)
    with pytest.raises(NoSpace, match=r"/stage: no space left"):
        kept.add(part, 6)
    assert steps(tmp_path / "stage") == [3]
