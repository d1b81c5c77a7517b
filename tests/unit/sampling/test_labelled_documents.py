"""The documents of drawn labels: which are copied, lane by lane, and that they are dealt from the copy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from infocse_ray.corpus.schema import stable_hash
from infocse_ray.corpus.store import TokenStore
from infocse_ray.methods.label_sample import LabelSample, label_hashes
from infocse_ray.methods.labelled import Labelled
from infocse_ray.sampling import labelled_documents as module
from infocse_ray.sampling.labelled_documents import _copy, labelled_documents
from infocse_ray.sampling.stream import ExampleStream
from infocse_ray.storage.folder import Storage
from tests.unit.stores import SPEC, Written, counted, write_store

LANES = 4


def examples() -> list[Written]:
    """Of every split; every second document has two labels, the others none."""
    splits = ["train", "train", "valid", "test"]
    labels = [[[9, i % 200], [8, i % 200]] if i % 2 else [] for i in range(120)]
    return [Written(f"d{i}", [[5, 6], [7, i % 200]], (), labels[i], splits[i // 2 % 4]) for i in range(120)]


def drawn_from(written: list[Written], share: float) -> tuple[LabelSample, set[tuple[str, int]]]:
    """The first labels of the train split by hash, and which they are."""
    pairs = [(d.doc_id, stable_hash(repr(c))) for d in written if d.split == "train" for c in d.counterparts]
    names, keys = zip(*pairs, strict=True)
    hashes = label_hashes(3, np.array([stable_hash(name) for name in names]), np.array(keys))
    last = int(np.sort(hashes)[int(share * len(hashes)) - 1])
    return LabelSample(3, last), {pair for pair, one in zip(pairs, hashes, strict=True) if one <= last}


@pytest.mark.parametrize("group", [2, 1000])
def test_the_drawn_are_there_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int):
    monkeypatch.setattr(module, "ROW_GROUP_DOCUMENTS", group)
    written = examples()
    store = write_store(Storage.open(str(tmp_path / "store")), written, 2 * LANES)
    store = TokenStore(store.folder, "f", store.summary | {"lanes": LANES})
    sample, expected = drawn_from(written, 0.25)
    folder = Storage.open(str(tmp_path / "copy"))
    counts = _copy(pa.table({"lane": range(LANES)}), store, sample, folder)["counts"].to_pylist()
    source = labelled_documents(store, folder, "f")
    names = {stable_hash(d.doc_id): d.doc_id for d in written}
    found, lanes = set(), []
    for lane in range(LANES):
        theirs = {
            names[key]
            for shard in (lane, lane + LANES)
            for t in store.read(shard, ["train"])
            for key in t["key"].to_pylist()
        }
        mine = set()
        with source.open(lane) as opened:
            for number in opened.groups():
                documents = opened.read(number)
                assert len(documents.keys) <= group
                assert documents.counterparts is not None
                rows, keys, _ = documents.counterparts
                kept = sample.has(documents.keys[rows], keys)
                owners = documents.keys[rows[kept]].tolist()
                mine |= {(names[owner], key) for owner, key in zip(owners, keys[kept].tolist(), strict=True)}
        assert {name for name, _ in mine} <= theirs, "a document keeps its lane"
        found |= mine
        lanes.append(f"[{lane}, {len(mine)}, {len({name for name, _ in mine})}]")
    assert found == expected
    assert len(found) > 5
    assert sorted(counts) == lanes

    method = Labelled(sample, 1.0, False, SPEC)
    stream = ExampleStream(counted(source, method), method, len(expected), 1)
    batch = stream.next_batch()
    dealt = sorted(batch.doc_ids)
    assert dealt == sorted(name for name, _ in expected), "a pass deals each once"


def test_a_lane_without_a_document_to_train_on_is_an_empty_file(tmp_path: Path):
    written = [Written(f"d{i}", [[5], [6]], (), [[9]], "valid" if i % 2 else "train") for i in range(8)]
    store = write_store(Storage.open(str(tmp_path / "store")), written, 2)
    store = TokenStore(store.folder, "f", store.summary | {"lanes": 2})
    folder = Storage.open(str(tmp_path / "copy"))
    counts = _copy(pa.table({"lane": [0, 1]}), store, LabelSample(0, None), folder)["counts"].to_pylist()
    assert counts == ["[0, 4, 4]", "[1, 0, 0]"]
    with labelled_documents(store, folder, "f").open(1) as opened:
        assert opened.groups() == []
