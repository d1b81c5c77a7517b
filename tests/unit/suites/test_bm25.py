"""BM25: what shares words with a query is found, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.storage.folder import Storage
from infocse_ray.suites import bm25
from infocse_ray.suites.beir_layout import read_beir
from infocse_ray.suites.bm25 import Index, search, words_of
from infocse_ray.suites.measures import DEPTH, found_once
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


def test_queries_asked_some_at_a_time_find_what_all_find_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_set(tmp_path)
    data = read_beir(Storage.open(str(tmp_path)), "test")
    together = search(data, words_of("en"))
    assert len({tuple(documents) for documents in together.values()}) > 1
    monkeypatch.setattr(bm25, "_AT_ONCE", 7)
    assert search(data, words_of("en")) == together


def test_where_there_are_but_stop_words_nothing_is_found():
    index = Index(["the of", "and"], words_of("en"))
    assert index.best(["the", "zebra"], 2) == [[], []]
    assert index.scores("zebra").tolist() == [0.0, 0.0]


def test_titles_are_searched_and_as_many_are_found_as_are_looked_at_beside_the_query_itself(tmp_path: Path):
    write_set(tmp_path)
    append(tmp_path / "corpus.jsonl", *({"_id": f"z{i}", "title": "zebra", "text": "x"} for i in range(DEPTH + 9)))
    append(tmp_path / "queries.jsonl", {"_id": "z0", "text": "zebra"})
    append(tmp_path / "qrels" / "test.tsv", "z0\tz1\t1")
    data = read_beir(Storage.open(str(tmp_path)), "test")
    assert len(search(data, words_of("en"))["z0"]) == DEPTH + 1


def test_where_no_spaces_part_words_letters_are_found():
    index = Index(["北京是中国的首都，人口很多。", "苹果是一种水果。", "東京は日本の首都です"], words_of("zh"))
    assert [next(row for row, _ in found) for found in index.best(["中国首都", "水果苹果"], 2)] == [0, 1]


@pytest.mark.parametrize(
    ("language", "texts", "query"),
    [
        ("hi", ["हिन्दी भाषा में समाचार", "दीवार पर चित्र", "दी सम चर"], "हिन्दी समाचार"),
        ("bn", ["বাংলা ভাষা", "নদী ও নৌকা", "বল"], "বাংলা"),
        ("si", ["ශ්\u200dරී ලංකාව", "රී ගෙදර"], "ශ්\u200dරී"),  # a joiner is in the word
    ],
)
def test_words_are_not_cut_at_the_marks_of_their_letters(language: str, texts: list[str], query: str):
    assert [[row for row, _ in found] for found in Index(texts, words_of(language)).best([query], 3)] == [[0]]


def test_of_an_id_that_is_there_twice_the_better_counts(tmp_path: Path):
    write_set(tmp_path)
    good, long = {"_id": "z", "text": "zebra"}, {"_id": "z", "text": "zebra " + "and other words of all kinds " * 20}
    append(tmp_path / "corpus.jsonl", good)
    append(tmp_path / "queries.jsonl", {"_id": "q", "text": "zebra"})
    append(tmp_path / "qrels" / "test.tsv", "q\tz\t1")
    once = search(read_beir(Storage.open(str(tmp_path)), "test"), words_of("en"))["q"]["z"]
    append(tmp_path / "corpus.jsonl", long)
    twice = search(read_beir(Storage.open(str(tmp_path)), "test"), words_of("en"))["q"]["z"]
    assert twice > 0.5 * once
    assert found_once([("1", 0.9), ("x", 0.5), ("1", 0.1)]) == {"1": 0.9, "x": 0.5}


def test_languages():
    assert words_of("de")[:2] == ("de", "de")
    assert words_of("fi")[:2] == ("fi", [])
    assert words_of("nb")[:2] == words_of("no")[:2] == ("no", "no")
    assert words_of("ja")[:2] == (None, [])
    assert words_of("ja").said == "no stemmer, no stop words, letters as words"
    assert words_of("fi").said == "Snowball stemmer, no stop words"
