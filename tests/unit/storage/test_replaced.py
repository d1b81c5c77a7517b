"""A folder that is replaced is read whole: the old one or the new."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.storage.folder import Storage
from infocse_ray.storage.replaced import replace_folder

KEY = "config.json"


@pytest.fixture(params=["local", "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    root = str(tmp_path / "runs") if request.param == "local" else f"memory://{uuid.uuid4().hex}/runs"
    return Storage.open(root) / "news" / "model"


def files(folder: Path, what: str, *names: str) -> dict[str, Path]:
    """Local files that say what they are of."""
    made = {name: folder / what / name for name in names}
    for name, file in made.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{what} {name}")
    return made


def content(target: Storage) -> dict[str, str]:
    return {name: (target / name).read_bytes().decode() for name in target.files(unfinished=True)}


def test_the_new_files_take_the_place_of_the_old(target: Storage, tmp_path: Path):
    replace_folder(target, files(tmp_path, "old", KEY, "weights", "1_Pooling/config.json", "vocab.txt"), KEY)
    assert content(target)["1_Pooling/config.json"] == "old 1_Pooling/config.json"
    replace_folder(target, files(tmp_path, "new", KEY, "weights", "2_Dense/config.json"), KEY)
    assert content(target) == {name: f"new {name}" for name in (KEY, "weights", "2_Dense/config.json")}
    beside = Storage(target.root, "news").files(unfinished=True)
    assert all(name.startswith("model/") for name in beside), "nothing else is left"


def test_readers_find_the_old_folder_or_the_new_or_none(target: Storage, tmp_path: Path, monkeypatch):
    names = (KEY, "a", "weights")
    replace_folder(target, files(tmp_path, "old", *names), KEY)
    seen: list[dict[str, str]] = []
    for kind in ("write_bytes", "delete"):
        real = getattr(Storage, kind)

        def watched(self: Storage, *given: Any, real: Any = real) -> None:
            real(self, *given)
            seen.append(content(target))

        monkeypatch.setattr(Storage, kind, watched)
    replace_folder(target, files(tmp_path, "new", *names), KEY)
    monkeypatch.undo()
    assert len(seen) > 3
    for found in seen:
        assert KEY not in found or len({text.split()[0] for text in found.values()}) == 1, found
        assert KEY not in found or found.keys() == {*names}
    assert seen[-1] == content(target) == {name: f"new {name}" for name in names}


def test_what_cannot_take_its_place_gives_it_back(tmp_path: Path, monkeypatch):
    target = Storage.open(str(tmp_path / "runs")) / "model"
    replace_folder(target, files(tmp_path, "old", KEY), KEY)
    real, names = os.rename, []

    def rename(source: str, to: str) -> None:
        names.append(source)
        if len(names) == 2:
            raise OSError(5, "Input/output error")
        real(source, to)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OSError, match="Input/output"):
        replace_folder(target, files(tmp_path, "new", KEY), KEY)
    assert content(target) == {KEY: f"old {KEY}"}


def test_what_cannot_be_written_leaves_the_old_folder_as_it_was(tmp_path: Path, monkeypatch):
    target = Storage.open(str(tmp_path / "runs")) / "model"
    replace_folder(target, files(tmp_path, "old", KEY, "weights"), KEY)
    real = Storage.write_bytes

    def full(self: Storage, data: bytes, *given: Any) -> None:
        if self.name == "weights":
            raise OSError(28, "No space left on device")
        real(self, data, *given)

    monkeypatch.setattr(Storage, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        replace_folder(target, files(tmp_path, "new", KEY, "weights"), KEY)
    assert content(target) == {KEY: f"old {KEY}", "weights": "old weights"}
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["model"]


@pytest.mark.parametrize("linked", [True, False])
def test_what_is_to_stay_stays(target: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool):
    def refuse(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    if not linked:
        monkeypatch.setattr(os, "link", refuse)
    replace_folder(target, files(tmp_path, "old", KEY, "weights", "mine/notes.txt", "vocab.txt"), KEY)
    new = files(tmp_path, "new", KEY, "weights")
    replace_folder(target, new, KEY, keep=["mine/notes.txt", "weights"])
    assert content(target) == {KEY: f"new {KEY}", "weights": "new weights", "mine/notes.txt": "old mine/notes.txt"}
