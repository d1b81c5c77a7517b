"""Metadata beside vectors: shown with results, and conditions on it that they meet."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from infocse_ray.embedding.numbers import vector_columns
from infocse_ray.search import engine
from infocse_ray.search.engine import Engine
from infocse_ray.search.index import Index
from infocse_ray.search.metadata import as_json, as_shown
from infocse_ray.search.searched import search
from infocse_ray.search.server import SearchServer
from infocse_ray.settings.search import Search
from infocse_ray.storage.folder import Storage
from tests.unit.indexes import TEXTS, write_index

lance = pytest.importorskip("lance")

TYPES = {"year": "integer", "place": "text", "tags": "texts", "day": "time"}
YEARS = {"sea": 2001, "court": 2010, "kitchen": 2020, "sky": None}


def written(folder: Path, encoder: Path, **settings: Any) -> str:
    texts = [
        text._replace(
            metadata={
                "year": YEARS[text.doc_id],
                "place": f"by the {text.doc_id}",
                "tags": ["all", text.doc_id],
                "day": datetime(YEARS[text.doc_id] or 1990, 2, 3, tzinfo=UTC),
            }
        )
        for text in TEXTS
    ]
    corpus = {"source": "x", "metadata": TYPES}
    return str(write_index(folder, encoder, texts, corpus=corpus, **settings))


CONDITIONS = [
    ("metadata.year >= 2010", {"court", "kitchen"}),
    ("metadata.year IS NULL", {"sky"}),
    ("metadata.place = 'by the sea' OR metadata.year = 2020", {"sea", "kitchen"}),
    ("array_has(metadata.tags, 'court')", {"court"}),
    ("metadata.day >= date '2010-01-01'", {"court", "kitchen"}),
    ("doc_id IN ('sea', 'sky')", {"sea", "sky"}),
    ("metadata.year = 1", set()),
    ("metadata.year = 2001 OR metadata.year = 2010 -- two of them", {"sea", "court"}),
]


@pytest.mark.parametrize(("form", "weights"), [("parquet", (0.0, 0.0)), ("lance", (0.0, 0.0)), ("parquet", (0.5, 0.4))])
def test_what_is_found_meets_the_condition_and_is_ranked_as_without(
    tmp_path: Path, tiny_encoder: Path, form: str, weights: tuple[float, float]
):
    index = Index(
        written(tmp_path, tiny_encoder, format=form, sentences=True), words=weights[0], best_sentence=weights[1]
    )
    every = index.search("a tide of soup", top=10)
    assert {hit.doc_id for hit in every} == set(YEARS)
    for condition, ids in CONDITIONS:
        found = index.search("a tide of soup", top=10, where=condition)
        if weights == (0.0, 0.0):  # else similarities are scaled over what meets it
            assert [hit.doc_id for hit in found] == [hit.doc_id for hit in every if hit.doc_id in ids], condition
        assert {hit.doc_id for hit in found} == ids, condition
        [again] = index.search(["a tide of soup"], top=10, where=condition)
        assert [hit.doc_id for hit in again] == [hit.doc_id for hit in found]
    [best] = index.search("a tide of soup", top=1, where="metadata.year = 2020")
    assert best.metadata == {
        "year": 2020,
        "place": "by the kitchen",
        "tags": ["all", "kitchen"],
        "day": datetime(2020, 2, 3, tzinfo=UTC),
    }


def test_sentences_have_it_of_their_documents(tmp_path: Path, tiny_encoder: Path):
    index = Index(written(tmp_path, tiny_encoder, sentences=True), over="sentences")
    found = index.search("soup", top=20, where="metadata.year <= 2010")
    assert {hit.key for hit in found} == {("sea", 0), ("sea", 1), ("sea", 2), ("court", 0), ("court", 1)}
    assert {(hit.metadata or {})["year"] for hit in found} == {2001, 2010}


@pytest.mark.parametrize("exact_rows", [1_000, 1])
def test_the_best_that_meet_it_are_found_however_few_among_many(tmp_path: Path, monkeypatch, exact_rows: int):
    monkeypatch.setattr(engine, "EXACT_ROWS", 1_000)
    monkeypatch.setattr(engine, "_LIST_ROWS", 100)  # so that most lists aren't looked into
    vectors = np.random.default_rng(0).standard_normal((20_000, 16)).astype(np.float32)
    number = np.arange(20_000)
    table = pa.table({"doc_id": number.astype(str), "number": number, **vector_columns(vectors, "fp32")})
    searched = Engine(lance.write_dataset(table, str(tmp_path / "rows.lance")), cosine=True)
    assert searched.approximate
    monkeypatch.setattr(engine, "EXACT_ROWS", exact_rows)
    found = searched.search(vectors[0], 10, where="number % 4000 = 7")
    assert sorted(map(int, found["doc_id"].to_pylist())) == [7, 4007, 8007, 12007, 16007]
    if exact_rows > 1:
        scores = (vectors @ vectors[0]) / np.linalg.norm(vectors, axis=1)
        meets = np.flatnonzero(number % 50 == 7)
        best = meets[np.argsort(-scores[meets])[:10]]
        found = searched.search(vectors[0], 10, where="number % 50 = 7")
        assert [int(one) for one in found["doc_id"].to_pylist()] == best.tolist(), "few are compared one by one"


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("metadata.yeer > 1", r"Field yeer not found.*; the columns are metadata.day \(time: metadata.day >= date '20"),
        ("metadata.year > 'x'", r"metadata.year > 'x'.*metadata.tags \(texts: array_has\(metadata.tags, 'x'\)\)"),
        ("metadata.year >", r"metadata.year \(integer\), doc_id, key, title, text"),
        ("metadata.year", "does not return a boolean"),
        ("metadata.year > 2001 metadata.year < 2003", "Expected: \\), found: metadata"),
        ("metadata.year > 2001, metadata.year < 2003", "is not supported SQL"),
        ("metadata.year > 2001 LIMIT 1", "Expected: \\), found: LIMIT"),
        ("metadata.year = 2001; SELECT 1", "Expected: \\), found: ;"),
        ("CAST(metadata.place AS INT) > 2", r"^where = 'CAST\(metadata.place AS INT\) > 2': "),
        (" ", "give a condition, such as"),
        (3, "where = 3: give a condition"),
    ],
)
def test_what_is_no_condition_is_refused_in_a_line(tmp_path: Path, tiny_encoder: Path, condition: Any, said: str):
    index = Index(written(tmp_path, tiny_encoder))
    with pytest.raises(ValueError, match=said) as refused:
        index.search("tide", where=condition)
    assert ".rs:" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_index_without_any_says_so(tmp_path: Path, tiny_encoder: Path):
    index = Index(str(write_index(tmp_path, tiny_encoder)))
    assert index.search("tide", top=1)[0].metadata is None
    with pytest.raises(ValueError, match=r"No field named metadata.*the columns are doc_id, key, title, text, sentenc"):
        index.search("tide", where="metadata.year > 3")


def test_the_command_shows_it_and_keeps_to_the_condition(tmp_path: Path, tiny_encoder: Path, capsys):
    place = written(tmp_path, tiny_encoder)
    search(Search(index=place, query="tide", where="metadata.year = 2010"))
    out = capsys.readouterr().out
    assert "day: 2010-02-03 · place: by the court · tags: all, court · year: 2010" in out
    assert "(court)" in out
    assert "(sea)" not in out
    search(Search(index=place, query="tide", where="metadata.year = 1"))
    assert "nothing was found where metadata.year = 1" in capsys.readouterr().out
    with pytest.raises(ValueError, match="Field yeer not found"):
        search(Search(index=place, serve=True, where="metadata.yeer = 1"))
    with pytest.raises(ValidationError, match="where = ' ': give a condition"):
        Search(index=place, query="tide", where=" ")


def test_results_in_a_file_have_it(tmp_path: Path, tiny_encoder: Path):
    place = written(tmp_path, tiny_encoder)
    search(Search(index=place, query="tide", output=str(tmp_path / "found"), where="metadata.year = 2010"))
    [row] = map(json.loads, (Storage.open(str(tmp_path / "found")) / "results.jsonl").read_bytes().splitlines())
    assert row["metadata"]["day"] == "2010-02-03T00:00:00+00:00"
    assert row["metadata"]["tags"] == ["all", "court"]


def test_the_page_gets_it(tmp_path: Path, tiny_encoder: Path):
    place = written(tmp_path, tiny_encoder)
    settings = Search(index=place, serve=True, port=0, where="metadata.year = 2010")
    with SearchServer([Index(place, words=0.0)], settings) as server:
        assert server.about()["where"] == "metadata.year = 2010"
        [[row]] = server.results("tide")["sides"]
    assert json.loads(json.dumps(row))["metadata"]["year"] == "2010"


def test_two_indexes_are_asked_the_same(tmp_path: Path, tiny_encoder: Path, capsys):
    after, before = (written(tmp_path / name, tiny_encoder) for name in ("after", "before"))
    search(Search(index=after, compare_index=before, query="tide", where="metadata.year = 2010"))
    out = capsys.readouterr().out
    assert out.count("(court)") == 2
    assert "(sea)" not in out


def test_how_values_are_shown():
    metadata = {
        "a": None,
        "b": "",
        "c": [],
        "d": True,
        "e": datetime(2026, 1, 31, 4, 5, tzinfo=UTC),
        "f": 0.5,
        "g": 0,
    }
    assert as_shown(metadata) == {"d": "true", "e": "2026-01-31 04:05:00+00:00", "f": "0.5", "g": "0"}
    assert as_shown(None) == {}
    assert as_json(metadata) == {
        "b": "",
        "c": [],
        "d": True,
        "e": "2026-01-31T04:05:00+00:00",
        "f": 0.5,
        "g": 0,
    }
