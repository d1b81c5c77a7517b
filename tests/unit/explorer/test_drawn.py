"""Documents that are drawn and found."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.corpus.schema import shard_of, stable_hash
from infocse_ray.explorer import drawn
from infocse_ray.explorer.drawn import draw, find
from infocse_ray.storage.folder import Storage
from tests.unit.stores import Written, write_store


@pytest.fixture
def documents(tmp_path: Path) -> TrainingDocuments:
    """60 documents where their hashes put them, one in five to validate on."""
    written = [Written(f"d{i}", [[5, 6], [7, i + 5]], split="valid" if i % 5 == 0 else "train") for i in range(60)]
    shards: list[list[Written]] = [[] for _ in range(4)]
    for one in written:
        shards[shard_of(stable_hash(one.doc_id), 4)].append(one)
    nowhere = Written("", [], split="none")
    most = max(map(len, shards))
    dealt = [shard[i] if i < len(shard) else nowhere for i in range(most) for shard in shards]
    return TrainingDocuments(write_store(Storage.open(str(tmp_path)), dealt, 4), ["train", "test"])


def test_a_seed_draws_the_same_documents_and_another_others(documents):
    ids = {seed: [one.doc_id for one in draw(documents, 12, seed)] for seed in range(8)}
    assert all(len(set(one)) == 12 for one in ids.values())
    assert [one.doc_id for one in draw(documents, 12, 3)] == ids[3]
    assert len({tuple(one) for one in ids.values()}) > 1


def test_all_training_documents_where_there_are_no_more(documents):
    found = draw(documents, 1_000, 1)
    assert sorted(one.doc_id for one in found) == sorted(f"d{i}" for i in range(60) if i % 5)
    assert all(one.shard == shard_of(one.key, 4) and not one.named for one in found)
    assert draw(documents, 0, 1) == []


def test_documents_by_id(documents):
    found, missing = find(documents, ["d7", "no such", "d3", "d7", "d10"])
    assert [one.doc_id for one in found] == ["d7", "d3"]
    assert all(one.named for one in found)
    assert missing == ["no such", "d10"]  # the last isn't trained on
    assert found[0].sentences.values.tolist() == [5, 6, 7, 12]


def test_a_long_document_is_cut(documents, monkeypatch):
    monkeypatch.setattr(drawn, "MOST_SENTENCES", 1)
    [one], _ = find(documents, ["d7"])
    assert len(one.sentences) == 1
    assert one.sentences_in_all == 2
