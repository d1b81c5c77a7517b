"""Words beside vectors: scores by a plain formula, candidates of either kind, and the weight that is chosen."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infocse_ray.corpus.schema import stable_hash
from infocse_ray.embedding.documents import vectors_of_documents
from infocse_ray.embedding.index import read_embedding
from infocse_ray.embedding.numbers import vector_columns, vectors_of
from infocse_ray.embedding.sampled import Sampled, read_sampled, write_sampled
from infocse_ray.search import weight
from infocse_ray.search.engine import Engine
from infocse_ray.search.fusion import fused, reciprocal_ranks_fused
from infocse_ray.search.index import Index
from infocse_ray.search.searched import search
from infocse_ray.search.weight import WEIGHTS, Tried, _best, asking, ranks_of_right, scores_with
from infocse_ray.settings.search import Search
from infocse_ray.stages.stage import read_stage
from infocse_ray.storage.checksums import checked, read_checked
from infocse_ray.storage.folder import Storage
from tests.unit.indexes import SHARDS, Text, store_of, tiny, write_index

lance = pytest.importorskip("lance")

WORDY = ["the ship and the storm", "a ship", "the judge", "bread, butter and a ship of bread", "moon"]


def engine_of(folder: Path, texts: Sequence[str], vectors: np.ndarray, cosine: bool = True) -> Engine:
    columns = {"doc_id": [str(i) for i in range(len(texts))], "text": list(texts)}
    table = pa.table({**columns, **vector_columns(vectors.astype(np.float32), "fp32")})
    engine = Engine(lance.write_dataset(table, str(folder / "rows.lance")), cosine)
    engine.index_words("en")
    return engine


def by_the_formula(texts: Sequence[str], query: str) -> list[float]:
    """Lucene's BM25, with k1 = 1.2 and b = 0.75 as Lance has them; no word here is changed by stemming."""
    stop = {"the", "and", "a", "of"}
    words = [[word for word in re.findall(r"\w+", text) if word not in stop] for text in texts]
    mean = sum(map(len, words)) / len(words)
    scores = []
    for document in words:
        score = 0.0
        for word in set(re.findall(r"\w+", query)) - stop:
            has = sum(word in other for other in words)
            often = document.count(word)
            rare = math.log(1 + (len(words) - has + 0.5) / (has + 0.5))
            score += rare * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * len(document) / mean))
        scores.append(score)
    return scores


def test_words_score_by_bm25(tmp_path: Path):
    engine = engine_of(tmp_path, WORDY, np.eye(5))
    found = engine.candidates(np.eye(5, dtype=np.float32)[0], "the bread ship")
    assert sorted(found["doc_id"].to_pylist()) == list("01234")
    scores = dict(zip(found["doc_id"].to_pylist(), found["words"].to_pylist(), strict=True))
    expected = by_the_formula(WORDY, "the bread ship")
    assert [scores[str(i)] for i in range(5)] == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("query", ['"the ship"', "ship AND (", "+ship -judge", "text:ship ~2 *", "ship'"])
def test_a_query_is_words_and_no_language(tmp_path: Path, query: str):
    engine = engine_of(tmp_path, WORDY, np.eye(5))
    found = engine.candidates(np.eye(5, dtype=np.float32)[0], query)
    scores = dict(zip(found["doc_id"].to_pylist(), found["words"].to_pylist(), strict=True))
    assert min(scores[doc_id] for doc_id in "013") > 0
    assert scores["4"] == 0


@pytest.mark.parametrize("cosine", [True, False])
def test_candidates_of_either_kind_are_scored_by_both(tmp_path: Path, cosine: bool):
    vectors = np.random.default_rng(0).standard_normal((300, 16))
    texts = [f"number{i} {'tide' if i % 100 == 7 else 'harbour'}" for i in range(300)]
    engine = engine_of(tmp_path, texts, vectors, cosine)
    query = vectors[0].astype(np.float32)
    similarity = vectors @ query
    if cosine:
        similarity /= np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    order = np.argsort(-similarity).tolist()
    found = engine.candidates(query, "tide", each=5)
    rows = [int(doc_id) for doc_id in found["doc_id"].to_pylist()]
    assert set(rows) == {*order[:5], 7, 107, 207}
    assert rows == [row for row in order if row in set(rows)], "most similar first"
    assert np.abs(found["similarity"].to_numpy() - similarity[rows]).max() < 1e-4
    assert [row for row, words in zip(rows, found["words"].to_pylist(), strict=True) if words] == [
        row for row in rows if row in (7, 107, 207)
    ]
    common = engine.candidates(query, "harbour", each=5)
    assert common["words"].to_numpy().min() > 0, "also of those that others outdo by words"
    both = engine.search_both(query, "tide", 0.9, 3)
    assert {*both["doc_id"].to_pylist()} == {"7", "107", "207"}
    assert engine.search_both(query, "tide", 0.0, 3)["doc_id"].to_pylist() == [str(row) for row in order[:3]]
    assert both.column_names == ["doc_id", "text", "similarity", "words"]


