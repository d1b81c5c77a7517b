"""Trials run once, failures stop nothing, the same command goes on, and the results say what came of it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.errors import LeaseLost
from infocse_ray.settings import Settings
from infocse_ray.settings.command_line import parse
from infocse_ray.stages.records import write_record
from infocse_ray.storage.folder import Storage
from infocse_ray.tuning import run as tuning_run
from infocse_ray.tuning.run import sweep
from infocse_ray.tuning.table import Table
from infocse_ray.tuning.trials import plan_trials
from tests.unit.stages.test_lease import of_another_machine
from tests.unit.sweep_runs import Finder, OneByOne, Runs, sweep_of

ASHA = {"grace_iterations": 1, "reduction_factor": 2}


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn after every result, plots would take most of the time: only tests that look at them have any."""
    pytest.importorskip("matplotlib")
    if "figures" not in request.fixturenames:
        monkeypatch.setattr(Table, "plot", lambda _: b"")


@pytest.fixture
def runs() -> Runs:
    return Runs()


def run(folder: Path, runs: Runs, **changes: Any) -> int:
    return sweep(sweep_of(folder, **changes), OneByOne(runs), Finder())


def content(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "runs" / "s" / "sweep.json").read_text())


def states(folder: Path) -> list[str]:
    return [row["state"] for row in content(folder)["trials"]]


def test_finished_trials_never_run_again(tmp_path: Path, runs: Runs):
    assert run(tmp_path, runs) == 0
    assert runs.calls == [(1, 4), (2, 4), (1, 8), (2, 8)]
    first = content(tmp_path)
    assert run(tmp_path, runs) == 0
    assert len(runs.calls) == 4
    assert content(tmp_path) == first
    # More values run alone; other settings of all trials run all anew.
    more = {"annotate.k": {"grid": [1, 2, 3]}, "train.batch_size": {"grid": [4, 8]}}
    run(tmp_path, runs, parameters=more)
    assert runs.calls[4:] == [(3, 4), (3, 8)]
    run(tmp_path, runs, settings=sweep_of(tmp_path).settings | {"seed": 1})
    assert len(runs.calls) == 10


def test_trials_of_a_damaged_table_are_looked_at_again(tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]):
    run(tmp_path, runs)
    first = content(tmp_path)
    file = tmp_path / "runs" / "s" / "sweep.json"
    for damage in (lambda text: text[:-9], lambda text: text.replace("0.2", "0.9")):
        runs.calls.clear()
        file.write_text(damage(file.read_text()))
        assert run(tmp_path, runs) == 0
        assert len(runs.calls) == 4
        assert content(tmp_path) == first
        assert f"{file} is damaged (" in capsys.readouterr().out


def test_a_failed_trial_stops_nothing_and_is_tried_again(
    tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
):
    runs.failing[2, 4] = RuntimeError("the workers failed\nin two lines")
    assert run(tmp_path, runs) == 1
    assert states(tmp_path) == ["finished", "failed", "finished", "finished"]
    row = content(tmp_path)["trials"][1]
    assert row["reason"] == "RuntimeError: the workers failed"
    assert len(row["iterations"]) == 2, "what it had reported is kept"
    said = capsys.readouterr().out
    assert "[2/4] annotate.k = 2, train.batch_size = 4: failed: RuntimeError: the workers failed\n" in said
    assert "3 of 4 trials are finished; 1 failed, and the same command tries them again" in said
    assert "Trial 2: RuntimeError: the workers failed." in (tmp_path / "runs" / "s" / "sweep.md").read_text()
    runs.failing.clear()
    assert run(tmp_path, runs) == 0
    assert runs.calls[4:] == [(2, 4)]
    assert states(tmp_path) == ["finished"] * 4
    assert content(tmp_path)["trials"][1]["reason"] is None


def test_an_interrupted_sweep_goes_on_with_what_is_not_finished(tmp_path: Path, runs: Runs):
    runs.failing[1, 8] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, runs)
    assert states(tmp_path) == ["finished", "finished", "running", "to do"]
    runs.failing.clear()
    assert run(tmp_path, runs) == 0
    assert runs.calls[3:] == [(1, 8), (2, 8)]


