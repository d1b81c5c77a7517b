"""BM25: what shares words with a query is found, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.storage.folder import Storage
from infocse_ray.suites.beir_layout import read_beir
from infocse_ray.suites.bm25 import search, words_of
from tests.unit.suites.data_sets import append, write_set

pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")


def test_it_finds_words_stemmed(tmp_path: Path):
    write_set(tmp_path)
    append(tmp_path / "corpus.jsonl", {"_id": "zebra", "text": "Zebras running."}, {"_id": "the", "text": "the the"})
    append(tmp_path / "queries.jsonl", {"_id": "q", "text": "a zebra runs"}, {"_id": "stop", "text": "the of"})
    append(tmp_path / "qrels" / "test.tsv", "q\tzebra\t1", "stop\tthe\t1")
    data = read_beir(Storage.open(str(tmp_path)), "test")
    found = search(data, words_of("en"))
    assert list(found["q"]) == ["zebra"]
    assert found["q"]["zebra"] > 0
    assert "stop" not in found, "stop words ask for nothing"
    assert "the" in search(data, words_of("xx"))["stop"]


def test_languages():
    assert words_of("de") == ("de", "de")
    assert words_of("fi") == ("fi", [])
    assert words_of("ja") == (None, [])
    assert words_of("fi").said == "Snowball stemmer, no stop words"
