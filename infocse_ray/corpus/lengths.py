"""Histograms of lengths that add up over shards: classes half an octave wide, the same for every corpus."""

from __future__ import annotations

import numpy as np

_CLASSES = np.unique(np.round(2 ** (np.arange(-2, 63) / 2)).astype(np.int64))
"""Where classes begin: 0, 1, 2, 3, 4, 6, 8, 11, 16, 23, ..."""


def length_histogram(lengths: np.ndarray) -> dict[str, int]:
    """How many lengths are in each class that has any, under the text of the least length of the class.

    Args:
        lengths: int [n], from 0.
    """
    classes, counts = np.unique(np.searchsorted(_CLASSES, lengths, side="right") - 1, return_counts=True)
    return {str(_CLASSES[one]): int(count) for one, count in zip(classes, counts, strict=True)}


def class_name(least: int) -> str:
    """A class for people, by the least length in it: `4 to 5`."""
    after = int(_CLASSES[np.searchsorted(_CLASSES, least, side="right")])
    return str(least) if after == least + 1 else f"{least:,} to {after - 1:,}"