def test_results_are_there_after_every_report(tmp_path: Path):
    seen = []

    class Watched(Runs):
        def __call__(self, settings: Settings, after_iteration: Any, at_once: int) -> dict[str, Any]:
            def watched(iterations: Any) -> None:
                after_iteration(iterations)
                seen.append((states(tmp_path), (tmp_path / "runs" / "s" / "best.yaml").exists()))

            return super().__call__(settings, watched, at_once)

    run(tmp_path, Watched())
    assert seen[0] == (["running", "to do", "to do", "to do"], False)
    assert seen[1] == (["finished", "running", "to do", "to do"], True)


def test_the_table_has_a_row_for_each_trial(tmp_path: Path, runs: Runs):
    runs.scores = lambda settings: [0.1, 0.3 if settings.annotate.k == 2 else 0.05, 0.25]
    runs.failing[1, 8] = ValueError("train.batch_size = 8: too many | really")
    run(tmp_path, runs)
    lines = (tmp_path / "runs" / "s" / "sweep.md").read_text().splitlines()
    assert lines[2] == (
        "| trial | annotate.k | train.batch\\_size | state | iteration 0 | iteration 1 | iteration 2 | test recall@5 "
        "| pairs | seconds |"
    )
    assert lines[4] == "| 1 | 1 | 4 | finished | 0.1000 | 0.0500 | **0.2500** | 0.1250 | 1,000, 2,000 | 7 |"
    assert lines[6] == "| 3 | 1 | 8 | failed | 0.1000 | 0.0500 |  |  | 1,000 | 4 |"
    assert lines[5].startswith("| **2** | **2** | **4** | **finished** | **0.1000** | **0.3000** |"), "the best"
    assert "- Trial 3: train.batch\\_size = 8: too many \\| really." in lines
    found = content(tmp_path)
    best = found["trials"][1]
    assert found["best"] == best["name"], "the first of two equals"
    assert best["best_iteration"] == 1
    assert [entry["test"]["recall@5"] for entry in best["iterations"]] == [0.05, 0.15, 0.125]


def test_the_metric_is_that_of_the_settings(tmp_path: Path, runs: Runs):
    settings = sweep_of(tmp_path).settings | {"validate": {"metric": "recall@10"}}
    run(tmp_path, runs, settings=settings)
    found = content(tmp_path)
    assert found["metric"] == "recall@10"
    lines = (tmp_path / "runs" / "s" / "sweep.md").read_text().splitlines()
    assert "test recall@10" in lines[2]
    assert "0.9000" in lines[4]
    assert found["best"] == found["trials"][0]["name"]


def test_the_best_settings_are_a_file_for_pretrain(tmp_path: Path, runs: Runs):
    validate = {"on": "halves", "metric": "recall@5"}
    settings = sweep_of(tmp_path).settings | {"validate": validate, "train": {"learning_rate": "1e-5"}}
    config = sweep_of(tmp_path, settings=settings)
    runs.scores = lambda settings: [0.1, 0.2, 0.1 * settings.annotate.k + 0.01 * settings.train.batch_size]
    sweep(config, OneByOne(runs), Finder())
    trial = plan_trials(config, Finder())[3]
    assert content(tmp_path)["best"] == trial.name
    file = tmp_path / "runs" / "s" / "best.yaml"
    assert parse(Settings, ["--config", str(file)], "pretrain.py", "") == trial.settings
    assert file.read_text().startswith("# The best of sweep s, annotate.k = 2, train.batch_size = 8: recall@5 0.2800 ")


def test_credentials_are_in_no_file_of_a_sweep(tmp_path: Path, runs: Runs):
    model = "s3://AKIAEXAMPLE:supersecretpassword@bucket/model"
    assert run(tmp_path, runs, parameters={"encoder.model": {"grid": [model]}}) == 0
    files = {file.name: file.read_bytes() for file in (tmp_path / "runs" / "s").iterdir() if file.is_file()}
    assert {"best.yaml", "sweep.md", "sweep.json"} <= files.keys()
    assert b"@bucket/model" in files["best.yaml"]
    assert not [name for name, content in files.items() if b"supersecret" in content]


