"""Curves out of TensorBoard's event files, as the sink of trainings makes them."""

from __future__ import annotations

from infocse_ray.page.events import read_curves
from infocse_ray.storage.folder import Storage
from tests.unit.page.runs import training_events


def test_steps_are_there_once_whatever_was_trained_again(tmp_path):
    run = Storage.open(str(tmp_path)) / "news"
    for first, last, loss in ((0, 5, 3.0), (4, 6, 2.0)):  # the second goes on from a checkpoint after step 3
        steps = {step: {"loss": loss} for step in range(max(first, 1), last + 1)}
        training_events(run, "iteration_1", first, steps, {last: {"mrr": 0.25}})
    curves = read_curves(run, "iteration_1")
    assert curves["train/loss"] == [(1, 3.0), (2, 3.0), (3, 3.0), (4, 2.0), (5, 2.0), (6, 2.0)]
    assert curves["validation/mrr"] == [(6, 0.25)]
    assert read_curves(run, "iteration_2") == {}


def test_a_training_that_goes_on_forgets_from_its_first_step_on(tmp_path):
    """Also where it drew fewer points: a step that it has none of is no longer known."""
    run = Storage.open(str(tmp_path)) / "news"
    training_events(run, "iteration_1", 0, {step: {"loss": 3.0} for step in (1, 2, 3, 4, 5)}, {})
    training_events(run, "iteration_1", 4, {6: {"loss": 2.0}}, {})
    assert read_curves(run, "iteration_1")["train/loss"] == [(1, 3.0), (2, 3.0), (3, 3.0), (6, 2.0)]


def test_what_was_cut_off_is_left_out(tmp_path):
    run = Storage.open(str(tmp_path)) / "news"
    training_events(run, "iteration_1", 0, {step: {"loss": 1.0} for step in (1, 2, 3)}, {})
    folder = run / "events" / "iteration_1"
    [name] = folder.files()
    (folder / name).write_bytes((folder / name).read_bytes()[:-20])
    assert [step for step, _ in read_curves(run, "iteration_1")["train/loss"]] == [1, 2]
