"""Curves out of TensorBoard's event files, as the writer of trainings makes them."""

from __future__ import annotations

from infocse_ray.page.events import read_curves
from infocse_ray.stages.metrics import TrainingMetrics, events_folder
from infocse_ray.storage.folder import Storage
from infocse_ray.train.step import StepReport


def report(loss: float) -> StepReport:
    return StepReport(loss=loss, gradient_norm=2.0, spread=0.5, tokens=80, padded=100)


def test_steps_are_there_once_whatever_was_trained_again(tmp_path):
    run = Storage.open(str(tmp_path)) / "news"
    stage, events = run / "iteration_1" / "train", events_folder(run, "iteration_1")
    for first, last, loss in ((0, 5, 3.0), (4, 6, 2.0)):  # the second goes on from a checkpoint after step 3
        shown = TrainingMetrics(stage, events, first)
        for step in range(max(first, 1), last + 1):
            shown.step(step, report(loss), 1.0, 8)
        shown.validation(last, {"mrr": 0.25})
        shown.close()
    curves = read_curves(run, "iteration_1")
    assert curves["train/loss"] == [(1, 3.0), (2, 3.0), (3, 3.0), (4, 2.0), (5, 2.0), (6, 2.0)]
    assert curves["validation/mrr"] == [(6, 0.25)]
    assert read_curves(run, "iteration_2") == {}


def test_what_was_cut_off_is_left_out(tmp_path):
    run = Storage.open(str(tmp_path)) / "news"
    shown = TrainingMetrics(run / "iteration_1" / "train", events_folder(run, "iteration_1"), 0)
    for step in (1, 2, 3):
        shown.step(step, report(1.0), 1.0, 8)
    shown.close()
    folder = run / "events" / "iteration_1"
    [name] = folder.files()
    (folder / name).write_bytes((folder / name).read_bytes()[:-20])
    assert [step for step, _ in read_curves(run, "iteration_1")["train/loss"]] == [1, 2]