def test_a_trial_that_lags_behind_is_stopped_early_and_stays_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    # In the order they run: 0.2, 0.4, 0.3, 0.5 after the first iteration.
    first = {(1, 4): 0.2, (2, 4): 0.4, (1, 8): 0.3 - 1e-9, (2, 8): 0.5}
    runs = Runs(lambda settings: [0.1, first[settings.annotate.k, settings.train.batch_size], 0.9])
    assert run(tmp_path, runs, asha=ASHA) == 0
    assert states(tmp_path) == ["finished", "finished", "stopped", "finished"]
    row = content(tmp_path)["trials"][2]
    assert (row["reason"], row["best_iteration"], len(row["iterations"])) == (
        "stopped early after iteration 1",
        None,
        2,
    )
    assert "3 of 4 trials are finished; 1 stopped early" in capsys.readouterr().out
    run(tmp_path, runs, asha=ASHA)
    assert len(runs.calls) == 4
    # Without the rule that stopped it, it goes on.
    run(tmp_path, runs)
    assert runs.calls[4:] == [(1, 8)]
    assert states(tmp_path) == ["finished"] * 4


def test_a_new_trial_is_held_against_those_of_earlier_commands(tmp_path: Path):
    runs = Runs(lambda settings: [0.1, 0.1 * settings.annotate.k, 0.9])
    alone = {"train.batch_size": {"grid": [4]}}
    run(tmp_path, runs, asha=ASHA, parameters={"annotate.k": {"grid": [5, 4]}} | alone)
    assert states(tmp_path) == ["finished", "stopped"]
    run(tmp_path, runs, asha=ASHA, parameters={"annotate.k": {"grid": [5, 4, 3, 6]}} | alone)
    assert states(tmp_path) == ["finished", "stopped", "stopped", "finished"]
    assert len(runs.calls) == 4


def test_a_trial_of_an_earlier_command_is_known_by_what_it_had_so_far(tmp_path: Path):
    runs = Runs(lambda settings: [0.1, 0.1 * settings.annotate.k, 0.9])
    for ks in ([1], [1, 2]):
        run(tmp_path, runs, asha=ASHA, parameters={"annotate.k": {"grid": ks}})
    assert states(tmp_path) == ["finished", "finished"], "after the first iteration it had 0.1, not 0.9"


def test_a_trial_of_more_iterations_than_others_has_them_all(tmp_path: Path):
    runs = Runs(lambda settings: [0.1 * t for t in range(settings.loop.max_iterations + 1)])
    run(tmp_path, runs, asha=ASHA, parameters={"loop.max_iterations": {"grid": [2, 4]}})
    assert states(tmp_path) == ["finished", "finished"]
    assert [len(row["iterations"]) for row in content(tmp_path)["trials"]] == [3, 5]


def test_a_trial_is_judged_by_its_best_iteration(tmp_path: Path):
    scores = {4: [0.1, 0.5, 0.5, 0.6], 8: [0.1, 0.6, 0.2, 0.2]}
    runs = Runs(lambda settings: scores[settings.train.batch_size])
    settings = sweep_of(tmp_path).settings | {"loop": {"max_iterations": 3}}
    run(tmp_path, runs, asha=ASHA, settings=settings, parameters={"train.batch_size": {"grid": [4, 8]}})
    assert states(tmp_path) == ["finished", "finished"]


def test_trials_are_compared_by_what_they_trained(tmp_path: Path, runs: Runs):
    runs.scores = lambda settings: [0.9, 0.1 * settings.annotate.k + 0.01 * settings.train.batch_size]
    run(tmp_path, runs)
    found = content(tmp_path)
    assert [row["best_iteration"] for row in found["trials"]] == [0] * 4
    assert found["best"] == found["trials"][3]["name"]
    assert ": recall@5 0.2800 on" in (tmp_path / "runs" / "s" / "best.yaml").read_text()
    runs.scores = lambda settings: [0.3 if settings.loop.initialization == "simcse" else 0.6]
    initialized = {"loop.initialization": {"grid": ["simcse", "ict"]}}
    run(tmp_path, runs, settings=sweep_of(tmp_path).settings | {"train.method": "none"}, parameters=initialized)
    found = content(tmp_path)
    assert found["best"] == found["trials"][1]["name"], "nothing was trained"
    head, own = (tmp_path / "runs" / "s" / "best.yaml").read_text().splitlines()[:2]
    assert head.endswith(": recall@5 0.6000 on validation."), "of which it is no news that it is no better"
    assert own.startswith("# Under this name it is the trial's run: give another (--name)")


