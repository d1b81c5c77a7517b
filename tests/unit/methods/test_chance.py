"""Draws by counting: as even and as independent as random numbers, and the same for whoever asks."""

import numpy as np
import pytest
from scipy import stats

from infocse_ray.methods.chance import below, betas, mix, mixed, permutation, ranks, to_unit, uniforms

SEEDS = np.arange(2000, dtype=np.uint64)


def even(counts):
    """Whether counts are those of things that are as likely."""
    return len(counts) == 1 or stats.chisquare(counts).pvalue > 1e-4


def test_many_hashes_are_those_of_one():
    columns = np.array([0, 1, 2**62, -1]), np.array([5, 2**63, 2**64 - 1, 7], np.uint64)
    expected = [mix(9, a, b, 2**63 + 1) for a, b in zip(*(column.tolist() for column in columns), strict=True)]
    assert mixed(9, *columns, 2**63 + 1).tolist() == expected
    assert mixed(columns[1][:, None], columns[0]).tolist() == [
        [mix(b, a) for a in columns[0].tolist()] for b in columns[1].tolist()
    ]
    assert mix(1, 2) != mix(2, 1)
    assert columns[0].tolist() == [0, 1, 2**62, -1]


def test_numbers_that_differ_in_a_low_bit_are_told_apart():
    """Numbers above 2^53 must not be rounded on their way."""
    assert len({mix(3, number) for number in (2**63 + 12345, 2**63 + 12346, 2**64 - 1)}) == 3


def test_numbers_are_uniform_over_seeds_and_over_counters():
    many = uniforms(SEEDS, 500, 3)
    assert many.shape == (2000, 500)
    assert 0 < many.min() < 1e-5
    assert 1 > many.max() > 1 - 1e-5
    for numbers in (many.ravel(), many[0], many[:, 0], many[:, 499], uniforms(SEEDS, 1)[:, 0]):
        assert stats.kstest(numbers, "uniform").pvalue > 1e-4
    assert to_unit(np.array([0, 2**64 - 1], np.uint64)).tolist() == [2.0**-53, 1 - 2.0**-53]


def test_every_bit_is_even():
    hashes = mixed(SEEDS[:, None], np.arange(100))
    for bit in range(64):
        ones = int((hashes >> np.uint64(bit) & np.uint64(1)).sum())
        assert stats.binomtest(ones, hashes.size).pvalue > 1e-5


@pytest.mark.parametrize("seeds", [SEEDS, SEEDS << np.uint64(32), SEEDS * np.uint64(0x9E3779B97F4A7C15)])
def test_neighbours_are_independent(seeds):
    """Of seeds, of counters, of purposes: correlation, and the cells of pairs in a table of 16 x 16."""
    one = uniforms(seeds, 40, 0)
    for other in (np.roll(one, 1, 0), np.roll(one, 1, 1), uniforms(seeds, 40, 1), one[::-1], one[:, ::-1]):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.02
    for first, second in ((one[:-1], one[1:]), (one[:, :-1], one[:, 1:]), (one, uniforms(seeds, 40, 1))):
        cells = np.bincount((below(first, 16) * 16 + below(second, 16)).ravel(), minlength=256)
        assert even(cells)


def test_a_draw_depends_on_its_names_only():
    many = uniforms(SEEDS, 30, 2)
    assert np.array_equal(uniforms(SEEDS[5:9], 12, 2), many[5:9, :12])
    assert np.array_equal(betas(SEEDS[5:9], 2, 4, 3, 1), betas(SEEDS, 2, 4, 7, 1)[5:9, :3])
    assert not np.array_equal(many, uniforms(SEEDS, 30, 1))


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 1000])
def test_whole_numbers_are_even(bound):
    drawn = below(uniforms(SEEDS, 30), bound)
    assert drawn.dtype == np.int64
    assert 0 <= drawn.min() <= drawn.max() < bound
    assert even(np.bincount(drawn.ravel(), minlength=bound))
    largest = np.array([1 - 2.0**-53])
    assert (below(largest, np.arange(1, 10_000)) == np.arange(9_999)).all()


def test_permutations_are_even():
    found = np.stack([permutation(seed, 4) for seed in range(6000)])
    assert (np.sort(found, 1) == np.arange(4)).all()
    assert even(np.unique(found, axis=0, return_counts=True)[1])
    assert len(np.unique(found, axis=0)) == 24
    assert permutation(1, 0).tolist() == []


def test_permutations_of_rows_of_different_lengths():
    counts = np.tile([0, 1, 4, 3], 1500)
    found = ranks(uniforms(np.arange(6000, dtype=np.uint64), 6), counts)
    for row, count in zip(found, counts.tolist(), strict=True):
        assert sorted(row[:count].tolist()) == list(range(count))
        assert row[count:].tolist() == list(range(count, 6))
    kinds, times = np.unique(found[2::4, :4], axis=0, return_counts=True)
    assert len(kinds) == 24
    assert even(times)
    # Of a row's own length: how far it is padded changes nothing.
    narrow = ranks(uniforms(np.arange(6000, dtype=np.uint64), 4), counts)
    assert np.array_equal(found[:, :4], narrow)


@pytest.mark.parametrize(("a", "b"), [(4, 2), (2, 4), (1, 1)])
def test_beta(a, b):
    drawn = betas(SEEDS, a, b, 10)
    assert drawn.shape == (2000, 10)
    assert stats.kstest(drawn.ravel(), stats.beta(a, b).cdf).pvalue > 1e-4
