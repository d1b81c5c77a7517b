"""The positive pairs of one document, counted and dealt out one by one without listing them.

1. Sentences sorted by cluster; a cluster of c sentences has c(c-1)/2 unordered pairs (Eq. 4), numbered in a row.
2. A number is turned back into its pair by arithmetic.
3. The i-th pair dealt is number (a*i + b) mod m, a coprime to m: a permutation of all m that needs no memory.
"""

from __future__ import annotations

import math

import numpy as np

from infocse_ray.corpus.tokens import Tokens, offsets_of

_WORD = (1 << 64) - 1


class PairedDocument:
    """A document whose in-cluster pairs are dealt out in a seeded order, each once."""

    def __init__(
        self, doc_id: str, key: int, sentences: Tokens, clusters: np.ndarray, seed: int, used: int = 0
    ) -> None:
        self.doc_id, self.key, self.sentences = doc_id, key, sentences
        self._order = np.argsort(clusters, kind="stable")
        sizes = np.bincount(clusters)
        self._starts = offsets_of(sizes)
        self._pairs_before = offsets_of(sizes * (sizes - 1) // 2)
        self.pairs = int(self._pairs_before[-1])
        self.used = used
        if self.pairs:
            self._step, self._shift = _affine(self.pairs, seed, key)

    @property
    def left(self) -> int:
        """Pairs not dealt yet."""
        return self.pairs - self.used

    def deal(self) -> tuple[int, int]:
        """The next pair, as two sentence numbers of the document."""
        number = (self._step * self.used + self._shift) % self.pairs
        self.used += 1
        return self.pair(number)

    def pair(self, number: int) -> tuple[int, int]:
        """Pair `number`, 0 <= number < pairs."""
        cluster = int(np.searchsorted(self._pairs_before, number, side="right")) - 1
        rest = number - int(self._pairs_before[cluster])
        # Within a cluster the pairs are (0,1), (0,2), (1,2), (0,3), ...: pair (i, j) is number j(j-1)/2 + i.
        j = (1 + math.isqrt(1 + 8 * rest)) // 2
        i = rest - j * (j - 1) // 2
        start = int(self._starts[cluster])
        return int(self._order[start + i]), int(self._order[start + j])


def mix(*numbers: int) -> int:
    """A 64-bit hash of integers (splitmix64's finaliser, chained)."""
    state = 0
    for number in numbers:
        state = (state + 0x9E3779B97F4A7C15 + number) & _WORD
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _WORD
        state ^= state >> 31
    return state


def _affine(count: int, seed: int, key: int) -> tuple[int, int]:
    step = mix(seed, key, 1) % count or 1
    while math.gcd(step, count) != 1:
        step += 1
    return step, mix(seed, key, 2) % count
