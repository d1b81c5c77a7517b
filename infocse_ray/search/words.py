"""Words: the engine's full-text index of a dataset's texts, which scores them by BM25 (Robertson & Zaragoza 2009)."""

from __future__ import annotations

from typing import Any

import numpy as np

from infocse_ray.runtime.progress import say

_LANGUAGES = {
    "ar": "Arabic",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "hu": "Hungarian",
    "it": "Italian",
    "nb": "Norwegian",
    "nl": "Dutch",
    "no": "Norwegian",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "ta": "Tamil",
    "tr": "Turkish",
}
"""Those whose words Lance stems, by ISO 639-1."""
UNSPACED = {"ja", "km", "lo", "my", "th", "zh"}
"""Those that don't part words by spaces: ICU finds them."""
MARKED = {"as", "bn", "bo", "dv", "dz", "gu", "hi", "kn", "ml", "mr", "ne", "or", "pa", "sa", "si", "ta", "te"}
"""Those whose letters have marks (vowels, viramas) at which a simple tokenizer cuts words: ICU doesn't."""
_COLUMN = "text"
_NAME = "infocse_words_"


def index_words(dataset: Any, language: str | None, quiet: bool = False) -> None:
    """Index the texts, unless they are, with words stemmed and without stop words where the language is one of Lance's.

    An index that somebody else made is taken as it is; one of ours for another language gives way.

    Args:
        dataset: of Lance, with a column `text`; one on disk is changed.
        language: ISO 639-1, of the texts; None: it isn't known.
        quiet: don't say so.
    """
    name = f"{_NAME}{language}"
    others = _others(dataset, name)
    if others is None:
        return
    if not quiet:
        say(f"indexing the words of {dataset.count_rows():,} texts (language: {language or 'unknown'}), once ...")
    for other in others:
        dataset.drop_index(other)
    known = _LANGUAGES.get(language or "")
    how: dict[str, Any] = {"language": known} if known else {"stem": False, "remove_stop_words": False}
    how |= {"base_tokenizer": "icu"} if language in UNSPACED | MARKED else {}
    try:
        dataset.create_scalar_index(_COLUMN, "INVERTED", name=name, **how)
    except OSError:
        dataset.checkout_latest()  # another process may have indexed them meanwhile
        if _others(dataset, name) is not None:
            raise


def _others(dataset: Any, name: str) -> list[str] | None:
    """Our indexes of words that aren't the one of this name; None if that, or somebody else's, is there."""
    there = [
        index.name
        for index in dataset.describe_indices()
        if index.field_names == [_COLUMN] and index.index_type.lower() == "inverted"
    ]
    others = [one for one in there if one.startswith(_NAME) and one != name]
    return others if len(there) == len(others) else None


def best_by_words(dataset: Any, query: str, top: int, where: str | None = None) -> np.ndarray:
    """Numbers (Lance's `_rowid`) of the rows that score highest, best first; those that share no word aren't there.

    Args:
        dataset: whose words are indexed.
        query: a text.
        top: how many.
        where: a condition that they meet.
    """
    return _scored(dataset, query, where, limit=top)["_rowid"].to_numpy()


def scores_by_words(dataset: Any, query: str, rows: np.ndarray) -> np.ndarray:
    """BM25 of rows, whose words are weighed by how rare they are in all of the dataset.

    Args:
        dataset: whose words are indexed.
        query: a text.
        rows: uint64 [n], Lance's numbers of them.

    Returns:
        float64 [n]; 0 where a row shares no word with the query.
    """
    if not len(rows):
        return np.zeros(0)
    found = _scored(dataset, query, among(rows), limit=len(rows))
    of = dict(zip(found["_rowid"].to_pylist(), found["_score"].to_pylist(), strict=True))
    return np.array([of.get(row, 0.0) for row in rows.tolist()])


def among(rows: np.ndarray) -> str:
    """A filter that lets through these rows alone."""
    return f"_rowid IN ({','.join(map(str, rows.tolist()))})"


def _scored(dataset: Any, query: str, where: str | None, **how: Any) -> Any:
    from lance.query import MatchQuery

    how |= {} if where is None else {"filter": where, "prefilter": True}
    asked = MatchQuery(query, _COLUMN)  # plain words; as text, quotes would ask for a phrase
    return dataset.to_table(columns=["_score"], full_text_query=asked, with_row_id=True, **how)
