"""Early stopping on scripted scores."""

import pytest

from infocse_ray.train.early_stopping import EarlyStopping


def run(scores, patience, every=10):
    """The steps that improved, and the step it stopped at (None: it never did)."""
    stopping = EarlyStopping(patience)
    improved = []
    for i, score in enumerate(scores, 1):
        if stopping.improved(i * every, score):
            improved.append(i * every)
        if stopping.stop(i * every):
            return improved, i * every
    return improved, None


@pytest.mark.parametrize(
    ("scores", "patience", "improved", "stopped"),
    [
        ([0.1, 0.2, 0.3, 0.4], 10, [10, 20, 30, 40], None),
        ([0.4, 0.3, 0.2, 0.1], 20, [10], 30),
        ([0.4, 0.4, 0.4], 20, [10], 30),
        ([0.1, 0.0, 0.2, 0.1, 0.1], 20, [10, 30], 50),
        ([0.1, 0.0, 0.0, 0.2], 25, [10, 40], None),
        ([0.0, 0.0], 10, [10], 20),
        ([-1.0, -2.0, -0.5], 100, [10, 30], None),
    ],
)
def test_stops_after_patience_without_growth(scores, patience, improved, stopped):
    assert run(scores, patience) == (improved, stopped)


def test_the_best_score_and_its_step_survive_a_restart():
    stopping = EarlyStopping(20)
    assert stopping.improved(10, 0.5)
    assert not stopping.improved(20, 0.4)
    again = EarlyStopping(20)
    again.restore(stopping.state())
    assert not again.improved(30, 0.5)
    assert (again.best, again.best_step) == (0.5, 10)
    assert again.stop(30)
    assert not again.stop(29)


def test_never_scored_counts_from_the_start():
    stopping = EarlyStopping(20)
    assert not stopping.stop(19)
    assert stopping.stop(20)
