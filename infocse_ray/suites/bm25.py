"""BM25, the row that every table of retrieval needs, by bm25s: Lucene's variant, k1 = 1.5 and b = 0.75."""

from __future__ import annotations

import unicodedata
from typing import Any, NamedTuple

import numpy as np

from infocse_ray.runtime.libraries import check_installed
from infocse_ray.search.words import MARKED, UNSPACED
from infocse_ray.suites.beir_layout import BeirSet
from infocse_ray.suites.measures import DEPTH, found_once

_AT_ONCE = 1_000
_LETTER = r"(?u)\w"
"""Where nothing parts words each letter counts as one, as Lucene's StandardAnalyzer has it of ideographs."""
_MARKS = "".join(c for c in map(chr, range(0x300, 0xFFFF)) if unicodedata.category(c) in ("Mn", "Mc"))
_WITH_MARKS = rf"[\w{_MARKS}\u200c\u200d]{{2,}}"
"""Where letters have marks, which Python's `\\w` leaves out; joiners are part of words, too."""


class Words(NamedTuple):
    """What happens to words before they are counted."""

    stemmer: str | None
    """Snowball's name of the language; None: words stay as they are."""
    stopwords: str | list[str]
    """bm25s' name of the list; none: an empty list."""
    pattern: str = r"(?u)\b\w\w+\b"
    """A word, as a regular expression; bm25s' own leaves out words of one letter."""

    @property
    def said(self) -> str:
        """For people."""
        stemmed = "Snowball stemmer" if self.stemmer else "no stemmer"
        letters = ", letters as words" if self.pattern == _LETTER else ""
        return f"{stemmed}, {'stop words' if self.stopwords else 'no stop words'}{letters}"


def require_bm25() -> tuple[Any, Any]:
    """The modules bm25s and Stemmer.

    Raises:
        ValueError: one isn't installed.
    """
    check_installed(["bm25s", "Stemmer"], "suites", "BM25")
    import bm25s
    import Stemmer

    return bm25s, Stemmer


def version() -> str:
    """Of bm25s."""
    return require_bm25()[0].__version__


def words_of(language: str) -> Words:
    """The stemmer and the stop words that there are for a language.

    Args:
        language: ISO 639-1 code.
    """
    bm25s, stemmer = require_bm25()
    if language == "nb":
        language = "no"  # Snowball's Norwegian is Bokmål
    try:
        stemmer.Stemmer(language)  # it knows the codes, too
        stems = language
    except KeyError:
        stems = None
    try:
        bm25s.tokenize(["a"], stopwords=language, show_progress=False)
        stop: str | list[str] = language
    except ValueError:
        stop = []
    if language in UNSPACED:
        return Words(stems, stop, _LETTER)
    return Words(stems, stop, _WITH_MARKS) if language in MARKED else Words(stems, stop)


class Index:
    """Texts to be searched by words, in memory."""

    def __init__(self, texts: list[str], words: Words) -> None:
        """Count the words of each text.

        Args:
            texts: what is searched, [documents].
            words: what happens to words, also to those of queries.
        """
        bm25s, stemmer = require_bm25()
        self._words = words
        self._stem = stemmer.Stemmer(words.stemmer) if words.stemmer else None
        corpus = self._tokens(texts)
        self._known = {token for text in corpus for token in text}
        self._index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
        self._documents = len(texts)
        if self._known:  # else they are nothing but stop words
            self._index.index(corpus, show_progress=False)

    def _tokens(self, texts: list[str]) -> list[list[str]]:
        return require_bm25()[0].tokenize(
            texts,
            stopwords=self._words.stopwords,
            stemmer=self._stem,
            token_pattern=self._words.pattern,
            return_ids=False,
            show_progress=False,
        )

    def _asked(self, queries: list[str]) -> list[list[str]]:
        """The words of queries that there are."""
        return [[token for token in query if token in self._known] for query in self._tokens(queries)]

    def scores(self, query: str) -> np.ndarray:
        """float32 [documents], of each text; 0 where it shares no word with the query."""
        (asked,) = self._asked([query])
        return self._index.get_scores(asked) if asked else np.zeros(self._documents, np.float32)

    def best(self, queries: list[str], most: int) -> list[list[tuple[int, float]]]:
        """Of each query the texts that share a word with it, at most so many, the best first; with their scores."""
        asked = self._asked(queries)
        some = [one for one in asked if one]
        if not some:
            return [[] for _ in asked]
        rows, scores = self._index.retrieve(some, k=min(most, self._documents), show_progress=False)
        found = iter(zip(rows.tolist(), scores.tolist(), strict=True))
        return [[pair for pair in zip(*next(found), strict=True) if pair[1] > 0] if one else [] for one in asked]


def search(data: BeirSet, words: Words) -> dict[str, dict[str, float]]:
    """The best documents of each query that share a word with it, with their scores; all texts are in memory."""
    doc_ids, texts = [], []
    for passage in data.passages():
        doc_ids.append(passage.doc_id)
        texts.append(passage.whole)
    index = Index(texts, words)
    found: dict[str, dict[str, float]] = {}
    for begin in range(0, len(data.queries), _AT_ONCE):
        best = index.best(data.queries[begin : begin + _AT_ONCE], DEPTH + 1)
        for query, rows in zip(data.query_ids[begin:], best, strict=False):
            if rows:
                found[query] = found_once((doc_ids[row], score) for row, score in rows)
    return found