def test_more_results_begin_with_the_fewer_ones(tmp_path: Path):
    vectors = np.random.default_rng(0).standard_normal((600, 16))
    texts = [f"number{i} {'tide' if i % 7 == 0 else 'harbour'}" for i in range(600)]
    engine = engine_of(tmp_path, texts, vectors)
    query = np.random.default_rng(1).standard_normal(16).astype(np.float32)
    many = engine.search_both(query, "tide number9", 0.4, 500)["doc_id"].to_pylist()
    assert len(set(many)) == len(many) == 500
    for top in (10, 100, 150, 201, 400):
        assert engine.search_both(query, "tide number9", 0.4, top)["doc_id"].to_pylist() == many[:top]
    everything = engine.search_both(query, "tide number9", 0.4, 1_000)
    assert sorted(everything["doc_id"].to_pylist()) == sorted(map(str, range(600)))


def test_by_words_alone_all_that_share_one_come_first_and_behind_them_the_nearest(tmp_path: Path):
    vectors = np.random.default_rng(0).standard_normal((600, 16))
    texts = [f"number{i} {'tide' if i % 2 == 0 else 'harbour'}" for i in range(600)]
    engine = engine_of(tmp_path, texts, vectors)
    query = np.random.default_rng(1).standard_normal(16).astype(np.float32)
    found = engine.search_both(query, "tide", 1.0, 450)
    assert [words > 0 for words in found["words"].to_pylist()] == [True] * 300 + [False] * 150
    nearest = engine.search(query, 600)["doc_id"].to_pylist()
    assert found["doc_id"].to_pylist()[300:] == [doc_id for doc_id in nearest if int(doc_id) % 2][:150]


@pytest.mark.parametrize("query", ["the", "?!", "zzz"])
def test_a_query_without_a_known_word_is_ranked_by_vectors(tmp_path: Path, query: str):
    engine = engine_of(tmp_path, WORDY, np.eye(5))
    asked = np.array([0.1, 0.5, 0.4, 0.3, 0.2], np.float32)
    found = engine.search_both(asked, query, 0.9, 5)
    assert found["doc_id"].to_pylist() == list("12340")
    assert found["words"].to_pylist() == [0.0] * 5


def test_nothing_is_found_in_nothing(tmp_path: Path):
    engine = engine_of(tmp_path, WORDY, np.eye(5))
    engine._dataset.delete("true")
    assert len(engine.search_both(np.eye(5, dtype=np.float32)[0], "ship", 0.5, 5)) == 0


def test_words_of_a_language_without_spaces_are_found(tmp_path: Path):
    table = pa.table({"text": ["我喜欢吃苹果", "他喜欢香蕉"], **vector_columns(np.eye(2, dtype=np.float32), "fp32")})
    engine = Engine(lance.write_dataset(table, str(tmp_path / "rows.lance")), True)
    engine.index_words("zh")
    found = engine.search_both(np.array([0.0, 1.0], np.float32), "苹果", 0.9, 2)
    assert [words > 0 for words in found["words"].to_pylist()] == [True, False]


@pytest.mark.parametrize(("language", "stemmed"), [("no", True), ("nb", True), ("xx", False)])
def test_bokmaal_is_stemmed_by_its_own_code_too(tmp_path: Path, language: str, stemmed: bool):
    table = pa.table({"text": ["bilene", "skip"], **vector_columns(np.eye(2, dtype=np.float32), "fp32")})
    engine = Engine(lance.write_dataset(table, str(tmp_path / "rows.lance")), True)
    engine.index_words(language)
    found = engine.search_both(np.array([1.0, 0.0], np.float32), "bilen", 0.9, 2)
    assert [words > 0 for words in found["words"].to_pylist()] == [stemmed, False]