def test_trials_that_return_their_start_are_told_apart_by_what_they_trained(
    tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
):
    runs.never_worse = True
    runs.scores = lambda settings: [0.9, 0.1 * settings.annotate.k + 0.01 * settings.train.batch_size]
    run(tmp_path, runs, asha={"grace_iterations": 1, "reduction_factor": 2})
    found = content(tmp_path)
    assert [row["iterations"][1]["validation"]["recall@5"] for row in found["trials"]] == [0.9] * 4
    assert [row["iterations"][1]["trained"] for row in found["trials"]] == pytest.approx([0.14, 0.24, 0.18, 0.28])
    assert found["best"] == found["trials"][3]["name"]
    head = (tmp_path / "runs" / "s" / "best.yaml").read_text().partition("\n")[0]
    assert head.endswith("recall@5 0.2800 on validation, no better than the 0.9000 it began with.")
    assert "| 1 | 1 | 4 | finished | **0.9000** | 0.1400 |" in (tmp_path / "runs" / "s" / "sweep.md").read_text()
    said = capsys.readouterr().out
    assert "train.batch_size = 8: finished, recall@5 0.2800, no better than the 0.9000 it began with\n" in said
    assert ", the best, no better than the 0.9000 it began with: " in said


def test_early_stopping_hears_what_trials_trained(tmp_path: Path, runs: Runs):
    runs.never_worse = True
    runs.scores = lambda settings: [0.9, 0.9 - 0.1 * settings.annotate.k - 0.01 * settings.train.batch_size, 0.1]
    assert run(tmp_path, runs, asha=ASHA) == 0
    assert states(tmp_path) == ["finished", "stopped", "finished", "stopped"], "0.76 and 0.72 are in the upper half"


def test_rows_of_a_version_that_did_not_say_what_was_trained_are_asked_again(tmp_path: Path, runs: Runs):
    run(tmp_path, runs)
    file = tmp_path / "runs" / "s" / "sweep.json"
    before = json.loads(file.read_text())
    del before["checksum"]
    for row in before["trials"][1:3]:
        for entry in row["iterations"]:
            del entry["trained"]
    write_record(Storage.open(str(tmp_path / "runs" / "s")) / "sweep.json", before)
    runs.calls.clear()
    run(tmp_path, runs)
    assert runs.calls == [(2, 4), (1, 8)]
    assert all("trained" in entry for row in content(tmp_path)["trials"] for entry in row["iterations"])


def test_the_plan_runs_nothing(tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]):
    run(tmp_path, runs, only="plan")
    assert runs.calls == []
    assert not (tmp_path / "runs").exists()
    assert capsys.readouterr().out.splitlines() == [
        "[1/4] annotate.k = 1, train.batch_size = 4: to do",
        "[2/4] annotate.k = 2, train.batch_size = 4: to do",
        "[3/4] annotate.k = 1, train.batch_size = 8: to do",
        "[4/4] annotate.k = 2, train.batch_size = 8: to do",
        "4 trials, 0 of them done",
    ]
    runs.failing[2, 4] = ValueError("too small")
    run(tmp_path, runs)
    capsys.readouterr()
    run(tmp_path, runs, only="plan")
    said = capsys.readouterr().out
    assert "[2/4] annotate.k = 2, train.batch_size = 4: failed, to be tried again: too small" in said
    assert "4 trials, 3 of them done" in said


def test_a_driver_whose_sweep_another_took_over_stops(tmp_path: Path):
    file = Storage.open(str(tmp_path / "runs")) / "s" / "driver.lease"
    seen: list[bytes] = []

    def taken(settings: Settings) -> list[float]:
        if (settings.annotate.k, settings.train.batch_size) == (2, 4):
            seen.append((tmp_path / "runs" / "s" / "sweep.json").read_bytes())
            of_another_machine(file)
        return [0.1, 0.2, 0.3]

    runs = Runs(taken)
    with pytest.raises(LeaseLost, match=r"name = 's': .*taken by another driver"):
        run(tmp_path, runs)
    assert runs.calls == [(1, 4), (2, 4)]
    assert seen == [(tmp_path / "runs" / "s" / "sweep.json").read_bytes()]


def test_a_users_own_folder_is_no_sweep(tmp_path: Path, runs: Runs):
    (tmp_path / "runs" / "s").mkdir(parents=True)
    (tmp_path / "runs" / "s" / "docs.jsonl").write_text("mine")
    with pytest.raises(ValueError, match=r"^name = 's': .* has docs.jsonl, which no run made"):
        run(tmp_path, runs)


