"""Chance by counting: a draw is a hash of what it is for, so that many are made at once and none needs a state.

splitmix64 (Steele, Lea and Flood 2014), whose finaliser is chained over the numbers that name a draw: the seed of an
example or a text, what is drawn, the place. Whoever asks for the same names gets the same, whatever is drawn beside it,
by however many workers, in whatever order.
"""

from __future__ import annotations

import numpy as np

_WORD = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(*numbers: int) -> int:
    """A 64-bit hash of integers."""
    state = 0
    for number in numbers:
        state = (state + _GOLDEN + number) & _WORD
        state = ((state ^ (state >> 30)) * _FIRST) & _WORD
        state = ((state ^ (state >> 27)) * _SECOND) & _WORD
        state ^= state >> 31
    return state


def mixed(*columns: np.ndarray | int) -> np.ndarray:
    """`mix` of many at once: uint64, of the shape that the columns, int64 or uint64 or numbers, broadcast to."""
    state = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            named = np.uint64(column & _WORD) if isinstance(column, int) else column.astype(np.uint64, copy=False)
            state = np.atleast_1d(state + (named + np.uint64(_GOLDEN)))
            # In place: for thousands of draws memory would take longer than the arithmetic.
            for shift, factor in ((30, _FIRST), (27, _SECOND)):
                state ^= state >> np.uint64(shift)
                state *= np.uint64(factor)
            state ^= state >> np.uint64(31)
    return state


def to_unit(hashes: np.ndarray) -> np.ndarray:
    """Hashes (uint64) as float64 strictly between 0 and 1, evenly spread: the middles of 2^52 parts."""
    return (hashes >> np.uint64(12)) * 2.0**-52 + 2.0**-53


def uniforms(seeds: np.ndarray, width: int, purpose: int = 0) -> np.ndarray:
    """Numbers strictly between 0 and 1.

    Args:
        seeds: uint64 [n].
        width: numbers for each; a longer row begins with the shorter one.
        purpose: another one gives others.

    Returns:
        float64 [n, width].
    """
    return to_unit(mixed(mixed(seeds, purpose)[:, None], np.arange(width, dtype=np.uint64)))


def below(uniform: np.ndarray, bounds: np.ndarray | int) -> np.ndarray:
    """int64: uniform numbers as integers, 0 <= integer < bound, each as likely (for bounds far under 2^53)."""
    return (uniform * bounds).astype(np.int64)


def permutation(seed: int, count: int) -> np.ndarray:
    """int64 [count]: 0 .. count-1 in an order that is as likely as any other."""
    return np.argsort(mixed(mix(seed), np.arange(count, dtype=np.uint64)), kind="stable")


def ranks(uniform: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Permutations: the place of each of a row's first numbers in their order.

    Args:
        uniform: float64 [n, width], as `uniforms` gives them.
        counts: int64 [n], how many of each row are permuted.

    Returns:
        int64 [n, width]: a permutation of 0 .. count-1 in each row, then count .. width-1.
    """
    width = uniform.shape[1]
    places = np.arange(width)
    ordered = np.argsort(np.where(places < counts[:, None], uniform, 1.0 + places), axis=1)
    out = np.empty(ordered.shape, np.int64)
    np.put_along_axis(out, ordered, np.broadcast_to(places, ordered.shape), axis=1)
    return out


def betas(seeds: np.ndarray, a: int, b: int, width: int, purpose: int = 0) -> np.ndarray:
    """Numbers from Beta(a, b), a and b whole: the a-th smallest of a + b - 1 uniform ones.

    Args:
        seeds: uint64 [n].
        a: at least 1.
        b: at least 1.
        width: numbers for each.
        purpose: as in `uniforms`.

    Returns:
        float64 [n, width].
    """
    several = uniforms(seeds, width * (a + b - 1), purpose).reshape(len(seeds), width, a + b - 1)
    return np.partition(several, a - 1, axis=2)[:, :, a - 1]