def test_words_are_not_cut_at_the_marks_of_their_letters(tmp_path: Path):
    texts = ["हिन्दी समाचार", "दी चित्र", "आलू"]
    table = pa.table({"text": texts, **vector_columns(np.eye(3, dtype=np.float32), "fp32")})
    engine = Engine(lance.write_dataset(table, str(tmp_path / "rows.lance")), True)
    engine.index_words("hi")
    found = engine.search_both(np.array([0.3, 0.2, 0.1], np.float32), "हिन्दी", 0.9, 3)
    assert [words > 0 for words in found["words"].to_pylist()] == [True, False, False]


def test_the_ends_are_vectors_alone_and_words_alone():
    near, words = np.array([0.3, -0.2, 0.1]), np.array([0.0, 4.0, 1.0])
    assert fused(near, words, 0.0).tolist() == pytest.approx([1.0, 0.0, 0.6])
    assert fused(near, words, 1.0).tolist() == [0.0, 1.0, 0.25]
    assert fused(near, words, 0.25).tolist() == pytest.approx([0.75, 0.25, 0.5125])
    assert fused(np.array([0.5, 0.5]), np.zeros(2), 0.5).tolist() == [0.0, 0.0], "nothing tells them apart"
    assert len(fused(np.zeros(0), np.zeros(0), 0.5)) == 0


def test_ranks_alone_are_added_up_as_reciprocals():
    scores = np.array([[0.3, -0.2, 0.3, 0.1], [np.nan, 4.0, 1.0, np.nan]])
    expected = [1 / 61, 1 / 64 + 1 / 61, 1 / 61 + 1 / 62, 1 / 63]
    assert reciprocal_ranks_fused(scores).tolist() == pytest.approx(expected)
    assert len(reciprocal_ranks_fused(np.zeros((2, 0)))) == 0


def test_words_are_indexed_once_and_anew_for_another_language(tmp_path: Path, capsys):
    engine = engine_of(tmp_path, WORDY, np.eye(5))
    assert "indexing the words of 5 texts (language: en), once" in capsys.readouterr().out
    again = Engine(lance.dataset(str(tmp_path / "rows.lance")), True)
    again.index_words("en")
    assert capsys.readouterr().out == ""
    again.index_words("de")
    assert "indexing the words" in capsys.readouterr().out
    assert [index.name for index in again._dataset.describe_indices()] == ["infocse_words_de"]
    again.index_words("xx")
    query = np.eye(5, dtype=np.float32)[4]
    assert again.candidates(query, "the")["words"].to_numpy().max() > 0, "no stop words of a language without a list"
    assert engine.rows == 5


def test_words_that_another_process_indexed_meanwhile_are_taken(tmp_path: Path, monkeypatch):
    table = pa.table({"text": WORDY, **vector_columns(np.eye(5, dtype=np.float32), "fp32")})
    dataset = lance.write_dataset(table, str(tmp_path / "rows.lance"))
    plain = lance.LanceDataset.create_scalar_index

    def late(self: object, *given: object, **how: object) -> None:
        plain(lance.dataset(str(tmp_path / "rows.lance")), *given, **how)
        raise OSError("commit conflict")

    monkeypatch.setattr(lance.LanceDataset, "create_scalar_index", late)
    engine = Engine(dataset, True)
    engine.index_words("en")
    assert max(engine.candidates(np.eye(5, dtype=np.float32)[0], "ship")["words"].to_pylist()) > 0


def test_an_index_that_is_not_of_words_is_not_taken_for_one(tmp_path: Path):
    table = pa.table({"text": WORDY, **vector_columns(np.eye(5, dtype=np.float32), "fp32")})
    dataset = lance.write_dataset(table, str(tmp_path / "rows.lance"))
    dataset.create_scalar_index("text", "BTREE", name="sorted")
    Engine(dataset, True).index_words("en")
    assert {index.name for index in dataset.describe_indices()} == {"sorted", "infocse_words_en"}


