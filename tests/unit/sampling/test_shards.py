"""A shard of annotations joined with the token store's: whose clusters they are, and what doesn't belong together."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from infocse_ray.corpus.store import TokenStore
from infocse_ray.errors import DamagedFile
from infocse_ray.sampling.shards import Shards
from infocse_ray.settings import Annotate
from infocse_ray.storage.checksums import MARK
from infocse_ray.storage.folder import Storage
from tests.unit.passes import SPLITS, Passes, small_store, written_clusters
from tests.unit.stores import Written, write_annotations, write_store


def source_of(store: TokenStore, annotations: Path) -> Shards:
    source = Shards(store.folder / "documents", "f", store.shards, store.shards, SPLITS)
    return source._replace(annotations=Storage.open(str(annotations)))


def test_documents_are_read_with_the_clusters_that_were_written(passes: Passes, tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    passes.annotate(store, tmp_path / "out", Annotate(k=1))
    written, source = written_clusters(store, tmp_path / "out"), source_of(store, tmp_path / "out")
    plain = source._replace(annotations=None)
    seen: dict[int, list[int]] = {}
    for shard in range(store.shards):
        with source.open(shard) as opened, plain.open(shard) as alone:
            assert opened.groups() == list(range(len(alone.groups())))
            for group, place in zip(opened.groups(), alone.groups(), strict=True):
                documents, own = opened.read(group), alone.read(place)
                assert own.clusters is None
                assert documents.clusters is not None
                assert documents.doc_ids.equals(own.doc_ids)
                assert documents.sentences.values.tolist() == own.sentences.values.tolist()
                assert opened.documents(group) == alone.documents(place) == len(documents.keys)
                for row, key in enumerate(documents.keys.tolist()):
                    seen[key] = documents.clusters[slice(*documents.offsets[row : row + 2])].tolist()
    assert seen == written
    assert len(seen) == store.documents(SPLITS) < sum(store.summary["documents"].values())


def test_clusters_take_no_room_for_tokens(passes: Passes, tmp_path: Path) -> None:
    documents = [Written(f"d{i}", np.random.default_rng(i).integers(5, 60, (20, 200)).tolist()) for i in range(8)]
    store = write_store(Storage.open(str(tmp_path / "store")), documents, 1)
    passes.annotate(store, tmp_path / "out", Annotate(k=1))
    tokens, clusters = (store.shard(0), Storage.open(str(tmp_path / "out" / "shard-000000.parquet")))
    assert len(clusters.read_bytes()) < len(tokens.read_bytes()) / 5


def read_all(source: Shards) -> None:
    with source.open(0) as opened:
        for group in opened.groups():
            opened.read(group)


DOCUMENTS = [Written(f"d{i}", [[5], [6], [7 + i]], [0, 0, 1]) for i in range(7)]
OTHERS = {
    "another id": [DOCUMENTS[0]._replace(doc_id="x"), *DOCUMENTS[1:]],
    "another order": [DOCUMENTS[2], DOCUMENTS[1], DOCUMENTS[0], *DOCUMENTS[3:]],
    "another number of sentences": [Written("d0", [[5], [6]], [0, 0]), *DOCUMENTS[1:]],
    "fewer row groups": DOCUMENTS[:6],
}


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS.keys())
def test_clusters_of_other_documents_are_refused_and_made_again(tmp_path: Path, others: list[Written]) -> None:
    source = write_annotations(Storage.open(str(tmp_path / "own")), DOCUMENTS, 1, 1)
    write_annotations(Storage.open(str(tmp_path / "other")), others, 1, 1)
    file = tmp_path / "own" / "annotations" / "shard-000000.parquet"
    shutil.copy(tmp_path / "other" / "annotations" / file.name, file)
    with pytest.raises(DamagedFile, match=r"own/annotations/shard-000000.* of other documents than the token store's"):
        read_all(source)
    assert Path(f"{file}{MARK}").exists(), "its stage makes it again"
