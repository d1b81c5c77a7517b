"""Queries from a file, and their results in one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from infocse_ray.search import index as index_module
from infocse_ray.search.index import Index
from infocse_ray.search.many import RESULTS, Document, Query, read_documents, read_queries
from infocse_ray.search.searched import search
from infocse_ray.settings.search import Search
from tests.unit.indexes import write_index

pytest.importorskip("lance")


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("q.jsonl", lines({"_id": "a", "text": "tide"}, {"id": 7, "text": "soup"}), [("a", "tide"), ("7", "soup")]),
        (
            "q.jsonl",
            lines({"text": "tide", "more": 1}) + "\n" + lines({"text": "soup"}),
            [("1", "tide"), ("3", "soup")],
        ),
        ("q.txt", "tide\n\n  a ship \n", [("1", "tide"), ("3", "a ship")]),
    ],
)
def test_queries_are_read_with_their_ids_or_lines(tmp_path: Path, name: str, content: str, found: list):
    (tmp_path / name).write_text(content)
    assert read_queries(str(tmp_path / name)) == [Query(*one) for one in found]
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
    assert read_queries(str(tmp_path / f"{name}.gz")) == [Query(*one) for one in found]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.jsonl", None, "no such file"),
        ("q.csv", b"text\ntide\n", r"give JSON Lines \(.jsonl\) with `text`, and perhaps `_id` or `id`, or text"),
        ("q.jsonl", b"\n", "has no query; give JSON Lines"),
        ("q.jsonl", b'{"text": "tide"}\n{"text": " "}\n', "line 2 is no query; give JSON Lines"),
        ("q.jsonl", b"tide\n", "line 1 is no query; give JSON Lines"),
        ("q.jsonl", b'{"text": "\\ud800"}\n', "line 1 is no query"),
        ("q.jsonl", b'{"_id": "2", "text": "tide"}\n{"text": "soup"}\n', "line 2: another query has the id '2'"),
        ("q.txt", b"tide\n\xff\n", "line 2 is no query"),
        ("q.txt.gz", b"tide\n", "can't be read"),
    ],
)
def test_what_is_no_file_of_queries_is_refused_in_a_line(tmp_path: Path, name: str, content: bytes | None, said: str):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"^queries = '.*{name}': {said}[^\n]*$"):
        read_queries(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        (
            "d.jsonl",
            lines({"_id": "a", "text": "The tide. It rose."}, {"id": 7, "text": ["a ship", "a storm"], "title": "x"}),
            [("a", "The tide. It rose."), ("7", ["a ship", "a storm"])],
        ),
        ("d.txt", "The tide. It rose.\n", [("1", "The tide. It rose.")]),
    ],
)
def test_documents_are_texts_or_sentences(tmp_path: Path, name: str, content: str, found: list):
    (tmp_path / name).write_text(content)
    assert read_documents(str(tmp_path / name)) == [Document(*one) for one in found]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("d.jsonl", b'{"text": []}\n', "line 1 is no document; give JSON Lines .*, a text or a list of sentences"),
        ("d.jsonl", b'{"text": [" ", "\\u200b"]}\n', "line 1 is no document"),
        ("d.jsonl", b'{"text": ["a", 1]}\n', "line 1 is no document"),
        ("d.jsonl", b'{"body": "tide"}\n', "line 1 is no document"),
        ("d.jsonl", b'{"id": 1, "text": "tide"}\n{"id": 1, "text": "b"}\n', "line 2: another document has the id '1'"),
        ("d.parquet", b"", "give JSON Lines"),
        ("none.txt", None, "no such file"),
    ],
)
def test_what_is_no_file_of_documents_is_refused_in_a_line(tmp_path: Path, name: str, content: bytes | None, said: str):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"^documents = '.*{name}': {said}[^\n]*$"):
        read_documents(str(tmp_path / name))


def test_results_of_a_file_are_those_of_its_queries(tmp_path: Path, tiny_encoder: Path, monkeypatch, capsys):
    where = write_index(tmp_path, tiny_encoder).path
    monkeypatch.setattr(index_module, "_AT_ONCE", 2)
    (tmp_path / "q.jsonl").write_text(lines(*({"_id": one, "text": one} for one in ("tide", "soup", "a judge"))))
    asked = Search(index=where, queries=str(tmp_path / "q.jsonl"), output=str(tmp_path / "found"), top=2, words=0.5)
    search(asked)
    assert f"6 results of 3 queries: {tmp_path}/found/{RESULTS}" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "found" / RESULTS).read_text().splitlines()]
    index = Index(where, words=0.5)
    wanted = [(query, hit) for query in ("tide", "soup", "a judge") for hit in index.search(query, top=2)]
    for row, (query, hit) in zip(rows, wanted, strict=True):
        assert (row["query_id"], row["query"]) == (query, query)
        same = ("rank", "doc_id", "number", "title", "text", "words", "best_sentence")
        assert [row[name] for name in same] == [getattr(hit, name) for name in same]
        assert row["similarity"] == pytest.approx(hit.similarity, abs=1e-5)
    assert len({row["doc_id"] for row in rows}) > 1
    search(Search(index=where, query="tide", output=str(tmp_path / "one"), top=1))
    [row] = [json.loads(line) for line in (tmp_path / "one" / RESULTS).read_text().splitlines()]
    assert (row["query_id"], row["query"], row["rank"]) == ("1", "tide", 1)


def test_a_place_that_cant_be_written_is_told_before_an_index_is_opened(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^output = .*: is a file; name a folder"):
        search(Search(index="nowhere", query="tide", output=str(tmp_path / "file")))
    with pytest.raises(ValueError, match=r"^queries = .*: no such file"):
        search(Search(index="nowhere", queries=str(tmp_path / "none.txt"), output=str(tmp_path / "out")))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"queries": "q.txt"}, "queries = 'q.txt': say with output where their results go"),
        ({"queries": "q.txt", "output": "o", "query": "x"}, "query = 'x': there is a file of queries, too"),
        ({"queries": "q.txt", "output": "o", "serve": True}, "queries = 'q.txt': the page asks for queries"),
        ({"query": "x", "output": "o", "compare_index": "b"}, "output = 'o': is of one index"),
        ({"output": "o"}, "query is required"),
        ({"documents": "d.txt"}, "documents = 'd.txt': say with output where their results go"),
        ({"documents": "d.txt", "output": "o", "query": "x"}, "query = 'x': documents = 'd.txt' asks, too"),
        ({"documents": "d.txt", "output": "o", "queries": "q"}, "queries = 'q': documents = 'd.txt' asks, too"),
        ({"documents": "d.txt", "output": "o", "like": "a"}, "documents = 'd.txt': like = 'a' asks, too"),
        ({"documents": "d.txt", "output": "o", "serve": True}, "documents = 'd.txt': the page asks for queries"),
        ({"documents": "d.txt", "output": "o", "over": "sentences"}, "documents = 'd.txt': is of documents"),
        ({"documents": "d.txt", "output": "o", "words": 0.5}, "words = 0.5: with documents vectors alone count"),
        ({"documents": "d.txt", "output": "o", "compare_index": "b"}, "documents = 'd.txt': is of one index"),
    ],
)
def test_settings_of_a_file_that_make_no_sense_are_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        Search(index="i", **given)