def test_words_count_only_where_they_find_more_beyond_luck():
    by_vectors = np.random.default_rng(0).random(40)
    luck = by_vectors + np.where(np.arange(40) % 2, 0.3, -0.29)
    more = by_vectors + 0.1
    each = np.arange(40)
    assert _best(np.stack([by_vectors, luck], axis=1), each) == 0
    assert _best(np.stack([by_vectors, more, luck], axis=1), each) == 1
    assert _best(np.stack([by_vectors, more, more], axis=1), each) == 1, "of several the least"
    assert _best(np.stack([by_vectors, by_vectors - 0.1], axis=1), each) == 0
    # Three standard errors where every question is of a document of its own, two where four are of one.
    some = np.stack([by_vectors, by_vectors + np.where(each // 4 % 2, 0.3, -0.1)], axis=1)
    assert _best(some, each) == 1
    assert _best(some, each // 4) == 0


def test_what_somebody_else_indexed_is_taken_as_it_is(tmp_path: Path, capsys):
    table = pa.table({"text": WORDY, **vector_columns(np.eye(5, dtype=np.float32), "fp32")})
    dataset = lance.write_dataset(table, str(tmp_path / "rows.lance"))
    dataset.create_scalar_index("text", "INVERTED", name="theirs")
    Engine(dataset, True).index_words("en")
    assert capsys.readouterr().out == ""
    assert [index.name for index in dataset.describe_indices()] == ["theirs"]


def test_the_first_right_one_counts_and_ties_count_against_it():
    found = pa.table({"similarity": [0.9, 0.5, 0.5, 0.1], "words": [0.0, 1.0, 1.0, 4.0]})
    right = np.array([False, True, False, True])
    scores = scores_with(found, (0.0, 1.0))
    assert ranks_of_right(scores, right).tolist() == [3.0, 1.0]
    assert ranks_of_right(scores, np.zeros(4, bool)).tolist() == [np.inf, np.inf]


def test_up_to_two_sentences_are_taken_out_and_one_is_left():
    documents = [["a", "b"], ["c"], ["d", "d", "d"], [f"e{i}" for i in range(4)], [f"f{i}" for i in range(20)]]
    asked = asking(documents)
    assert asked.answers == [0, 3, 4, 4]
    for number, (sentences, rest) in enumerate(zip(documents, asked.rests, strict=True)):
        taken = [q for q, answer in zip(asked.questions, asked.answers, strict=True) if answer == number]
        assert [sentence for sentence in sentences if sentence not in taken] == rest
        assert rest
    assert asking(documents) == asked


def test_a_sentence_that_its_document_has_twice_does_not_ask():
    for sentences in (["x", "y", "x"], ["x", "x", "y"]):
        asked = asking([sentences] * 30)
        assert set(asked.questions) == {"y"}


NAMES = [
    f"{first}{second}"
    for first in ("mor", "tel", "kav", "rin", "sol", "dum")
    for second in ("ba", "ge", "lo", "pi", "zu", "ny")
]
NAMED = [
    Text(
        f"d{i}",
        [f"The ship {name} and the sea.", f"A wave on the {name}.", f"A tide for {name}.", f"The storm of {name}."],
    )
    for i, name in enumerate(NAMES)
]
"""Documents that only a name tells apart, which the tiny encoder doesn't know."""


def test_words_count_where_they_find_more(tmp_path: Path, tiny_encoder: Path, capsys):
    output = write_index(tmp_path, tiny_encoder, NAMED)
    index = Index(str(output))
    assert index.words > 0
    out = capsys.readouterr().out
    said = re.search(r"words count ([0-9.]+): .* with MRR ([0-9.]+) then, ([0-9.]+) by vectors", out)
    assert said
    assert out.count("indexing the words") == 1, "those of the trial are nobody's business"
    assert float(said[1]) == index.words
    assert float(said[2]) > float(said[3])
    hits = index.search("telge", top=3)
    assert hits[0].doc_id == f"d{NAMES.index('telge')}"
    assert hits[0].words is not None
    assert hits[0].words > 0 == hits[1].words
    again = Index(str(output))
    assert again.words == index.words
    assert "words count" not in capsys.readouterr().out, "tried once"
    alone = Index(str(output), words=0.0)
    assert [hit.words for hit in alone.search("telge", top=2)] == [None, None]
    assert Index(str(output), words=1.0).search("kavny", top=1)[0].doc_id == f"d{NAMES.index('kavny')}"


def test_the_weight_is_tried_anew_for_other_vectors(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    output = write_index(tmp_path, tiny_encoder, NAMED)
    tried: list[Sampled] = []

    def fixed(_encoder: object, _embedding: object, sampled: Sampled) -> Tried:
        tried.append(sampled)
        return Tried(0.3, [0.0] * len(WEIGHTS))

    monkeypatch.setattr(weight, "best_weights", fixed)
    assert [Index(str(output)).words for _ in range(2)] == [0.3, 0.3]
    assert len(tried) == 1
    file = output / "search" / "words.json"
    kept = read_checked(file)
    for count, other in enumerate((b"{}", {**kept, "vectors": "others"}, {**kept, "format": -1}), 2):
        file.write_bytes(other) if isinstance(other, bytes) else file.write_json(checked(other))
        Index(str(output))
        assert len(tried) == count
    Index(str(output))
    assert len(tried) == 4


@pytest.mark.parametrize("settings", [{}, {"reading": "sentences"}, {"reading": "whole"}, {"dimensions": 8}], ids=str)
def test_documents_ask_as_the_index_has_them(tmp_path: Path, tiny_encoder: Path, settings):
    output = write_index(tmp_path, tiny_encoder, NAMED, **settings)
    encoder = tiny(tiny_encoder).eval()
    embedding, texts = read_embedding(output), [text.sentences for text in NAMED]
    ours, _ = vectors_of_documents(encoder, texts, embedding.reading, embedding.dimensions)
    files = sorted((output / "vectors" / "documents").files())
    rows = pa.concat_tables(pq.read_table((output / "vectors" / "documents" / file).path) for file in files)
    there = dict(zip(rows["doc_id"].to_pylist(), vectors_of(rows), strict=True))
    assert np.abs(ours - np.stack([there[text.doc_id] for text in NAMED])).max() < 1e-5


def test_words_are_those_of_the_corpus_language(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    output = write_index(tmp_path, tiny_encoder, NAMED)
    _, place = store_of(tmp_path / "again", tiny(tiny_encoder), NAMED)
    write_sampled(output / "vectors", place, SHARDS, "de")
    asked: list[str | None] = []
    plain = Engine.index_words

    def noted(self: Engine, language: str | None, quiet: bool = False) -> None:
        asked.append(language)
        plain(self, language, quiet)

    monkeypatch.setattr(Engine, "index_words", noted)
    assert Index(str(output)).words > 0
    assert asked == ["de", "de"], "of the trial, and of the index"


def test_what_words_give_by_luck_is_told_as_such(tmp_path: Path, tiny_encoder: Path, monkeypatch, capsys):
    monkeypatch.setattr(weight, "best_weights", lambda *_: Tried(0.0, [0.807, 0.83, *[0.5] * 8]))
    assert Index(str(write_index(tmp_path, tiny_encoder))).words == 0.0
    said = capsys.readouterr().out
    assert (
        "words don't count: sentences taken out of documents find them with MRR 0.807 by vectors alone, 0.830" in said
    )
    assert "no more than luck" in said


def test_few_documents_or_none_kept_leave_vectors_alone(tmp_path: Path, tiny_encoder: Path, capsys):
    output = write_index(tmp_path, tiny_encoder, sentences=True)
    assert Index(str(output)).words == 0.0
    assert "words don't count: fewer than 30 sentences could ask" in capsys.readouterr().out
    assert Index(str(output), over="sentences").words == 0.0
    assert "words" not in capsys.readouterr().out
    (output / "vectors" / "sampled.parquet").delete()
    commit = read_checked(output / "vectors" / "stage.json")
    del commit["files"]["sampled.parquet"]
    (output / "vectors" / "stage.json").write_json(checked(commit))
    assert Index(str(output), words="auto").words == 0.0
    said = capsys.readouterr().out
    assert "words and best sentences don't count: an earlier version wrote this index" in said
    assert "--words 0.5 --best_sentence 0.3" in said
    Index(str(output), words=0.5)
    said = capsys.readouterr().out
    assert "(language: unknown)" in said
    assert "best sentences don't count: an earlier version wrote this index" in said
    assert "words don't count" not in said, "they do"
    sentences = Index(str(output), over="sentences", words=1.0)
    assert sentences.search("comet", top=1)[0].number == 1
    with pytest.raises(ValueError, match=r"words = 1.5: give a number from 0 \(vectors alone\)"):
        Index(str(output), words=1.5)


def test_where_nothing_can_be_written_vectors_search_alone(tmp_path: Path, tiny_encoder: Path, monkeypatch, capsys):
    output = write_index(tmp_path, tiny_encoder, NAMED, format="lance")
    plain = lance.LanceDataset.create_scalar_index

    def refuse(self: Any, *given: object, **how: object) -> None:
        if str(tmp_path / "index") in self.uri:
            raise OSError("Permission denied")
        plain(self, *given, **how)

    monkeypatch.setattr(lance.LanceDataset, "create_scalar_index", refuse)
    index = Index(str(output))
    assert index.words == 0.0
    assert "words don't count: they can't be indexed (Permission denied)" in capsys.readouterr().out
    assert index.search("telge", top=1)[0].words is None
    with pytest.raises(ValueError, match=r"^words = 0.5: index = .*: its words can't be indexed .*; give 0$"):
        Index(str(output), words=0.5)


def test_a_weight_that_cant_be_kept_counts_nevertheless(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    output = write_index(tmp_path, tiny_encoder, NAMED, format="lance")

    def refuse(*_: object) -> None:
        raise OSError("Permission denied")

    monkeypatch.setattr(Storage, "write_json", refuse)
    assert Index(str(output)).words > 0
    assert not (output / "search" / "words.json").exists()


def test_two_encoders_are_compared_by_vectors_unless_words_are_asked_for(tmp_path: Path, tiny_encoder: Path, capsys):
    output = str(write_index(tmp_path, tiny_encoder, NAMED))
    search(Search(index=output, compare_index=output, query="telge", top=2))
    assert "BM25" not in capsys.readouterr().out
    search(Search(index=output, compare_index=output, query="telge", top=2, words=0.5))
    assert capsys.readouterr().out.count("BM25 of words, which counts 0.5") == 1
    search(Search(index=output, query="telge", top=1))
    out = capsys.readouterr().out
    assert re.search(r"^  1  -?\d\.\d{3}  +\d+\.\d\d  The ship telge", out, re.MULTILINE)


def test_an_index_without_sentences_has_what_an_earlier_version_learnt(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    monkeypatch.setattr(weight, "best_weights", lambda *_: pytest.fail("tried again"))
    output = write_index(tmp_path, tiny_encoder, NAMED)
    vectors = read_stage(output / "vectors").fingerprint
    kept = {"format": 2, "vectors": vectors, "weight": 0.7, "mrr": [0.5] * len(WEIGHTS)}
    (output / "search" / "words.json").write_json(checked(kept))
    assert Index(str(output)).words == 0.7


def test_what_is_kept_of_documents_is_drawn_by_hash_and_bounded(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    from infocse_ray.embedding import sampled

    monkeypatch.setattr(sampled, "SAMPLED", 20)
    texts = [*NAMED, *(Text(f"short{i}", ["One."]) for i in range(9))]
    _, place = store_of(tmp_path, tiny(tiny_encoder), texts)
    folder = Storage.open(str(tmp_path / "vectors"))
    write_sampled(folder, place, SHARDS, "de")
    kept = read_sampled(folder)
    assert kept is not None
    assert kept.language == "de"
    assert len(kept.documents) == 20
    by_hash = [sorted(NAMED[shard::SHARDS], key=lambda text: stable_hash(text.doc_id)) for shard in range(2)]
    first = [text.sentences for text in by_hash[0]]
    assert kept.documents == [*first, *(text.sentences for text in by_hash[1][:8])]
    assert read_sampled(Storage.open(str(tmp_path / "nowhere"))) is None
    monkeypatch.setattr(sampled, "_SHARDS", 1)
    monkeypatch.setattr(sampled, "_SENTENCES", 3)
    write_sampled(folder, place, SHARDS, "de")
    kept = read_sampled(folder)
    assert kept is not None
    assert kept.documents == [document[:3] for document in first]


def test_every_text_is_found_by_its_words_however_it_is_stored(tmp_path: Path, tiny_encoder: Path):
    for number, settings in enumerate(
        ({"precision": "int8"}, {"format": "lance"}, {"dimensions": 8, "reading": "whole"})
    ):
        output = write_index(tmp_path / str(number), tiny_encoder, NAMED, **settings)
        assert Index(str(output)).words > 0
        assert Index(str(output), words=0.9).search("solzu", top=1)[0].doc_id == f"d{NAMES.index('solzu')}"
