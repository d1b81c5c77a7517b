"""One query, two encoders: where each result stands in the other's list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from infocse_ray.search.index import Hit, Index

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
    if len(indexes) == 1:
        [index] = indexes
        return [[Placed(hit, None) for hit in index.with_passages(query, index.search(query, top, exact, where))]]
    lists = [index.search(query, max(top, DEPTH), exact, where) for index in indexes]
    ranks = [{hit.key: hit.rank for hit in hits} for hits in lists]
    return [
        [Placed(hit, others.get(hit.key)) for hit in index.with_passages(query, hits[:top])]
        for index, hits, others in zip(indexes, lists, reversed(ranks), strict=True)
    ]
