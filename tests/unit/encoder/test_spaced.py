"""Sentences as one text are what the tokenizer makes of them with spaces between."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.spaced import as_one_text, ids_behind_a_space
from infocse_ray.retrieval.documents import document_vectors, one_text_each, whole_length
from tests.unit.encoder.test_encoder import SENTENCES, load
from tests.unit.encoder.test_encoder_prompts import byte_level, encoder_with, unigram
from tests.unit.stores import SPEC
from tests.unit.trainees import method_for, views_of

OFFSETS = np.array([0, 3, 4, 4, 9])
"""Documents of three sentences, of one, of none and of five."""


def tokens_of(tokenizer: Tokenizer, texts: list[str], token: type = np.uint16) -> Tokens:
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    return Tokens(
        np.concatenate([np.array(row, token) for row in ids]), offsets_of(np.array([len(row) for row in ids]))
    )


def joined(texts: list[str]) -> list[str]:
    return [" ".join(texts[begin:end]) for begin, end in pairwise(OFFSETS)]


def rows(tokens: Tokens) -> list[list[int]]:
    return [tokens.values[a:b].tolist() for a, b in pairwise(tokens.offsets)]


@pytest.fixture
def wordpiece(tiny_encoder: Path) -> Tokenizer:
    return Tokenizer.from_str(load(tiny_encoder).corpus_tokenizer().content)


def test_a_byte_level_tokenizers_sentences_are_joined_by_its_tokens_for_words_behind_a_space() -> None:
    tokenizer = byte_level()
    sentences = SENTENCES[:9]
    found = ids_behind_a_space(tokenizer.to_str())
    assert found is not None
    given = tokens_of(tokenizer, sentences)
    texts = as_one_text(given, OFFSETS, found)
    assert rows(texts) == rows(tokens_of(tokenizer, joined(sentences)))
    assert texts.values.dtype == np.uint16
    assert rows(given) == rows(tokens_of(tokenizer, sentences)), "the sentences stay as they were"
    assert rows(as_one_text(given, OFFSETS, None)) != rows(texts)


def of_methods(case: str, found: np.ndarray | None, sentences: Tokens) -> list[list[int]]:
    """Texts that a method trains on, of a document."""
    spec = SPEC._replace(behind_a_space=found, sentence_tokens=60, longest=400, vocabulary=600)
    count = len(sentences)
    known: Any = Documents(["a"], np.array([1]), np.array([0, count]), sentences, None, None)  # pyright: ignore
    method = method_for(case, spec)
    opened = method.open(known)
    return [ids for number in range(opened.examples[0]) for _, ids in views_of(method, opened, number, 3)]


@pytest.mark.parametrize("case", ["ict", "conpono", "declutr"])
def test_methods_join_sentences_as_they_are_read_whole(case: str) -> None:
    tokenizer = byte_level()
    found = ids_behind_a_space(tokenizer.to_str())
    assert found is not None
    texts = SENTENCES[:9]

    def ids_of(*some: str) -> list[int]:
        return tokenizer.encode(" ".join(some), add_special_tokens=False).ids

    sentences = tokens_of(tokenizer, texts)
    made = of_methods(case, found, sentences)
    if case == "declutr":  # spans of the document's tokens, but that what begins a text has no space before it
        whole = ids_of(*texts)
        ends = [ids[1:] for ids in made]
        assert all(any(whole[i : i + len(end)] == end for i in range(len(whole))) for end in ends)
    else:
        ways = [texts[a:b] for a in range(9) for b in range(a + 1, 10)]
        ways += [way[:i] + way[i + 1 :] for way in ways for i in range(len(way))]  # around a query
        possible = {tuple(ids_of(*way)[:n]) for way in ways for n in (None, 30, 10)}
        assert {tuple(ids) for ids in made} <= possible
    assert made != of_methods(case, None, sentences)
    assert method_for(case).identity() != method_for(case, SPEC._replace(behind_a_space=found)).identity()


def test_methods_of_single_sentences_know_no_spaces() -> None:
    found = ids_behind_a_space(byte_level().to_str())
    for case in ("idc", "simcse", "ict sentences", "cpc"):
        assert method_for(case).identity() == method_for(case, SPEC._replace(behind_a_space=found)).identity()


def test_documents_from_the_middle_are_the_same_texts() -> None:
    tokenizer = byte_level()
    sentences = tokens_of(tokenizer, SENTENCES[:9])
    found = ids_behind_a_space(tokenizer.to_str())
    assert rows(as_one_text(sentences, OFFSETS[1:], found)) == rows(as_one_text(sentences, OFFSETS, found))[1:]


def test_a_token_without_another_one_behind_a_space_stays() -> None:
    tokenizer = byte_level()
    found = ids_behind_a_space(tokenizer.to_str())
    assert found is not None
    vocabulary = tokenizer.get_vocab()
    alone = [number for token, number in vocabulary.items() if f"Ġ{token}" not in vocabulary]
    assert alone
    assert found[alone].tolist() == alone
    assert vocabulary["[CLS]"] in alone


@pytest.mark.parametrize("make", ["wordpiece", "unigram"])
def test_where_a_space_changes_no_token_nothing_is_exchanged_nor_copied(make: str, wordpiece: Tokenizer) -> None:
    tokenizer = wordpiece if make == "wordpiece" else unigram()
    assert ids_behind_a_space(tokenizer.to_str()) is None
    sentences = tokens_of(tokenizer, SENTENCES[:9])
    texts = as_one_text(sentences, OFFSETS, None)
    assert texts.values is sentences.values
    assert rows(texts) == rows(tokens_of(tokenizer, joined(SENTENCES[:9])))


def test_a_document_is_read_whole_as_its_text_is_encoded(tmp_path: Path) -> None:
    tokenizer = byte_level()
    encoder: SentenceEncoder = load(encoder_with(tokenizer, tmp_path / "encoder")).eval()
    offsets = np.array([0, 3, 4])
    sentences = SENTENCES[:4]
    texts = [" ".join(sentences[:3]), sentences[3]]
    read = document_vectors(encoder, [None], tokens_of(tokenizer, sentences), offsets, "whole")[0]
    tokens = tokens_of(tokenizer, texts).cut(whole_length(encoder))
    assert rows(one_text_each(encoder, tokens_of(tokenizer, sentences), offsets).cut(whole_length(encoder))) == rows(
        tokens
    )
    expected = document_vectors(encoder, [None], tokens, np.arange(3), "whole")[0]
    torch.testing.assert_close(read, expected)
