"""What a sink was shown of a run."""

from __future__ import annotations

from pathlib import Path

from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.tracking.remembered import Remembered
from infocse_ray.tracking.sink import Trained


def test_a_validation_that_a_killed_command_had_not_shown_may_come_later(tmp_path: Path) -> None:
    """Steps are drawn in their order; those before a checkpoint that were lost are gone."""
    run = Storage.open(str(tmp_path))
    noted, trained = Remembered(run, "mlflow"), Trained("iteration_1", Stage("train", "f", run, None))
    noted.begin("id")
    for group in ("train", "validation"):
        for step in (4, 12):
            noted.step_shown(trained, group, step)
    noted.save()
    again = Remembered(run, "mlflow")
    assert [again.new_step(trained, "validation", step) for step in (4, 8, 12, 16)] == [False, True, False, True]
    assert [again.new_step(trained, "train", step) for step in (4, 8, 12, 16)] == [False, False, False, True]


def test_a_stage_in_the_place_of_another_is_shown_from_its_beginning(tmp_path: Path) -> None:
    """Of other settings, or made again: it has the name, and another fingerprint."""
    run = Storage.open(str(tmp_path))
    noted, first, second = Remembered(run, "mlflow"), *(Stage("train", name, run, None) for name in "fg")
    noted.begin("id")
    assert noted.new_stage("iteration_1/train", first)
    noted.stage_shown("iteration_1/train", first)
    assert [noted.new_stage("iteration_1/train", stage) for stage in (first, second)] == [False, True]
    for group in ("train", "validation"):
        noted.step_shown(Trained("iteration_1", first), group, 8)
        assert [noted.new_step(Trained("iteration_1", stage), group, 8) for stage in (first, second)] == [False, True]
