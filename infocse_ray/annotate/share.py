"""A draw of documents: those that an iteration annotates, where these aren't all.

1. Shards are drawn by a hash of the seed, the iteration and the shard, as many in each lane, so that a lane is as long
   as the others and every iteration reads other documents.
2. Of their documents, where fewer are enough, a part is drawn likewise.
3. One shard of each lane and a quarter of so many documents, the first by a hash of the seed alone, are in every draw:
   iterations have documents in common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokens import drawn, sample_hashes

IN_EVERY_DRAW = 0.25
"""Of the documents that are drawn."""

_DOCUMENTS = 0xD0C5
"""Sets the hashes of documents apart from others of the same seed."""

_SHARDS, _PART = "shards_a_lane", "part_of_documents"
"""In a stage's summary."""


class Share(NamedTuple):
    """A draw."""

    a_lane: int
    """How many shards of each lane."""
    seed: int
    iteration: int
    documents: float = 1.0
    """About which part of these shards' documents."""

    @classmethod
    def of_stage(cls, summary: dict[str, Any] | None, seed: int, iteration: int) -> Share | None:
        """What a finished annotate stage annotated; None: all documents."""
        summary = summary or {}
        a_lane = summary.get(_SHARDS)
        return None if a_lane is None else cls(a_lane, seed, iteration, summary.get(_PART, 1.0))

    @property
    def whole_shards(self) -> bool:
        """Whether all documents of the shards are drawn."""
        return self.documents >= 1.0

    def identity(self) -> tuple[float, ...]:
        """What names it; shards that are drawn whole are named as they were when there was nothing else."""
        return tuple(self[:3]) if self.whole_shards else tuple(self)

    def summary(self) -> dict[str, float]:
        """What the stage's summary says of it."""
        return {_SHARDS: self.a_lane} | ({} if self.whole_shards else {_PART: self.documents})

    def shards(self, store: TokenStore) -> list[int]:
        """The shards that are drawn, ascending; lane l has l, l + lanes, and so on."""
        lanes = store.summary["lanes"]
        shard = np.arange(store.shards)
        hashes = sample_hashes(self.seed, np.full(len(shard), self.iteration), shard).reshape(-1, lanes)
        always = sample_hashes(self.seed, shard).reshape(-1, lanes).argmin(axis=0)
        hashes[always, np.arange(lanes)] = np.iinfo(np.int64).min
        first = np.argsort(hashes, axis=0, kind="stable")[: self.a_lane]
        return np.sort(shard.reshape(-1, lanes)[first, np.arange(lanes)], axis=None).tolist()

    def has(self, keys: np.ndarray) -> np.ndarray:
        """Bool [n]: which documents of a drawn shard are drawn, by their keys (int64)."""
        if self.whole_shards:
            return np.ones(len(keys), bool)
        seed = self.seed ^ _DOCUMENTS
        in_every = drawn(sample_hashes(seed, keys), self._always)
        return in_every | drawn(sample_hashes(seed, np.full(len(keys), self.iteration), keys), self._now)

    @property
    def _always(self) -> float:
        """The part of documents that is in every draw."""
        return self.documents * IN_EVERY_DRAW

    @property
    def _now(self) -> float:
        """The part of the others that is in this one."""
        return (self.documents - self._always) / (1.0 - self._always)

    def of_all(self, store: TokenStore) -> float:
        """The part of the store that is drawn."""
        return self.documents * self.a_lane * store.summary["lanes"] / store.shards


def in_all(draws: Sequence[Share]) -> float:
    """About which part of their shards' documents some draws of one seed, each of another iteration, have in common."""
    some = [share for share in draws if not share.whole_shards]
    if not some:
        return 1.0
    # Those that are in every draw, and those that each happens to have: with few draws, or large ones, these are more.
    always = min(share._always for share in some)
    return always + (1.0 - always) * math.prod(share._now for share in some)
