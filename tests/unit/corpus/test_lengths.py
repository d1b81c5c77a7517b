"""Histograms of lengths: every length in one class, whose name says which."""

from __future__ import annotations

from collections import Counter

import numpy as np

from infocse_ray.corpus.lengths import class_name, length_histogram


def test_every_length_is_in_the_class_that_its_name_says():
    lengths = np.arange(0, 500)
    found = length_histogram(lengths)
    assert sum(found.values()) == 500
    for least, count in list(found.items())[:-1]:
        first, _, last = class_name(int(least)).partition(" to ")
        assert count == int(last or first) - int(first) + 1
    assert list(found)[:8] == ["0", "1", "2", "3", "4", "6", "8", "11"]


def test_histograms_of_shards_add_up():
    lengths = np.random.default_rng(3).integers(0, 1000, 999)
    parts = [Counter(length_histogram(part)) for part in np.array_split(lengths, 4)]
    assert sum(parts, Counter()) == length_histogram(lengths)


def test_names_have_commas():
    assert class_name(1448) == "1,448 to 2,047"
