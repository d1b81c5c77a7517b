"""Vectors in an object store: written there by the workers' code, committed, searched where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.search.index import Index
from infocse_ray.storage.folder import Storage
from tests.faults.s3_server import s3_server
from tests.unit import indexes

pytest.importorskip("moto")
pytest.importorskip("lance")


@pytest.mark.parametrize("settings", [{"format": "lance"}, {"precision": "int8"}], ids=["lance", "parquet"])
def test_an_index_in_s3_is_searched_there(tmp_path: Path, tiny_encoder: Path, monkeypatch, settings):
    with s3_server() as server:
        there = Storage.open(server.uri(f"bucket/{tmp_path.name}"))
        monkeypatch.setattr(indexes, "index_in", lambda _: there)
        indexes.write_index(tmp_path, tiny_encoder, sentences=True, **settings)
        hit = Index(there.uri, over="sentences").search("A comet near the star.", top=1)[0]
        assert (hit.doc_id, hit.number) == ("sky", 1)
        index = Index(there.uri, words=0.9)
        assert len(index) == len(indexes.TEXTS)
        assert [(hit.doc_id, hit.words is not None) for hit in index.search("butter", top=1)] == [("kitchen", True)]
