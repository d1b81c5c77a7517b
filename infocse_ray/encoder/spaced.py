"""Sentences one after the other as one text, where a token takes in the space before its word.

The corpus is tokenised once, a sentence at a time. WordPiece makes the same of a text with spaces between its
sentences, and so does SentencePiece as most encoders have it. A byte-level tokenizer (RoBERTa's, ModernBERT's, Qwen's)
has another token for a word behind a space than for the same word at the beginning: there the first token of a
sentence is exchanged for that one. A word of several tokens may be cut otherwise behind a space; it keeps its cuts.
"""

from __future__ import annotations

import numpy as np
from tokenizers import Tokenizer

from infocse_ray.corpus.tokens import Tokens


def ids_behind_a_space(tokenizer: str) -> np.ndarray | None:
    """What each token of the vocabulary is behind a space.

    Args:
        tokenizer: what the corpus is tokenised with, as `tokenizers` JSON.

    Returns:
        uint32 [ids of the vocabulary], a token's own id where there is no other; None where a space changes no token.
    """
    loaded = Tokenizer.from_str(tokenizer)
    first, second, together = (loaded.encode(t, add_special_tokens=False).tokens for t in ("a", "b", "a b"))
    if together == first + second:
        return None
    mark = "".join(together[len(first) :]).removesuffix("".join(second))
    vocabulary = loaded.get_vocab()
    ids = np.arange(max(vocabulary.values()) + 1, dtype=np.uint32)
    for token, number in vocabulary.items():
        ids[number] = vocabulary.get(mark + token, number)
    return ids


def spacing(behind_a_space: np.ndarray | None) -> tuple[str, ...]:
    """What names results that depend on the token that a word behind a space has."""
    return () if behind_a_space is None else ("spaced",)


def as_one_text(sentences: Tokens, offsets: np.ndarray, behind_a_space: np.ndarray | None) -> Tokens:
    """Each document's sentences as one text.

    Args:
        sentences: of all documents.
        offsets: int64 [documents + 1]; document i has the sentences offsets[i]:offsets[i + 1].
        behind_a_space: as `ids_behind_a_space` has it; with None nothing is copied.
    """
    texts = Tokens(sentences.values, sentences.offsets[offsets])
    if behind_a_space is None:
        return texts
    at = np.arange(texts.offsets[0], texts.offsets[-1])
    return as_texts(sentences, at, texts.offsets - texts.offsets[0], behind_a_space)


def as_texts(sentences: Tokens, at: np.ndarray, offsets: np.ndarray, behind_a_space: np.ndarray | None) -> Tokens:
    """Texts made of parts of sentences, copied.

    Args:
        sentences: one after the other.
        at: int64 [tokens], where in `sentences.values` each token of the texts is.
        offsets: int64 [texts + 1]; text i has the tokens offsets[i]:offsets[i + 1].
        behind_a_space: as `ids_behind_a_space` has it.
    """
    values = sentences.values[at]
    if behind_a_space is not None and len(at):
        begins = np.zeros(len(sentences.values) + 1, bool)
        begins[sentences.offsets[:-1]] = True
        later = begins[at]
        later[offsets[:-1][np.diff(offsets) > 0]] = False
        values[later] = behind_a_space[values[later]]
    return Tokens(values, offsets)
