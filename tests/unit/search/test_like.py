"""What is most similar to a document of an index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from infocse_ray.embedding.numbers import vectors_of
from infocse_ray.errors import NoSuchDocument
from infocse_ray.search import index as index_module
from infocse_ray.search import searched
from infocse_ray.search.index import Index
from infocse_ray.search.many import RESULTS
from infocse_ray.search.searched import search
from infocse_ray.search.server import SearchServer
from infocse_ray.search.sides import like_sides
from infocse_ray.settings.search import Search
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet
from tests.unit.indexes import TEXTS, Text, write_index

pytest.importorskip("lance")


def written_vectors(output: Storage) -> dict[str, np.ndarray]:
    """Of each document, as `infocse embed` wrote it."""
    found: dict[str, np.ndarray] = {}
    for file in sorted(Path(output.path, "vectors", "documents").glob("*.parquet")):
        with open_parquet(Storage.open(str(file))) as parquet:
            table = parquet.read()
        found |= dict(zip(table["doc_id"].to_pylist(), vectors_of(table), strict=True))
    return found


@pytest.mark.parametrize("stored", [{}, {"precision": "fp16"}, {"precision": "int8"}, {"dimensions": 8}])
@pytest.mark.parametrize("counts", [0.0, 0.5])
def test_it_is_what_has_the_nearest_vectors_without_the_document(
    tmp_path: Path, tiny_encoder: Path, stored: dict[str, Any], counts: float
):
    output = write_index(tmp_path, tiny_encoder, **stored)
    vectors = written_vectors(output)
    unit = {name: vector / np.linalg.norm(vector) for name, vector in vectors.items()}
    index = Index(str(output), words=counts)
    for asked in ("sea", "sky"):
        nearest = {name: float(unit[name] @ unit[asked]) for name in unit if name != asked}
        hits = index.like(asked)
        assert [hit.doc_id for hit in hits] == sorted(nearest, key=lambda name: -nearest[name])
        assert [hit.similarity for hit in hits] == pytest.approx(sorted(nearest.values(), reverse=True), abs=2e-3)
        assert [hit.rank for hit in hits] == [1, 2, 3]
        assert {hit.words for hit in hits} == {None}, "vectors alone count, whatever counts for queries"
        assert index.like(asked, top=2) == hits[:2]
    assert index.title_of("sea") == "The harbour"


@pytest.mark.parametrize("reading", ["sentences", "whole", "both"])
@pytest.mark.parametrize("stored", [{}, {"precision": "int8"}, {"dimensions": 8}, {"document_prompt": "the ship "}])
def test_a_document_that_isnt_in_the_index_is_read_as_those_that_are(
    tmp_path: Path, tiny_encoder: Path, stored: dict[str, Any], reading: Any, monkeypatch: pytest.MonkeyPatch
):
    index = Index(str(write_index(tmp_path, tiny_encoder, reading=reading, **stored)), words=0.5)
    monkeypatch.setattr(index_module, "SENTENCES_AT_ONCE", 3)
    found = index.like_documents([*(list(text.sentences) for text in TEXTS), " ".join(TEXTS[0].sentences)])
    assert [hits[0].doc_id for hits in found] == [*(text.doc_id for text in TEXTS), TEXTS[0].doc_id]
    assert [hits[0].similarity for hits in found] == pytest.approx([1.0] * len(found), abs=2e-3)
    for text, hits in zip(TEXTS, found, strict=False):
        others = {hit.doc_id: hit.similarity for hit in index.like(text.doc_id)}
        assert {hit.doc_id: hit.similarity for hit in hits[1:]} == pytest.approx(others, abs=5e-3)
        assert {hit.words for hit in hits} == {None}
    assert [len(hits) for hits in index.like_documents([TEXTS[0].sentences, "the tide"], top=2)] == [2, 2]
    assert index.like_documents([]) == []


def test_documents_that_ask_meet_conditions_and_mistakes_are_named(tmp_path: Path, tiny_encoder: Path):
    index = Index(str(write_index(tmp_path, tiny_encoder, sentences=True)))
    [hits] = index.like_documents([TEXTS[0].sentences], where="doc_id <> 'sea'")
    assert "sea" not in {hit.doc_id for hit in hits}
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"documents": "one text"}, "documents: is one text"),
        ({"documents": ["tide", "\u200b"]}, "documents: item 1 has no text"),
        ({"documents": [5]}, "documents: item 0 is 5"),
        ({"documents": ["tide"], "top": 0}, "top = 0: "),
        ({"documents": ["tide"], "where": " "}, "where = ' ': "),
    ]
    for given, said in mistakes:
        with pytest.raises(ValueError, match=said):
            index.like_documents(**given)
    with pytest.raises(ValueError, match="documents: are compared with documents"):
        Index(str(tmp_path / "index"), over="sentences").like_documents(["tide"])


def test_documents_of_a_file_ask(tmp_path: Path, tiny_encoder: Path, capsys: pytest.CaptureFixture[str]):
    where = write_index(tmp_path, tiny_encoder).path
    rows = [{"_id": f"new {text.doc_id}", "text": list(text.sentences)} for text in TEXTS]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    search(Search(index=where, documents=str(tmp_path / "new.jsonl"), output=str(tmp_path / "found"), top=2))
    assert f"{2 * len(TEXTS)} results of {len(TEXTS)} documents: " in capsys.readouterr().out
    found = [json.loads(line) for line in (tmp_path / "found" / RESULTS).read_text().splitlines()]
    first = [row for row in found if row["rank"] == 1]
    assert [(row["query_id"], row["query"], row["doc_id"]) for row in first] == [
        (f"new {text.doc_id}", None, text.doc_id) for text in TEXTS
    ]


@pytest.mark.parametrize("doc_id", ["it's", "''; --", 'a "b"', "back\\slash\\", "two\nlines", "50 %_", "\u6cb9", " "])
def test_an_id_is_whatever_it_is(tmp_path: Path, tiny_encoder: Path, doc_id: str):
    output = write_index(tmp_path, tiny_encoder, [*TEXTS, Text(doc_id, ["The tide.", "A ship."], "Named")])
    index = Index(str(output), words=0)
    assert index.title_of(doc_id) == "Named"
    assert {hit.doc_id for hit in index.like(doc_id)} == {text.doc_id for text in TEXTS}


def test_copies_of_a_document_are_like_it(tmp_path: Path, tiny_encoder: Path):
    copies = [Text(f"copy {number}", TEXTS[0].sentences) for number in range(3)]
    index = Index(str(write_index(tmp_path, tiny_encoder, [*TEXTS, *copies])), words=0)
    assert {hit.doc_id for hit in index.like("sea", top=3)} == {copy.doc_id for copy in copies}


def test_a_condition_holds_for_what_is_found_not_for_the_document(tmp_path: Path, tiny_encoder: Path):
    index = Index(str(write_index(tmp_path, tiny_encoder)), words=0)
    assert [hit.doc_id for hit in index.like("sea", where="doc_id <> 'sea' AND doc_id <> 'sky'", top=1)] != ["sky"]
    assert {hit.doc_id for hit in index.like("sea", where="doc_id IN ('sky', 'court')")} == {"sky", "court"}
    with pytest.raises(ValueError, match=r"^where = 'nothing = 1': "):
        index.like("sea", where="nothing = 1")
    for none in (" ", 3):
        with pytest.raises(ValueError, match=r"^where = .*: give a condition"):
            index.like("sea", where=none)  # pyright: ignore[reportArgumentType]


def test_in_a_large_index_too_the_document_is_left_out(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    from infocse_ray.search import engine

    monkeypatch.setattr(engine, "EXACT_ROWS", 300)
    texts = [Text(str(number), ["The tide.", f"A ship {number}."]) for number in range(400)]
    index = Index(str(write_index(tmp_path, tiny_encoder, texts)), words=0)
    assert index.approximate
    for exact in (False, True):
        hits = index.like("7", top=5, exact=exact)
        assert len(hits) == 5
        assert "7" not in [hit.doc_id for hit in hits]


@pytest.mark.parametrize("doc_id", ["nobody", "", "SEA", "\udcff"])
def test_a_document_that_is_not_there_is_said(tmp_path: Path, tiny_encoder: Path, doc_id: Any):
    place = str(write_index(tmp_path, tiny_encoder))
    index = Index(place, words=0)
    for ask in (index.like, index.title_of):
        with pytest.raises(
            NoSuchDocument, match=r"^like = .*: index = .* has no such document; give an id that it has"
        ):
            ask(doc_id)
    with pytest.raises(ValueError, match=r"^top = 0"):
        index.like("sea", top=0)
    with pytest.raises(ValueError, match=r"^like = 3: give one document's id, a text, such as hit.doc_id"):
        index.like(3)  # pyright: ignore[reportArgumentType]
    assert len(index.like("sea", top=2**63)) == 3


def test_sentences_have_none(tmp_path: Path, tiny_encoder: Path):
    index = Index(str(write_index(tmp_path, tiny_encoder, sentences=True)), over="sentences")
    with pytest.raises(ValueError, match=r"^like = 'sea': is of documents"):
        index.like("sea")


def test_each_result_has_its_rank_in_the_other_list(tmp_path: Path, tiny_encoder: Path):
    index = Index(str(write_index(tmp_path, tiny_encoder)), words=0)
    hits = index.like("sea")
    [alone] = like_sides([index], "sea", 2)
    assert [(one.hit, one.other) for one in alone] == [(hit, None) for hit in hits[:2]]
    both = like_sides([index, index], "sea", 2)
    assert both == [[(hit, hit.rank) for hit in hits[:2]]] * 2


def test_the_command_shows_and_writes_it(tmp_path: Path, tiny_encoder: Path, monkeypatch, capsys):
    place = write_index(tmp_path, tiny_encoder).path
    opened: list[tuple[Any, Any]] = []

    class Opened(Index):
        def __init__(self, *given: Any, words: Any, best_sentence: Any, **named: Any) -> None:
            opened.append((words, best_sentence))
            super().__init__(*given, words=words, best_sentence=best_sentence, **named)

    monkeypatch.setattr(searched, "Index", Opened)
    search(Search(index=place, like="sea", top=2))
    out = capsys.readouterr().out
    assert "similar to The harbour  (sea)" in out
    hits = Index(place, words=0).like("sea", top=2)
    for hit in hits:
        assert f"{hit.rank:3}  {hit.similarity:.3f}  {hit.title}  ({hit.doc_id})" in out
    search(Search(index=place, like="sea", top=2, compare_index=place))
    assert capsys.readouterr().out.count("[the same rank in the other]") == 4
    search(Search(index=place, like="sea", top=2, output=str(tmp_path / "found")))
    rows = [json.loads(line) for line in (tmp_path / "found" / RESULTS).read_text().splitlines()]
    assert [(row["query_id"], row["query"], row["doc_id"]) for row in rows] == [
        ("sea", None, hit.doc_id) for hit in hits
    ]
    with pytest.raises(ValidationError, match="query = 'x': like = 'sea' asks, too"):  # the first of several
        Search(index=place, like="sea", query="x", documents="d.txt", output="o")
    (tmp_path / "new.txt").write_text("A ship in the storm.\n")
    search(Search(index=place, documents=str(tmp_path / "new.txt"), output=str(tmp_path / "related")))
    assert len(opened) == 5
    assert set(opened) == {(0.0, 0.0)}, "what words should count needn't be learnt"
    with pytest.raises(NoSuchDocument):
        search(Search(index=place, like="nobody"))


def test_the_page_asks_for_it(tmp_path: Path, tiny_encoder: Path):
    place = str(write_index(tmp_path, tiny_encoder, sentences=True))
    with SearchServer([Index(place, words=0)], Search(index=place, serve=True, port=0, top=2)) as server:
        found = server.like("sea")
        assert (found["like"], found["title"]) == ("sea", "The harbour")
        assert [hit["doc_id"] for hit in found["sides"][0]] == [hit.doc_id for hit in Index(place).like("sea", top=2)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"like": "a", "serve": True},
            "like = 'a': the page has a link to it at each result; leave it out, or --serve",
        ),
        ({"like": "a", "query": "x"}, "query = 'x': like = 'a' asks, too; give one of them"),
        ({"like": "a", "queries": "x", "output": "o"}, "queries = 'x': like = 'a' asks, too"),
        ({"like": "a", "over": "sentences"}, "like = 'a': is of documents; leave it out, or over sentences"),
        ({"like": "a", "words": 0.5}, "words = 0.5: with like vectors alone count"),
        ({"like": "a", "best_sentence": 0.5}, "best_sentence = 0.5: with like vectors alone count"),
        ({"like": ""}, "like"),
    ],
)
def test_settings_that_do_not_go_with_it_are_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        Search(index="i", **given)