def test_a_run_is_not_overwritten_by_a_sweep_of_its_name(tmp_path: Path, runs: Runs):
    (tmp_path / "runs" / "s").mkdir(parents=True)
    (tmp_path / "runs" / "s" / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match=r"name = 's': .* is a run; give the sweep another name"):
        run(tmp_path, runs)


def axes_of(figures: list[Any], file: Path) -> dict[str, Any]:
    """The last plot's panels by the parameter along them; `file` is a picture."""
    with pytest.importorskip("PIL.Image").open(io.BytesIO(file.read_bytes())) as picture:
        assert picture.format == "PNG"
    return {axes.get_xlabel(): axes for axes in figures[-1].axes}


def test_the_plot_joins_trials_that_agree_in_all_other_parameters(tmp_path: Path, runs: Runs, figures: list[Any]):
    scores = {(1, 4): 0.3, (2, 4): 0.4, (1, 8): 0.5, (2, 8): 0.6}
    runs.scores = lambda settings: [0.1, 0.2, scores[settings.annotate.k, settings.train.batch_size]]
    runs.failing[1, 8] = ValueError("no")
    run(tmp_path, runs)
    axes = axes_of(figures, tmp_path / "runs" / "s" / "sweep.png")
    assert list(axes) == ["annotate.k", "train.batch_size"]
    first, second = axes.values()
    assert [line.get_ydata().tolist() for line in first.get_lines()] == [[0.3, 0.4], [0.2, 0.6]]
    assert [line.get_ydata().tolist() for line in second.get_lines()] == [[0.3, 0.2], [0.4, 0.6]]
    labels = [text.get_text() for text in first.get_legend().get_texts()]
    assert labels == ["train.batch_size = 4", "train.batch_size = 8"]
    assert [label.get_text() for label in first.get_xticklabels()] == ["1", "2"]


def test_numbers_to_choose_from_are_in_their_order_however_they_were_drawn(
    tmp_path: Path, runs: Runs, figures: list[Any]
):
    runs.scores = lambda settings: [0.0, settings.annotate.k / 100]
    run(tmp_path, runs, parameters={"annotate.k": {"choice": [2, 10, 1, 7]}}, samples=12)
    drawn = [row["values"]["annotate.k"] for row in content(tmp_path)["trials"]]
    assert drawn != sorted(drawn)
    [axes] = axes_of(figures, tmp_path / "runs" / "s" / "sweep.png").values()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "7", "10"]
    [line] = axes.get_lines()
    assert line.get_ydata().tolist() == [0.01, 0.02, 0.07, 0.1]


def test_drawn_numbers_are_along_an_axis_of_numbers(tmp_path: Path, runs: Runs, figures: list[Any]):
    parameters = {"train.learning_rate": {"loguniform": [1e-5, 1e-4]}, "loop.initialization": {"choice": ["none"]}}
    run(tmp_path, runs, parameters=parameters, samples=3)
    axes = axes_of(figures, tmp_path / "runs" / "s" / "sweep.png")
    rates, initializations = axes["train.learning_rate"], axes["loop.initialization"]
    [line] = rates.get_lines()
    drawn = [row["values"]["train.learning_rate"] for row in content(tmp_path)["trials"]]
    assert line.get_xdata().tolist() == sorted(drawn)
    assert rates.get_xscale() == "log"
    assert [label.get_text() for label in initializations.get_xticklabels()] == ["none"]


def test_a_sweep_without_any_score_has_a_plot(tmp_path: Path, figures: list[Any], runs: Runs):
    runs.scores = lambda settings: []
    assert run(tmp_path, runs) == 4
    assert len(axes_of(figures, tmp_path / "runs" / "s" / "sweep.png")) == 2
    assert not (tmp_path / "runs" / "s" / "best.yaml").exists()


def test_a_trials_relative_paths_are_the_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ray's workers are where `ray start` was run, which need not be where the sweep is."""
    monkeypatch.chdir(tmp_path)  # and back
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(tuning_run, "quiet_libraries", lambda: None)
    ran_in: list[str] = []
    monkeypatch.setattr(tuning_run, "run_trial", lambda *_: ran_in.append(os.getcwd()))
    log = SimpleNamespace(**{name: SimpleNamespace(remote=lambda *_: None) for name in ("line", "add")})
    tuning_run._trainable(
        {"trial": 1}, {1: ("[1/1] x = 1", Settings.model_construct())}, 1, log, {}, str(tmp_path / "here")
    )
    assert ran_in == [str(tmp_path / "here")]
