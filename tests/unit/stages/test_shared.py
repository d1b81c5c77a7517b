"""A stage isn't finished with files that the driver doesn't find."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.stages import shared
from infocse_ray.stages.shared import check_shared
from infocse_ray.storage.folder import Storage


def test_what_workers_wrote_must_be_found_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared, "_PATIENCE_SECONDS", 0.0)
    folder = Storage.open(str(tmp_path / "corpora")) / "f1"
    names = [f"documents/shard-{number}.parquet" for number in range(3)]
    for name in names:
        (folder / name).write_bytes(b"rows")
    check_shared(folder, iter(names))
    (folder / names[1]).delete()
    with pytest.raises(
        ValueError, match=r"^storage: workers wrote 1 file, such as .*f1/documents/shard-1.parquet, which"
    ):
        check_shared(folder, names)
    (folder / names[0]).delete()
    with pytest.raises(
        ValueError, match=r"wrote 2 files, such as .*shard-0.parquet, which .* mount one folder under this path"
    ):
        check_shared(folder, names)


def test_a_listing_that_lags_behind_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = Storage.open(str(tmp_path / "vectors"))
    monkeypatch.setattr(shared.time, "sleep", lambda _: (folder / "late").write_bytes(b""))
    check_shared(folder, ["late"])
    monkeypatch.setattr(shared, "_PATIENCE_SECONDS", 0.0)
    with pytest.raises(ValueError, match=r"^output: workers wrote 1 file"):
        check_shared(folder, ["never"], "output")
