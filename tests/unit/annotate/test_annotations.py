"""What annotating counts as it writes: the examples that reading the annotations gives, without reading them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.annotate.annotations import read_counts, read_examples, read_whole
from infocse_ray.annotate.stage import _added
from infocse_ray.corpus.store import TokenStore, shard_name
from infocse_ray.errors import DamagedFile
from infocse_ray.methods.method import Method
from infocse_ray.sampling import examples
from infocse_ray.sampling.examples import count_examples
from infocse_ray.sampling.shards import Shards
from infocse_ray.settings import Annotate
from infocse_ray.stages import shared
from infocse_ray.storage.folder import Storage
from tests.unit.passes import SPLITS, small_store
from tests.unit.stores import counted, idc
from tests.unit.trainees import method_for

SECTIONS = [{"k": 1}, {"k": 2}, {"clustering": "kmeans", "kmeans_clusters": 3}]
LANES = 3


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    """Six shards in three lanes, with copies."""
    made = small_store(tmp_path / "store", count=60)
    return made._replace(summary=made.summary | {"lanes": LANES})


def source_of(store: TokenStore, folder: Path) -> Shards:
    source = Shards(store.folder / "documents", "f", store.shards, LANES, SPLITS)
    return source._replace(annotations=Storage.open(str(folder)))


def read_again(source: Shards, method: Method, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `count_examples` gives where nothing is known, in this process."""

    def here(source: Shards, work: Any, method: Method) -> Any:
        packs = examples.pa.table({"shards": [[shard] for shard in range(source.shards)]})
        return ({"counts": one} for one in work(packs, source, method)["counts"].to_pylist())

    with monkeypatch.context() as patched:
        patched.setattr(examples, "over_shards", here)
        patched.setattr(examples, "read_examples", lambda *_: None)
        return count_examples(source, method, "counting")


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_counts_are_those_of_reading(passes, tmp_path, monkeypatch, store, section):
    passes.annotate(store, tmp_path / "out", Annotate.model_validate(section))
    source, method = source_of(store, tmp_path / "out"), idc(cosine=True)
    expected = read_again(source, method, monkeypatch)
    monkeypatch.setattr(examples, "over_shards", lambda *_, **__: pytest.fail("annotations are read"))
    assert count_examples(source, method, "counting") == expected
    assert expected["examples_by_lane"] == counted(source, method).by_lane.tolist()
    assert len(set(expected["examples_by_lane"])) > 1
    assert min(expected["examples"], expected["documents"]) > 10


def test_texts_that_annotating_told_apart_otherwise_are_counted_by_reading(passes, tmp_path, store, monkeypatch):
    annotations = Storage.open(str(tmp_path / "out"))
    passes.annotate(store, tmp_path / "out", Annotate())
    assert read_examples(annotations, 14) is not None
    assert read_examples(annotations, 3) is None, "where sentences are cut shorter, more are copies"
    other = small_store(tmp_path / "other", shift=9, count=60)
    passes.annotate(store, tmp_path / "theirs", Annotate(), encoder_store=other)
    assert read_examples(Storage.open(str(tmp_path / "theirs")), 14) is None, "copies of another tokenizer's"
    monkeypatch.setattr(examples, "over_shards", lambda *_, **__: iter(()))
    source = source_of(store, tmp_path / "out")
    assert not count_examples(source, idc(sentence_tokens=3), "counting")["examples"], "tasks were asked"
    assert not count_examples(source, method_for("simcse"), "counting")["examples"], "tasks were asked"


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_a_shard_that_was_written_is_skipped_unread_and_checked_when_it_is_read(passes, tmp_path, store, section):
    out, settings = tmp_path / "out", Annotate.model_validate(section)
    whole = passes.annotate(store, out, settings)
    file = out / "shard-000002.parquet"
    content = bytearray(file.read_bytes())
    content[4] ^= 1  # of the first row group
    file.write_bytes(content)
    assert passes.annotate(store, out, settings) == whole, "nobody has read it"
    assert read_counts(Storage.open(str(file)))["shard"] == 2
    with pytest.raises(DamagedFile, match="shard-000002"):
        read_whole(Storage.open(str(file)))


def test_annotations_that_the_driver_does_not_find_are_none(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "_PATIENCE_SECONDS", 0.0)
    folder = Storage.open(str(tmp_path))
    (folder / shard_name(1)).write_bytes(b"")
    documents: Any = SimpleNamespace(store=SimpleNamespace(summary={"lanes": 2}), count=0, shards=[1, 3])
    with pytest.raises(ValueError, match=r"storage: workers wrote 1 file, such as .*/shard-000003"):
        _added([], documents, folder, "annotating")
    (folder / shard_name(3)).write_bytes(b"")
    assert _added([], documents, folder, "annotating") == {"cluster_sizes": {}}
