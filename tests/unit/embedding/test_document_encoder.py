"""Vectors of documents and queries in this process: those of `infocse embed` and of searches in what it wrote."""

from __future__ import annotations

import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from infocse_ray import DocumentEncoder
from infocse_ray.embedding import document_encoder
from infocse_ray.embedding.queries import vectors_of_queries
from infocse_ray.loop.its_run import as_read_by
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from tests.unit.indexes import TEXTS, tiny, write_index

SHAPE: dict[str, Any] = {"max_length": 16, "compute": "fp32"}
LISTS = [text.sentences for text in TEXTS]


def embedded(folder: Path, encoder: Path, **settings: Any) -> np.ndarray:
    """The vectors that `infocse embed` writes of TEXTS, in their order."""
    output = write_index(folder, encoder, **settings)
    rows = pq.read_table((output / "vectors" / "documents").path).to_pylist()
    vectors = {row["doc_id"]: row["vector"] for row in rows}
    return np.asarray([vectors[text.doc_id] for text in TEXTS])


@pytest.mark.parametrize("reading", ["sentences", "whole", "both"])
@pytest.mark.parametrize("prompt", [None, "the ship "])
def test_documents_have_the_vectors_that_embed_writes(
    tiny_encoder: Path, tmp_path: Path, reading: Any, prompt: str | None
):
    expected = embedded(tmp_path, tiny_encoder, reading=reading, document_prompt=prompt)
    encoder = DocumentEncoder(tiny_encoder, reading=reading, document_prompt=prompt, **SHAPE)
    vectors = encoder.encode_document(LISTS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    texts = [" ".join(sentences) for sentences in LISTS]
    np.testing.assert_allclose(encoder.encode_document(texts), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_document(texts[1]), expected[1], atol=1e-5)
    assert (encoder.reading, encoder.similarity, encoder.dimension) == (reading, "cosine", 32)


def test_many_documents_are_embedded_some_at_a_time(tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch):
    encoder = DocumentEncoder(tiny_encoder, **SHAPE)
    whole, asked = encoder.encode_document(LISTS * 3), encoder.encode_query(["a ship", "the moon", "salt"])
    monkeypatch.setattr(document_encoder, "SENTENCES_AT_ONCE", 2)
    np.testing.assert_allclose(encoder.encode_document(LISTS * 3), whole, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_query(["a ship", "the moon", "salt"]), asked, atol=1e-5)


def test_queries_have_the_prompt_of_queries(tiny_encoder: Path):
    encoder = DocumentEncoder(tiny_encoder, query_prompt="the storm ", **SHAPE)
    expected = vectors_of_queries(tiny(tiny_encoder, query_prompt="the storm ").eval(), ["a ship", "salt"])
    np.testing.assert_allclose(encoder.encode_query(["a ship", "salt"]), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_query("salt"), expected[1], atol=1e-5)
    assert np.abs(DocumentEncoder(tiny_encoder, **SHAPE).encode_query("salt") - expected[1]).max() > 1e-3


def test_nothing_gives_nothing(tiny_encoder: Path):
    encoder = DocumentEncoder(tiny_encoder, **SHAPE)
    assert encoder.encode_document([]).shape == encoder.encode_query([]).shape == (0, 32)


def test_what_isnt_given_is_as_its_run_had_it(tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen = []
    monkeypatch.setattr(
        document_encoder,
        "visible_sentences",
        lambda documents, language: seen.append(language) or [[one] for one in documents],
    )
    had = Settings.model_validate(
        {
            "name": "news",
            "corpus": {"source": "a", "language": "de"},
            "encoder": {"model": str(tiny_encoder), "max_length": 8},
            "validate": {"reading": "whole"},
            "train": {"similarity": "dot"},
        }
    )
    copied = tmp_path / "copied"
    shutil.copytree(tiny_encoder, copied)
    as_read_by(had).write(Storage.open(str(copied)))
    its, asked = DocumentEncoder(copied), DocumentEncoder(copied, reading="sentences", language="fr", **SHAPE)
    assert (its.reading, its.similarity) == ("whole", "dot")
    assert (asked.reading, asked.similarity) == ("sentences", "dot")
    longer = "the ship and the tide near the island and the storm"
    for encoder in (its, asked):
        encoder.encode_document([longer])
    assert seen == ["de", "fr"]
    cut = [np.abs(one.encode_query(longer) - one.encode_query(longer + " salt")).max() for one in (its, asked)]
    assert cut[0] == 0, "beyond 8 tokens nothing is read"
    assert cut[1] > 1e-3


def test_a_folder_that_says_it_wrongly_is_no_matter_where_all_is_said(tiny_encoder: Path, tmp_path: Path):
    shutil.copytree(tiny_encoder, copied := tmp_path / "copied")
    (copied / "infocse.json").write_text('{"reading": "of a later version"}')
    with pytest.raises(ValueError, match="or say all of reading, max_length, similarity and language"):
        DocumentEncoder(copied, reading="whole")
    DocumentEncoder(copied, reading="whole", similarity="cosine", language="en", **SHAPE)


def test_several_threads_may_ask_and_a_copy_is_loaded_elsewhere(tiny_encoder: Path):
    encoder = DocumentEncoder(tiny_encoder, reading="whole", **SHAPE)
    expected = [encoder.encode_document([sentences])[0] for sentences in LISTS]
    asked = encoder.encode_query("the ship " * 20)
    with ThreadPoolExecutor(4) as pool:
        documents = [pool.submit(encoder.encode_document, [sentences]) for sentences in LISTS * 5]
        queries = [pool.submit(encoder.encode_query, "the ship " * 20) for _ in range(20)]
        for number, one in enumerate(documents):
            np.testing.assert_allclose(one.result()[0], expected[number % len(LISTS)], atol=1e-5)
        for one in queries:
            np.testing.assert_allclose(one.result(), asked, atol=1e-5, err_msg="cut where queries are, not whole texts")
    other = pickle.loads(pickle.dumps(encoder))
    assert other.reading == "whole"
    np.testing.assert_allclose(other.encode_document(LISTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reading": "halves"}, "reading = 'halves': should be"),
        ({"max_length": 2}, "max_length = 2: "),
        ({"max_length": 100}, "max_length = 100: .* has 64 positions"),
        ({"language": "German"}, "language = 'German': give the language.s ISO 639-1 code"),
        ({"model": "no/such/folder"}, "model = .no/such/folder.: "),
        ({"model": 5}, "model = 5: "),
    ],
)
def test_a_setting_that_doesnt_fit_is_named(tiny_encoder: Path, given: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=rf"^{said}"):
        DocumentEncoder(**{"model": tiny_encoder, **given})


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        (["a ship", " \u200b"], "item 1 has no text; leave it out"),
        ([["a ship"], []], "item 1 has no text"),
        ([{"body": "a ship"}], "item 0 is .*give a list of texts"),
    ],
)
def test_documents_without_text_are_named(tiny_encoder: Path, documents: Any, said: str):
    with pytest.raises(ValueError, match=rf"^documents: {said}"):
        DocumentEncoder(tiny_encoder, **SHAPE).encode_document(documents)


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        (["a ship", " "], r"queries\[1\]: has no text"),
        (5, "queries: is a int"),
        ([5], r"queries\[0\]: is a int"),
        ("", "query: has no text"),
    ],
)
def test_what_is_no_query_is_named(tiny_encoder: Path, queries: Any, said: str):
    with pytest.raises(ValueError, match=rf"^{said}"):
        DocumentEncoder(tiny_encoder, **SHAPE).encode_query(queries)
