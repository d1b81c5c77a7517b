"""A Lance output of which something was lost: it isn't searched, and the same command makes again what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from infocse_ray.embedding.lance_dataset import forget_lost
from infocse_ray.errors import DamagedFile
from infocse_ray.search.index import Index
from infocse_ray.stages.stage import look_again, unlike
from infocse_ray.storage.folder import Storage
from tests.unit.indexes import SHARDS, TEXTS, index_in, write_index

lance = pytest.importorskip("lance")


def made_again(folder: Path, encoder: Path) -> set[str]:
    """The descriptions of shards that are written anew when it is embedded again."""
    output = index_in(folder)
    fragments = output / "vectors" / "fragments"
    look_again()
    forget_lost(output / "vectors", output, sentences=True)
    before = {name: (fragments / name).read_bytes() for name in fragments.files()}
    write_index(folder, encoder, format="lance", sentences=True)
    return {name for name in fragments.files() if before.get(name) != (fragments / name).read_bytes()}


def vectors(output: Storage) -> dict[str, np.ndarray]:
    table = lance.dataset((output / "documents.lance").path).to_table()
    return dict(zip(table["doc_id"].to_pylist(), map(np.asarray, table["vector"].to_pylist()), strict=True))


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("how", ["a file", "part of a file", "all", "the versions"])
def test_what_is_lost_is_made_again_and_nothing_else(
    tmp_path: Path, tiny_encoder: Path, how: str, finished: bool, capsys
):
    output = write_index(tmp_path, tiny_encoder, format="lance", sentences=True)
    whole = vectors(output)
    data = output / "documents.lance" / "data"
    one = sorted(data.files())[0]
    if how == "a file":
        (data / one).delete()
    elif how == "part of a file":
        (data / one).write_bytes((data / one).read_bytes()[:50])
    else:
        (output / "documents.lance" / ("_versions" if how == "the versions" else "")).delete()
    if finished:
        with pytest.raises(DamagedFile, match=r"^index = '.*': .*documents.lance.* is damaged \(it .*\); run its `i"):
            Index(str(output))
    else:
        (output / "vectors" / "stage.json").delete()
    shards = {"all": SHARDS, "the versions": 0}.get(how, 1)
    assert len(made_again(tmp_path, tiny_encoder)) == shards
    assert ("shards are embedded again" in capsys.readouterr().out) == bool(shards)
    again = vectors(output)
    assert again.keys() == whole.keys()
    assert all(np.abs(again[name] - whole[name]).max() < 1e-6 for name in whole)
    assert len(Index(str(output), over="sentences").search("tide", top=20)) == sum(len(t.sentences) for t in TEXTS)
    assert made_again(tmp_path, tiny_encoder) == set()


def test_a_dataset_that_somebody_compacted_is_whole(tmp_path: Path, tiny_encoder: Path):
    output = write_index(tmp_path, tiny_encoder, format="lance", sentences=True)
    dataset = lance.dataset((output / "documents.lance").path)
    dataset.optimize.compact_files()
    dataset.cleanup_old_versions(retain_versions=1)
    assert made_again(tmp_path, tiny_encoder) == set()
    assert len(Index(str(output)).search("tide", top=20)) == len(TEXTS)
    [data] = (output / "documents.lance" / "data").files()
    (output / "documents.lance" / "data" / data).delete()
    assert len(made_again(tmp_path, tiny_encoder)) == SHARDS, "its first files are gone"
    assert len(Index(str(output)).search("tide", top=20)) == len(TEXTS)


def test_one_that_lance_can_not_open_is_not_taken_for_lost(tmp_path: Path, tiny_encoder: Path):
    output = write_index(tmp_path, tiny_encoder, format="lance", sentences=True)
    versions = output / "documents.lance" / "_versions"
    for name in versions.files():
        (versions / name).write_bytes(b"x")
    with pytest.raises(ValueError, match=r"^.*documents.lance can't be opened \(.*\); if it is damaged rem"):
        forget_lost(output / "vectors", output, sentences=True)


def test_a_file_whose_size_nobody_noted_has_to_be_there(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"123")
    there = Storage.open(str(tmp_path)).files()
    assert unlike({"a": None}, there) == {}
    assert unlike({"a": 3, "b": None}, there) == {"b": "it is missing"}
    assert unlike({"a": 4}, there) == {"a": "it has 3 bytes, not 4"}
