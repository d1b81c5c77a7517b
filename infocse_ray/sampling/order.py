"""In which order a document's examples are dealt, each once a pass, without listing them.

The i-th example dealt is number (a*i + b) mod m, a coprime to m: a permutation of all m that needs no memory.
"""

from __future__ import annotations

import numpy as np

from infocse_ray.methods.chance import mixed

_EXACT = 1 << 32
"""Up to so many examples of a document a*i + b stays under 2^64."""


def orders(examples: np.ndarray, seed: int, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The orders of documents' examples.

    Args:
        examples: int64 [n], of each document, at least 1.
        seed: of all of them.
        keys: int64 [n], which tell documents apart.

    Returns:
        int64 [n] twice: a and b.
    """
    count = examples.astype(np.uint64)
    step = np.maximum(mixed(seed, keys, 1) % count, np.uint64(1))
    while (shared := np.gcd(step, count) != 1).any():
        step += shared
    return step.astype(np.int64), (mixed(seed, keys, 2) % count).astype(np.int64)


def numbers(examples: np.ndarray, steps: np.ndarray, shifts: np.ndarray, used: np.ndarray) -> np.ndarray:
    """int64 [n]: the number of the example of each document that comes after `used` others."""
    columns = [column.astype(np.uint64) for column in (steps, used, shifts, examples)]
    if len(examples) and examples.max() > _EXACT:
        columns = [column.astype(object) for column in columns]  # Python's integers
    step, dealt, shift, count = columns
    return ((step * dealt + shift) % count).astype(np.int64)
