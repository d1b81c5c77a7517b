"""BM25, the row that every table of retrieval needs, by bm25s: Lucene's variant, k1 = 1.5 and b = 0.75."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from infocse_ray.suites.beir_layout import BeirSet
from infocse_ray.suites.measures import DEPTH

_AT_ONCE = 1_000


class Words(NamedTuple):
    """What happens to words before they are counted."""

    stemmer: str | None
    """Snowball's name of the language; None: words stay as they are."""
    stopwords: str | list[str]
    """bm25s' name of the list; none: an empty list."""

    @property
    def said(self) -> str:
        """For people."""
        stemmed = "Snowball stemmer" if self.stemmer else "no stemmer"
        return f"{stemmed}, {'stop words' if self.stopwords else 'no stop words'}"


def require_bm25() -> tuple[Any, Any]:
    """The modules bm25s and Stemmer.

    Raises:
        ValueError: one isn't installed.
    """
    try:
        import bm25s
        import Stemmer
    except ImportError as error:
        raise ValueError(f"suite = beir: needs {error.name}; pip install 'infocse-ray[suites]'") from error
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
    return Words(stems, stop)


def search(data: BeirSet, words: Words) -> dict[str, dict[str, float]]:
    """The best documents of each query that share a word with it, with their scores; all texts are in memory."""
    bm25s, stemmer = require_bm25()
    stem = stemmer.Stemmer(words.stemmer) if words.stemmer else None
    doc_ids, texts = [], []
    for passage in data.passages():
        doc_ids.append(passage.doc_id)
        texts.append(passage.whole)

    def tokens(some: list[str]) -> Any:
        return bm25s.tokenize(some, stopwords=words.stopwords, stemmer=stem, return_ids=False, show_progress=False)

    corpus = tokens(texts)
    if not any(corpus):  # nothing but stop words
        return {}
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index(corpus, show_progress=False)
    known = {token for document in corpus for token in document}
    found: dict[str, dict[str, float]] = {}
    names = np.array(doc_ids, object)
    for begin in range(0, len(data.queries), _AT_ONCE):
        asked = [[t for t in query if t in known] for query in tokens(data.queries[begin : begin + _AT_ONCE])]
        some = [(query, own) for query, own in zip(data.query_ids[begin:], asked, strict=False) if own]
        if not some:
            continue
        rows, scores = index.retrieve([own for _, own in some], k=min(DEPTH + 1, len(names)), show_progress=False)
        for (query, _), mine, values in zip(some, names[rows].tolist(), scores.tolist(), strict=True):
            found[query] = {doc: score for doc, score in zip(mine, values, strict=True) if score > 0}
    return found
