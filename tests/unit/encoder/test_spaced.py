"""Sentences as one text are what the tokenizer makes of them with spaces between."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.spaced import as_one_text, ids_behind_a_space
from infocse_ray.retrieval.documents import document_vectors, one_text_each, whole_length
from tests.unit.encoder.test_encoder import SENTENCES, load
from tests.unit.encoder.test_encoder_prompts import byte_level, encoder_with, unigram

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
    return Tokenizer.from_str(load(tiny_encoder).corpus_tokenizer())


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
