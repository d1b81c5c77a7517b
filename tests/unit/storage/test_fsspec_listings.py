"""A storage of fsspec whose filesystem keeps listings: what other processes write and remove is seen all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from infocse_ray.stages.lease import Lease
from infocse_ray.storage.folder import Storage


class Keeping(MemoryFileSystem):
    """Keeps listings and answers from them, as the filesystems of object stores do."""

    protocol = "keeping"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    find = AbstractFileSystem.find
    isfile = AbstractFileSystem.isfile

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return MemoryFileSystem._strip_protocol(path.removeprefix("keeping:/"))

    def ls(self, path: str, detail: bool = True, **named: Any) -> Any:
        path = self._strip_protocol(path)
        listed: Any = self.dircache[path] if path in self.dircache else super().ls(path, detail=True)
        self.dircache[path] = listed
        return listed if detail else [one["name"] for one in listed]

    def info(self, path: str, **named: Any) -> dict[str, Any]:
        known: Any = self._ls_from_cache(self._strip_protocol(path))
        return known[0] if known and known[0]["type"] == "file" else super().info(path, **named)

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.clear()


class Elsewhere(Keeping):
    """The same storage, as another machine has it."""

    protocol = "elsewhere"


@pytest.fixture
def root() -> Iterator[Storage]:
    fsspec.register_implementation("keeping", Keeping, clobber=True)
    Keeping().invalidate_cache()
    yield Storage.open("keeping://bucket/runs")
    Keeping.store.clear()


def test_what_others_write_and_remove_is_seen(root: Storage):
    (root / "stages" / "a.json").write_bytes(b"{}")
    assert root.files().keys() == {"stages/a.json"}
    other = Elsewhere()
    other.pipe("/bucket/runs/stages/b.json", b"b")
    assert root.files().keys() == {"stages/a.json", "stages/b.json"}
    assert (root / "stages" / "b.json").exists()
    other.rm("/bucket/runs/stages/a.json")
    assert not (root / "stages" / "a.json").exists()


def test_a_lease_of_another_driver_is_seen(root: Storage):
    assert not (root / "driver.lease").exists()
    root.files()
    with Lease(root / "driver.lease", "this", settle=0.0) as lease:
        lease.take()
        root.files()
        Elsewhere().rm("/bucket/runs/driver.lease")
        assert "was removed" in lease._taken()


def test_a_listing_that_was_kept_before_is_dropped(root: Storage):
    (root / "a").write_bytes(b"")
    filesystem = Keeping()
    filesystem.dircache.use_listings_cache = True
    filesystem.ls("/bucket/runs")
    Elsewhere().pipe("/bucket/runs/b", b"")
    assert Storage.open("keeping://bucket/runs").files().keys() == {"a", "b"}
