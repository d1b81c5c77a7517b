"""When a training says that sentences are getting one vector."""

import pytest

from infocse_ray.train.loop import collapsing


@pytest.mark.parametrize(
    ("first", "spread", "said"),
    [
        (0.6, 0.2, False),
        (0.6, 0.04, True),
        (0.03, 0.028, False),  # a language model, whose vectors are alike to begin with
        (0.03, 0.01, True),
    ],
)
def test_vectors_collapse_that_come_closer_than_they_were(first: float, spread: float, said: bool):
    assert collapsing(spread, first) == said
