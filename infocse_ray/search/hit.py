"""What a search finds."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa


class Hit(NamedTuple):
    """A document, or a sentence, that was found."""

    rank: int
    """From 1."""
    doc_id: str
    number: int | None
    """Of the sentence in its document, from 0; None for a document."""
    title: str
    text: str
    similarity: float
    """Of its vector and the query's."""
    words: float | None = None
    """BM25 of its words for the query; None where words don't count."""
    passage: str | None = None
    """The sentence of its text that fits the query best (`Index.with_passages`); None where nobody asked, or it is a
    sentence itself."""
    best_sentence: float | None = None
    """Similarity of its best sentence's vector and the query's; None where that doesn't count."""
    metadata: dict[str, Any] | None = None
    """Of the document, by name: str, list of str, int, float, bool or datetime, None where it has none; None in an
    index without any."""

    @property
    def key(self) -> tuple[str, int | None]:
        """What names it in every index of the same documents."""
        return self.doc_id, self.number


def hits_of(found: pa.Table) -> list[Hit]:
    """Rows of the engine, best first, as results."""
    rows: list[dict[str, Any]] = found.to_pylist()
    return [
        Hit(
            rank,
            row["doc_id"],
            row.get("number"),
            row["title"],
            row["text"],
            row["similarity"],
            row.get("words"),
            best_sentence=row.get("best_sentence"),
            metadata=row.get("metadata"),
        )
        for rank, row in enumerate(rows, 1)
    ]
