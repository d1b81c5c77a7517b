"""Mirror-BERT: which tokens a span of characters covers, and how long tokens are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from infocse_ray.encoder.spec import _characters
from infocse_ray.methods.mirror_bert import MirrorBERT
from infocse_ray.sampling.stream import ExampleStream
from infocse_ray.settings import MirrorBERTSettings
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents
from tests.unit.stores import SPEC, Written, counted, write_annotations
from tests.unit.trainees import ragged

MASK = 4
SIZES = np.arange(200) % 9
LENGTHS = SPEC._replace(characters=np.where(SIZES == 0, 3, SIZES).astype(np.int16))
"""Tokens of 1 to 8 characters."""


def mirror(**section) -> MirrorBERT:
    return MirrorBERT(MirrorBERTSettings(**section), LENGTHS)


def augmented(method, rows, labels, seed=0):
    seeds = np.arange(len(rows), dtype=np.uint64) + np.uint64(seed)
    found = method.augment(ragged(rows), np.array(labels), seeds)
    assert found.values.dtype == np.uint16
    return [found.values[a:b].tolist() for a, b in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


def maskings(row, span):
    """What a row becomes by masking each span of characters, as text of one letter a character."""
    letters = [place for place, token in enumerate(row) for _ in range(int(LENGTHS.characters[token]))]
    found = []
    for start in range(len(letters) - span + 1):
        covered = set(letters[start : start + span])
        first, last = min(covered), max(covered)
        found.append([*row[:first], MASK, *row[last + 1 :]])
    return found


@given(st.lists(st.integers(5, 199), min_size=1, max_size=14), st.integers(0, 2**40), st.sampled_from([1, 5, 9]))
@settings(max_examples=150)
def test_one_mask_for_the_tokens_of_five_characters(row, seed, span):
    method = mirror(span=span)
    characters = int(LENGTHS.characters[row].sum())
    untouched, masked = augmented(method, [row, row], [0, 1], seed)
    assert untouched == row
    if characters < 30:
        assert masked == row
    else:
        assert masked in maskings(row, span)


def test_every_span_is_as_likely():
    row = [11, 12, 13, 14, 15, 16, 17]
    expected = maskings(row, 5)
    found = augmented(mirror(), [row] * 4000, [1] * 4000)
    for masked in {tuple(m) for m in expected}:
        share = expected.count(list(masked)) / len(expected)
        assert abs(found.count(list(masked)) / 4000 - share) < 0.04


def test_short_sentences_and_no_span():
    row = [5, 6, 7, 5]  # 23 characters
    assert augmented(mirror(), [row], [1]) == [row]
    assert augmented(mirror(shortest=24), [row], [1]) == [row]
    assert augmented(mirror(shortest=23), [row], [1]) != [row]
    assert augmented(mirror(shortest=1, span=0), [row], [1]) == [row]
    assert augmented(mirror(shortest=1, span=500), [row], [1]) == [[MASK]]
    assert augmented(mirror(), [], []) == []


def test_texts_are_told_apart_by_what_they_were_before(tmp_path):
    sentence = list(range(20, 34))
    documents = [Written(f"d{n}", [sentence, [n + 40] * 14]) for n in range(6)]
    source = write_annotations(Storage.open(str(tmp_path)), documents, 1, 1)
    method = MirrorBERT(MirrorBERTSettings(), SPEC)
    batch = ExampleStream(counted(source, method), method, 12, 1).next_batch()
    masked = batch.texts.hashes() != batch.text_ids
    assert masked.tolist() == [False, True] * 12
    first, second = batch.text_ids[::2], batch.text_ids[1::2]
    assert first.tolist() == second.tolist()
    # The sentence that all documents have, and one of each.
    assert sorted(np.unique(first, return_counts=True)[1].tolist()) == [1] * 6 + [6]


def test_an_encoder_without_a_mask_token_is_refused():
    with pytest.raises(ValueError, match=r"train\.method = mirror_bert.*no mask token") as error:
        MirrorBERT(MirrorBERTSettings(), SPEC._replace(mask=None))
    assert "\n" not in str(error.value)


def test_two_equal_views_are_refused():
    with pytest.raises(ValueError, match=r"span = 0, mirror_bert\.dropout = 0: both views .*; raise either$"):
        mirror(span=0, dropout=0.0)
    mirror(span=0)
    mirror(dropout=0.0)


def test_characters_of_word_pieces(tiny_encoder):
    tokenizer = AutoTokenizer.from_pretrained(tiny_encoder)
    characters = _characters(tokenizer)
    assert characters.dtype == np.int16
    assert len(characters) == len(tokenizer)
    for row in make_documents(20):
        for sentence in row["sentences"]:
            ids = tokenizer(sentence, add_special_tokens=False)["input_ids"]
            # The space before the first word too, and before the full stop, which word pieces don't tell apart.
            assert characters[ids].sum() == len(sentence) + 2
    ids = tokenizer("harbourx", add_special_tokens=False)["input_ids"]
    assert characters[ids].sum() == len(" harbourx")


@pytest.fixture(scope="module")
def byte_level():
    """A byte-level BPE tokenizer, as RoBERTa's: with tokens of ## in it, and letters of several bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    corpus = [s for row in make_documents(40) for s in row["sentences"]] + [
        "## A heading ##",
        "caf\u00e9 na\u00efve",
    ] * 30
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<s>", "</s>", "<pad>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", mask_token="<mask>")


SENTENCES = [
    "A ship on the coast.",
    "## heading",
    "caf\u00e9",
    "na\u00efve \u65e5\u672c\u8a9e \U0001f600 end",
    "  two  spaces",
    "a,b(c)",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_characters_of_byte_level_tokens(byte_level, sentence):
    assert "##" in byte_level.get_vocab()
    characters = _characters(byte_level)
    assert len(characters) == len(byte_level)
    assert characters[byte_level(sentence)["input_ids"]].sum() == len(sentence)


def test_characters_of_sentence_pieces():
    words = ["\u2581sea", "\u2581", "s", "e", "a", "##", "\u00e9"]
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), *((word, -1.0 - n) for n, word in enumerate(words))], 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
    assert _characters(wrapped)[1:8].tolist() == [4, 1, 1, 1, 1, 2, 1]
