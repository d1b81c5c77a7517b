"""A Lance dataset written by several hands and committed once, on disk and in an object store."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.embedding.lance_dataset import dataset_place, require_lance
from infocse_ray.settings.embed import Embed
from infocse_ray.storage.folder import Storage
from tests.unit.indexes import TEXTS, write_index

lance = pytest.importorskip("lance")


def test_it_is_there_with_all_shards_or_not_at_all(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    import infocse_ray.embedding.lance_dataset as module

    with monkeypatch.context() as patched:
        patched.setattr(module.LanceWriter, "commit", lambda *_: pytest.fail("stopped here", pytrace=False))
        with pytest.raises(pytest.fail.Exception):
            write_index(tmp_path, tiny_encoder, format="lance", sentences=True)
    uri = str(tmp_path / "index" / "documents.lance")
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(uri)
    output = write_index(tmp_path, tiny_encoder, format="lance", sentences=True)
    rows = lance.dataset(uri).to_table().to_pylist()
    assert sorted(row["doc_id"] for row in rows) == sorted(text.doc_id for text in TEXTS)
    assert lance.dataset((output / "sentences.lance").path).count_rows() == sum(len(t.sentences) for t in TEXTS)


def test_descriptions_of_shards_are_read_several_at_once(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    import infocse_ray.embedding.lance_dataset as module

    read, all_read = module.read_checked, threading.Barrier(3, timeout=60)

    def read_together(file: Storage) -> dict[str, Any]:
        all_read.wait()
        return read(file)

    monkeypatch.setattr(module, "read_checked", read_together)
    output = write_index(tmp_path, tiny_encoder, format="lance")
    assert lance.dataset((output / "documents.lance").path).count_rows() == len(TEXTS)


def test_a_shard_is_one_fragment_however_many_row_groups_it_has(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    import infocse_ray.embedding.lance_dataset as module

    output = write_index(tmp_path, tiny_encoder, format="lance", sentences=True)  # of a document a row group
    for over in ("documents", "sentences"):
        assert len(lance.dataset((output / f"{over}.lance").path).get_fragments()) == 3, over
    monkeypatch.setattr(module, "_FRAGMENT_BYTES", 1)
    many = write_index(tmp_path / "many", tiny_encoder, format="lance", sentences=True)
    assert len(lance.dataset((many / "documents.lance").path).get_fragments()) == len(TEXTS)


def test_an_object_store_is_told_to_lance_as_the_uri_has_it():
    uri = "s3://AKIAIOSFODNN7LOOPBACK:secret%2Fsecret@bucket/a?endpoint_override=127.0.0.1:9&scheme=http&region=eu-x-1"
    assert dataset_place(Storage.open(uri) / "documents.lance") == (
        "s3://bucket/a/documents.lance",
        {
            "aws_access_key_id": "AKIAIOSFODNN7LOOPBACK",
            "aws_secret_access_key": "secret/secret",
            "aws_region": "eu-x-1",
            "aws_endpoint": "http://127.0.0.1:9",
            "allow_http": "true",
        },
    )


def test_without_lance_one_line_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(
        ValueError, match=r"^format = lance: lance is not installed: pip install 'infocse-ray\[search\]'$"
    ):
        require_lance("format = lance")


def test_what_lance_can_not_search_is_refused():
    with pytest.raises(ValueError, match="precision = int8: Lance searches floating-point vectors only"):
        Embed.model_validate(
            {"model": "m", "output": "o", "format": "lance", "precision": "int8", "corpus": {"source": "x"}}
        )
