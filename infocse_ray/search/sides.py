"""One query, or one document, and two encoders: where each result stands in the other's list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from infocse_ray.search.hit import Hit
from infocse_ray.search.index import Index

DEPTH = 100
"""How far down the other list a result is looked for."""


class Placed(NamedTuple):
    """A result, and its rank in the other list."""

    hit: Hit
    other: int | None
    """None: it isn't among the first `DEPTH` (or as many as are shown, if these are more)."""

    @property
    def moved(self) -> int | None:
        """Ranks that it stands higher here than in the other list; None: it isn't there."""
        return None if self.other is None else self.other - self.hit.rank


def search_sides(
    indexes: Sequence[Index], query: str, top: int, exact: bool = False, where: str | None = None
) -> list[list[Placed]]:
    """The results of one index, or of two, each with the sentence that fits best and its rank in the other.

    Args:
        indexes: one or two.
        query: a text.
        top: results of each.
        exact: as for `Index.search`.
        where: likewise.
    """
    lists = [index.search(query, _deep(indexes, top), exact, where) for index in indexes]
    shown = [index.with_passages(query, hits[:top]) for index, hits in zip(indexes, lists, strict=True)]
    return _placed(shown, lists)


def like_sides(
    indexes: Sequence[Index], doc_id: str, top: int, exact: bool = False, where: str | None = None
) -> list[list[Placed]]:
    """Likewise what is most similar to a document of them.

    Raises:
        ValueError: as `Index.like`.
    """
    lists = [index.like(doc_id, _deep(indexes, top), exact, where) for index in indexes]
    return _placed([hits[:top] for hits in lists], lists)


def _deep(indexes: Sequence[Index], top: int) -> int:
    """How many results to look for, where so many are shown."""
    return max(top, DEPTH) if len(indexes) > 1 else top


def _placed(shown: Sequence[Sequence[Hit]], lists: Sequence[Sequence[Hit]]) -> list[list[Placed]]:
    if len(lists) == 1:
        return [[Placed(hit, None) for hit in shown[0]]]
    ranks = [{hit.key: hit.rank for hit in hits} for hits in lists]
    return [
        [Placed(hit, others.get(hit.key)) for hit in hits] for hits, others in zip(shown, reversed(ranks), strict=True)
    ]
