"""A document's best sentence beside its vector: scores by a plain loop, ranks, and the weight that is chosen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from infocse_ray.embedding.numbers import vector_columns
from infocse_ray.search import asked, copied, weight, written
from infocse_ray.search.fusion import similarity_with
from infocse_ray.search.index import Index
from infocse_ray.search.searched import search
from infocse_ray.search.sentences import SentenceVectors
from infocse_ray.search.weight import BEST_SENTENCE, WEIGHTS, Chosen, Tried, _best_sentences
from infocse_ray.settings.search import Search
from infocse_ray.storage.checksums import checked, read_checked
from tests.unit.indexes import Text, write_index

lance = pytest.importorskip("lance")


@pytest.mark.parametrize("cosine", [True, False])
def test_the_best_sentence_is_the_most_similar_one_of_its_document(tmp_path: Path, cosine: bool):
    draw = np.random.default_rng(0)
    keys = draw.permutation(np.repeat(draw.integers(-(2**62), 2**62, 40), 5))
    vectors = draw.standard_normal((200, 8)).astype(np.float32)
    table = pa.table({"key": keys, **vector_columns(vectors, "fp32")})
    in_parts = lance.write_dataset(table, str(tmp_path / "rows.lance"), max_rows_per_file=60)
    sentences = SentenceVectors(in_parts, cosine)
    query = draw.standard_normal(8).astype(np.float32)
    similarity = vectors @ query
    if cosine:
        similarity /= np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    asked = draw.permutation(np.unique(keys))[:17]
    found = sentences.best(query, np.append(asked, 12345))
    assert found[:-1] == pytest.approx([similarity[keys == key].max() for key in asked], abs=1e-5)
    assert np.isnan(found[-1]), "a document without sentences"
    assert len(sentences.best(query, np.zeros(0, np.int64))) == 0
    again = lance.dataset(str(tmp_path / "rows.lance"))
    SentenceVectors(again, cosine)
    assert [index.field_names for index in again.describe_indices()] == [["key"]], "indexed once"


def test_a_part_of_the_similarity_is_the_best_sentences():
    found = pa.table({"similarity": [0.5, 0.4, 0.3], "best_sentence": [0.5, 1.0, np.nan]})
    assert similarity_with(found, 0.25) == pytest.approx([0.5, 0.55, 0.3])
    assert similarity_with(found.drop_columns(["best_sentence"]), 0.0).tolist() == [0.5, 0.4, 0.3]


def test_of_what_is_left_of_documents_the_best_sentence_is_their_own():
    vectors = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    query = np.ones(4, np.float32)
    documents = [["a"], ["b", "c", "d"], ["e", "f"]]
    expected = [max(vectors[rows] @ query) for rows in ([0], [1, 2, 3], [4, 5])]
    assert _best_sentences(vectors, documents, query, cosine=False) == pytest.approx(expected)


NAMES = ["ship", "tide", "storm", "moon", "bread", "salt", "judge", "star", "oven", "coast"]
MIXED = [
    Text(
        f"d{i}",
        [
            f"The {NAMES[i]}.",
            *(f"A {NAMES[(i + step) % 10]} and a {NAMES[(i + 2 * step) % 10]}." for step in (1, 2, 3)),
        ],
    )
    for i in range(10)
]
"""Documents in which each word is somewhere, and the subject of one."""


@pytest.mark.parametrize("settings", [{}, {"format": "lance"}, {"precision": "int8"}, {"dimensions": 8}], ids=str)
def test_documents_are_ranked_by_their_best_sentence_too(tmp_path: Path, tiny_encoder: Path, settings):
    output = str(write_index(tmp_path, tiny_encoder, MIXED, sentences=True, **settings))
    asked = "the salt"
    plain = {hit.doc_id: hit for hit in Index(output, words=0.0, best_sentence=0.0).search(asked, top=10)}
    assert {hit.best_sentence for hit in plain.values()} == {None}
    best: dict[str, float] = {}
    for hit in Index(output, over="sentences").search(asked, top=100):
        best[hit.doc_id] = max(best.get(hit.doc_id, -1.0), hit.similarity)
    index = Index(output, words=0.0, best_sentence=0.75)
    hits = index.search(asked, top=10)
    assert [hit.best_sentence for hit in hits] == pytest.approx([best[hit.doc_id] for hit in hits], abs=1e-3)
    scores = {doc_id: 0.25 * hit.similarity + 0.75 * best[doc_id] for doc_id, hit in plain.items()}
    assert [hit.doc_id for hit in hits] == sorted(scores, key=lambda doc_id: -scores[doc_id])
    assert [hit.doc_id for hit in hits] != list(plain), "or nothing is shown"
    assert [hit.similarity for hit in hits] == pytest.approx([plain[hit.doc_id].similarity for hit in hits])
    assert index.search(asked, top=3) == hits[:3]
    with_words = Index(output, words=1.0, best_sentence=0.75).search(asked, top=1)[0]
    assert with_words.words is not None
    assert with_words.words > 0
    assert with_words.best_sentence == pytest.approx(best[with_words.doc_id], abs=1e-3)


def test_of_what_was_given_nothing_is_said(tmp_path: Path, tiny_encoder: Path, monkeypatch, capsys):
    few, many = (str(write_index(tmp_path / str(n), tiny_encoder, MIXED * n, sentences=True)) for n in (1, 4))
    Index(few, words=0.5)
    said = capsys.readouterr().out
    assert "a document's best sentence doesn't count: fewer than 30 sentences could ask" in said
    assert "words don't count" not in said
    tried = Tried(0.5, [0.5] * len(WEIGHTS), 0.3, [0.4] * len(BEST_SENTENCE), 0.6)
    monkeypatch.setattr(weight, "best_weights", lambda *_: tried)
    assert Index(many, words=0.0).best_sentence == 0.3
    said = capsys.readouterr().out
    assert "best sentence counts 0.3" in said
    assert "words count" not in said, "they don't"
    (Path(many) / "search" / "words.json").unlink()
    assert Index(many, best_sentence=0.0).words == 0.6, "as they count alone"
    assert "best sentence" not in capsys.readouterr().out, "it doesn't count"


@pytest.mark.parametrize("telling", ["documents", "sentences"])
def test_the_best_sentence_counts_where_it_finds_more(
    tmp_path: Path, tiny_encoder: Path, monkeypatch, capsys, telling: str
):
    texts = [Text(f"d{i}", [f"The {name} {i}.", f"A {name}.", "Salt."]) for i, name in enumerate(NAMES * 4)]
    output = write_index(tmp_path, tiny_encoder, texts, sentences=True)
    draw = np.random.default_rng(0)

    def unit(rows: int) -> np.ndarray:
        vectors = draw.standard_normal((rows, 32)).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    asked = unit(40)  # one a document

    def vectors(_: object, rests: list[list[str]], *_how: object) -> tuple[np.ndarray, np.ndarray]:
        sentences = unit(sum(map(len, rests)))
        if telling == "documents":
            return asked, sentences
        sentences[np.cumsum([0, *map(len, rests[:-1])])] = asked
        return unit(40), sentences

    monkeypatch.setattr(weight, "vectors_of_documents", vectors)
    monkeypatch.setattr(weight, "vectors_of_queries", lambda *_: asked)
    beside: set[float] = set()
    plain = weight.scores_with

    def noted(candidates: pa.Table, weights: Sequence[float], best_sentence: float = 0.0) -> np.ndarray:
        beside.add(best_sentence)
        return plain(candidates, weights, best_sentence)

    monkeypatch.setattr(weight, "scores_with", noted)
    index = Index(str(output))
    said = capsys.readouterr().out
    kept = read_checked(output / "search" / "words.json")
    assert index.best_sentence == kept["best_sentence"]
    assert beside == {index.best_sentence, 0.0}, "words are tried beside it and alone"
    assert (index.best_sentence > 0) == (telling == "sentences")
    if telling == "sentences":
        assert f"a document's best sentence counts {index.best_sentence:g}: " in said
        best = BEST_SENTENCE.index(index.best_sentence)
        assert kept["mrr_best_sentence"][best] == max(kept["mrr_best_sentence"]) > 0.9
        assert max(kept["mrr"]) >= kept["mrr_best_sentence"][best], "words are tried beside what was chosen"
        assert index.search("salt", top=1)[0].best_sentence is not None
    else:
        assert "a document's best sentence doesn't count: " in said
        assert index.engine.sentences is None
    assert Index(str(output)).best_sentence == index.best_sentence
    assert "sentence" not in capsys.readouterr().out, "tried once"
    assert Index(str(output), words=0.0).best_sentence == index.best_sentence
    assert Index(str(output), best_sentence=0.0).words == kept["weight_alone"]
    assert Index(str(output), words=0.0, best_sentence=0.0).best_sentence == 0.0


def test_without_sentences_none_counts(tmp_path: Path, tiny_encoder: Path, monkeypatch, capsys):
    output = str(write_index(tmp_path, tiny_encoder, MIXED * 4))
    assert Index(output).best_sentence == 0.0
    assert "best sentence" not in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(written, "read_sampled", lambda _: pytest.fail("nothing is read for it"))
        with pytest.raises(ValueError, match="has no sentences; embed with --sentences true"):
            Index(output, best_sentence=0.3)
    for wrong in (1.5, -0.1, "0.3", None, True, float("nan")):
        with pytest.raises(ValueError, match=rf"^best_sentence = {wrong!r}: give a number from 0 \(whole documents"):
            Index(output, best_sentence=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"^best_sentence = 0.3: is of documents; leave it out"):
        Index(output, over="sentences", best_sentence=0.3)
    with pytest.raises(ValidationError, match=r"best_sentence = 0.3: is of documents; leave it out"):
        Search(index=output, query="salt", over="sentences", best_sentence=0.3)


def test_many_sentences_count_only_where_that_is_asked_for(tmp_path: Path, tiny_encoder: Path, monkeypatch, capsys):
    output = write_index(tmp_path, tiny_encoder, MIXED, sentences=True)
    commit = read_checked(output / "vectors" / "stage.json")
    commit["summary"]["sentences"] = 40
    (output / "vectors" / "stage.json").write_json(checked(commit))
    monkeypatch.setattr(asked, "chosen_weights", lambda *_: Chosen(0.0, 0.3))
    assert Index(str(output)).best_sentence == 0.3
    monkeypatch.setattr(asked, "MOST_SENTENCES", 39)
    capsys.readouterr()
    assert Index(str(output)).best_sentence == 0.0
    assert "best sentences don't count: the index has 40, which the engine would copy" in capsys.readouterr().out
    assert Index(str(output), best_sentence=0.5).best_sentence == 0.5


def test_where_nothing_can_be_written_documents_are_searched_alone(
    tmp_path: Path, tiny_encoder: Path, monkeypatch, capsys
):
    output = write_index(tmp_path, tiny_encoder, MIXED, sentences=True)
    Index(str(output), words=0.0, best_sentence=0.0)  # documents are copied
    plain = lance.write_dataset

    def refuse(*given: object, **how: object) -> None:
        raise OSError("Permission denied")

    monkeypatch.setattr(lance, "write_dataset", refuse)
    monkeypatch.setattr(copied, "_PATIENCE", 0.0)
    monkeypatch.setattr(asked, "chosen_weights", lambda *_: Chosen(0.2, 0.3, 0.6))
    index = Index(str(output))
    assert (index.words, index.best_sentence) == (0.6, 0.0), "as much as words count alone"
    assert "best sentences don't count: they can't be copied (Permission denied)" in capsys.readouterr().out
    with pytest.raises(
        ValueError, match=r"^best_sentence = 0.5: index = .*: its sentences can't be copied .*; give 0$"
    ):
        Index(str(output), best_sentence=0.5)
    monkeypatch.setattr(lance, "write_dataset", plain)
    index = Index(str(output))
    assert (index.words, index.best_sentence) == (0.2, 0.3)
    assert Index(str(output), best_sentence=0.0).words == 0.6
    assert Index(str(output), best_sentence=0.5).words == 0.2


def test_what_counts_is_said_before_the_results(tmp_path: Path, tiny_encoder: Path, capsys):
    output = str(write_index(tmp_path, tiny_encoder, MIXED, sentences=True))
    search(Search(index=output, query="salt", top=1, words=0.5, best_sentence=0.3))
    out = capsys.readouterr().out
    assert "rank, similarity of vectors, of the best sentence, which counts 0.3, BM25 of words, which counts 0.5" in out
    assert re.search(r"^  1  -?\d\.\d{3}  -?\d\.\d{3}  +\d+\.\d\d  The ", out, re.MULTILINE)
    search(Search(index=output, query="salt", top=1, words=0.0, best_sentence=0.3))
    assert re.search(r"^  1  -?\d\.\d{3}  -?\d\.\d{3}  The ", capsys.readouterr().out, re.MULTILINE)
    search(Search(index=output, compare_index=output, query="salt", top=1))
    assert "best sentence" not in capsys.readouterr().out, "encoders are compared"
