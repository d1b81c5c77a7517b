"""Titles that look for their documents by vectors, by words and by both."""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow as pa
import pytest

from infocse_ray.benchmarks import words
from infocse_ray.search.index import Index
from tests.unit.indexes import Text, write_index

pytest.importorskip("lance")

FILLED = ["The old ship.", "A wave and a tide.", "The storm near the island.", "A judge of the court."]


def test_a_row_has_the_ranks_of_its_weight(tmp_path: Path, tiny_encoder: Path, capsys):
    texts = [Text(f"d{i}", [f"mor{i} {FILLED[0]}", *FILLED[1:]], f"about mor{i}") for i in range(40)]
    texts.append(Text("untitled", [*FILLED, "The oven."]))
    places = [str(write_index(tmp_path / name, tiny_encoder, texts, **how)) for name, how in HOW.items()]
    words.run(argparse.Namespace(index=[[places[0]], places], queries=1_000))
    out = capsys.readouterr().out
    assert "40 titles, drawn by a fixed seed, each have to find a document that has it, among 41." in out
    rows = {
        line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in out.splitlines() if "|" in line
    }
    assert rows["1"] == ["1.0000"] * 4, "every name is its document's alone"
    assert rows["reciprocal rank fusion"] == ["1.0000"] * 4, "first by words, and nothing else has a rank by these"
    index = Index(places[0], words=0.0)
    ranks = []
    for i in range(40):
        hits = index.search(f"about mor{i}", top=41)
        ranks.append(next(hit.rank for hit in hits if hit.title == f"about mor{i}"))
    assert float(rows["0"][0]) <= sum(rank <= 5 for rank in ranks) / 40, "ties count against"
    assert float(rows["0"][1]) <= sum(1 / rank for rank in ranks) / 40 + 5e-5
    assert float(rows["0"][1]) < 0.9
    chosen = f"{Index(places[0]).words:g}"
    assert rows["chosen without labels"][:2] == rows[chosen][:2]


HOW = {"a": {}, "b": {"reading": "whole"}}


def test_best_sentences_have_rows_where_an_index_has_them(tmp_path: Path, tiny_encoder: Path, capsys):
    nouns = ["ship", "tide", "storm", "moon", "bread", "salt", "judge", "star", "oven", "coast", "soup", "court"]
    texts = [
        Text(
            f"d{i}", [f"The {nouns[i]}.", f"A {nouns[i - 1]} and a {nouns[i - 5]}.", FILLED[i % 4]], f"of a {nouns[i]}"
        )
        for i in range(12)
    ]
    place = str(write_index(tmp_path, tiny_encoder, texts, sentences=True))
    words.run(argparse.Namespace(index=[[place]], queries=1_000))
    out = capsys.readouterr().out
    rows = {
        line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in out.splitlines() if "|" in line
    }
    assert rows["words 0, best sentence 0"] == rows["0"]
    index = Index(place, words=0.0, best_sentence=0.7)
    ranks = []
    for i in range(12):
        hits = index.search(f"of a {nouns[i]}", top=12)
        ranks.append(next(hit.rank for hit in hits if hit.doc_id == f"d{i}"))
    assert float(rows["words 0, best sentence 0.7"][1]) <= sum(1 / rank for rank in ranks) / 12 + 5e-5
    assert rows["words 0, best sentence 0.7"] != rows["0"]


def test_indexes_with_and_without_sentences_are_not_averaged(tmp_path: Path, tiny_encoder: Path):
    texts = [Text("a", FILLED, "A title"), Text("b", FILLED[::-1])]
    places = [str(write_index(tmp_path / str(has), tiny_encoder, texts, sentences=has)) for has in (False, True)]
    with pytest.raises(ValueError, match=r"^--index = .*: some have sentences and some don't"):
        words.run(argparse.Namespace(index=[places], queries=10))


def test_of_equal_ranks_the_more_similar_one_is_ahead():
    candidates = pa.table({"similarity": [0.9, 0.8, 0.7, 0.6], "words": [1.0, 2.0, 0.0, 0.0]})
    assert words._by_ranks(candidates).tolist() == [3.0, 2.0, 1.0, 0.0], "1/61 + 1/62 twice, then 1/63 and 1/64"


def test_indexes_of_different_corpora_are_refused(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    place = str(write_index(tmp_path, tiny_encoder, [Text("a", FILLED, "A title"), Text("b", FILLED[::-1])]))
    plain = words.Index
    opened: list[Index] = []

    def other(folder: str) -> Index:
        opened.append(plain(folder))
        opened[-1].corpus = f"corpus {len(opened)}"
        return opened[-1]

    monkeypatch.setattr(words, "Index", other)
    with pytest.raises(ValueError, match=r"^--index = .*: is of another corpus than "):
        words.run(argparse.Namespace(index=[[place], [place]], queries=10))


def test_documents_without_titles_are_refused(tmp_path: Path, tiny_encoder: Path):
    place = str(write_index(tmp_path, tiny_encoder, [Text("a", FILLED), Text("b", FILLED[::-1])]))
    with pytest.raises(ValueError, match="its documents have no titles"):
        words.run(argparse.Namespace(index=[[place]], queries=10))
    other = str(write_index(tmp_path / "lance", tiny_encoder, format="lance"))
    with pytest.raises(ValueError, match="give one of format parquet"):
        words.run(argparse.Namespace(index=[[other]], queries=10))
