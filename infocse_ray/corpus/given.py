"""Documents that somebody has in Python, as texts or as lists of sentences, sentence by sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from infocse_ray.corpus.sentences import given_sentences, split_sentences
from infocse_ray.settings.corpus import language_code
from infocse_ray.settings.text import is_utf8

_WANTED = "give a list of texts, or of lists of sentences"


def checked_language(language: object) -> str:
    """A code that sentences can be split by.

    Raises:
        ValueError: it is none.
    """
    try:
        return language_code(language if isinstance(language, str) else "")
    except ValueError as error:
        raise ValueError(f"language = {language!r}: {error}") from None


def sentences_of(documents: Sequence[str | Sequence[str]], language: str) -> list[list[str]]:
    """The sentences of each, split where they aren't given, as those of a corpus; none where nothing is visible.

    Args:
        documents: texts, or lists of sentences.
        language: ISO 639-1, of the sentence splitter's rules.

    Raises:
        ValueError: something else is among them, or what isn't UTF-8, or they are no list of such.
    """
    return [
        split_sentences(one, language) if isinstance(one, str) else given_sentences(one) for one in _checked(documents)
    ]


def visible_sentences(documents: Sequence[str | Sequence[str]], language: str) -> list[list[str]]:
    """As `sentences_of`, of documents of which each has some.

    Raises:
        ValueError: one has none, too.
    """
    texts = sentences_of(documents, language)
    for number, sentences in enumerate(texts):
        if not sentences:
            raise ValueError(f"documents: item {number} has no text; leave it out")
    return texts


def _checked(documents: Sequence[str | Sequence[str]]) -> list[str | list[str]]:
    if isinstance(documents, str):
        raise ValueError(f"documents: is one text; {_WANTED}")
    if isinstance(documents, Mapping) or hasattr(documents, "columns") or not isinstance(documents, Iterable):
        raise ValueError(f"documents: is a {type(documents).__qualname__}; {_WANTED}, such as a column of it")
    checked = []
    for number, one in enumerate(documents):
        texts = one if isinstance(one, list | tuple | np.ndarray) else [one]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"documents: item {number} is {one!r:.60}; {_WANTED}")
        if any(isinstance(text, str) and not is_utf8(text) for text in texts):
            raise ValueError(f"documents: item {number} isn't UTF-8: {one!r:.60}; leave out what is no character")
        checked.append(one if isinstance(one, str) else list(texts))
    return checked
