"""The search of an actor: the same documents as by encoding all at once, prompts and lengths as they should be."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.corpus.sentences import split_sentences
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.texts import TextEncoder, tokenised
from infocse_ray.retrieval.documents import cut_at, whole_length
from infocse_ray.settings import Encoder
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet
from infocse_ray.suites import beir_layout, search
from infocse_ray.suites.beir_layout import Passage, read_beir
from infocse_ray.suites.search import BOTH, PASSAGE, READINGS, SENTENCES, SearchBlocks, best_of_all
from tests.unit.suites.data_sets import append, write_set


@pytest.fixture
def annotator(tiny_encoder: Path, tmp_path: Path) -> Annotator:
    settings = Encoder(model=str(tiny_encoder), max_length=8, query_prompt="the sky ", document_prompt="a case ")
    saved = EncoderFolder.save(load_encoder(tiny_encoder, settings, cosine=True), Storage.open(str(tmp_path / "model")))
    return Annotator(saved, "fp32", torch.device("cpu"))


def test_blocks_find_what_a_full_search_finds(annotator: Annotator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(beir_layout, "_BLOCK_BYTES", 1_500)
    monkeypatch.setattr("infocse_ray.suites.search._DOCUMENTS_AT_ONCE", 3)
    documents = write_set(tmp_path / "set")
    data = read_beir(Storage.open(str(tmp_path / "set")), "test")
    work = SearchBlocks(data, Storage.open(str(tmp_path / "best")), "en")
    numbers = list(range(len(data.blocks())))
    done = work(annotator, numbers)
    assert len(numbers) > 2
    assert sum(row["documents"] for row in done) == 30

    encoder = annotator.encoder
    assert encoder.max_length == 8, "as it was before"
    assert whole_length(encoder) == 64
    whole = [" ".join(d["sentences"]) for d in documents]
    with cut_at(encoder, 64):
        reader = TextEncoder(encoder)
        queries = reader.vectors(data.queries, "query")
        passages = reader.vectors(whole)
        long = (tokenised(encoder, whole).lengths > encoder.room("document")).sum()
    assert sum(row["cut"] for row in done) == long > 0
    assert not torch.allclose(queries, reader.vectors(data.queries, "query")), "queries are read as far as passages"
    means = torch.stack(
        [reader.vectors([d["sentences"][0], *split_sentences(" ".join(d["sentences"][1:]))]).mean(0) for d in documents]
    )
    means = torch.nn.functional.normalize(means, dim=-1)
    both = torch.nn.functional.normalize(means + passages, dim=-1)
    for name, vectors in ((PASSAGE, passages), (SENTENCES, means), (BOTH, both)):
        found = best_of_all(Storage.open(str(tmp_path / "best")), name, data.query_ids)
        expected, rows = (queries @ vectors.T).topk(30)
        for query, mine, scores in zip(data.query_ids, rows.tolist(), expected.tolist(), strict=True):
            assert set(found[query]) == {documents[row]["id"] for row in mine}
            assert [found[query][documents[row]["id"]] for row in mine] == pytest.approx(scores, abs=1e-5)
            assert list(found[query].values()) == sorted(found[query].values(), reverse=True)


def test_a_block_that_is_whole_is_not_searched_again(
    annotator: Annotator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_set(tmp_path / "set")
    data = read_beir(Storage.open(str(tmp_path / "set")), "test")
    folder = Storage.open(str(tmp_path / "best"))
    first = SearchBlocks(data, folder, "en")(annotator, [0])
    monkeypatch.setattr(TextEncoder, "vectors", lambda *_: pytest.fail("encoded again"))
    assert SearchBlocks(data, folder, "en")(annotator, [0]) == first


def test_a_text_of_which_nothing_is_shown_is_a_text(annotator: Annotator, tmp_path: Path):
    write_set(tmp_path / "set")
    append(tmp_path / "set" / "corpus.jsonl", {"_id": "unseen", "text": "\u200b"})
    data = read_beir(Storage.open(str(tmp_path / "set")), "test")
    folder = Storage.open(str(tmp_path / "best"))
    assert SearchBlocks(data, folder, "en")(annotator, [0])[0]["documents"] == 31
    for name in READINGS:
        for found in best_of_all(folder, name, data.query_ids).values():
            assert abs(found["unseen"]) <= 1 + 1e-5, "not NaN, which would be the best of all"


def test_an_empty_title_is_no_sentence_and_texts_are_split_by_their_language(
    annotator: Annotator, monkeypatch: pytest.MonkeyPatch
):
    languages: list[str] = []
    split = lambda text, language: languages.append(language) or text.split("|")  # noqa: E731
    monkeypatch.setattr(search, "split_sentences", split)
    reader = TextEncoder(annotator.encoder)
    passages = [Passage("a", "", "the ship sails|a judge"), Passage("b", "the sky", "the ship sails")]
    ship, judge, sky = reader.vectors(["the ship sails", "a judge", "the sky"])
    means = torch.nn.functional.normalize(torch.stack([ship + judge, sky + ship]), dim=-1)
    torch.testing.assert_close(search.sentence_means(reader, passages, "de"), means)
    assert languages == ["de", "de"]


def test_one_more_is_found_than_is_looked_at(annotator: Annotator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """For the query may be a document, which doesn't count."""
    monkeypatch.setattr(beir_layout, "_BLOCK_BYTES", 1_500)
    monkeypatch.setattr(search, "DEPTH", 4)
    write_set(tmp_path / "set")
    data = read_beir(Storage.open(str(tmp_path / "set")), "test")
    folder = Storage.open(str(tmp_path / "best"))
    SearchBlocks(data, folder, "en")(annotator, list(range(len(data.blocks()))))
    for name in READINGS:
        assert {len(found) for found in best_of_all(folder, name, data.query_ids).values()} == {5}
        with open_parquet(folder / name / "00000.parquet") as opened:
            assert opened.metadata.num_rows == 5 * len(data.queries)
