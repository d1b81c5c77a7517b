"""A document whose examples are dealt one by one, each once a pass, without listing them.

The i-th example dealt is number (a*i + b) mod m, a coprime to m: a permutation of all m that needs no memory.
"""

from __future__ import annotations

import math

from infocse_ray.methods.method import Opened

_WORD = (1 << 64) - 1


class Dealt:
    """An opened document and how many of its examples have been dealt."""

    def __init__(self, doc_id: str, key: int, opened: Opened, seed: int, used: int = 0) -> None:
        self.doc_id, self.key, self.opened = doc_id, key, opened
        self.examples = opened.examples
        self.used = used
        self._seed = seed
        if self.examples:
            self._step, self._shift = _affine(self.examples, seed, key)

    @property
    def left(self) -> int:
        """Examples not dealt yet."""
        return self.examples - self.used

    def deal(self) -> tuple[int, int]:
        """The next example: its number, and a 64-bit seed of its own for whatever chance it needs."""
        number = (self._step * self.used + self._shift) % self.examples
        self.used += 1
        return number, mix(self._seed, self.key, number, 3)


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
