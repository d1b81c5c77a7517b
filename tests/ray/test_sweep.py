"""A real sweep: trials share their stages, nothing is done twice, and what Tune stops stays stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray import tune
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from infocse_ray.loop.infocse import pretrain
from infocse_ray.runtime.tasks import in_one_task
from infocse_ray.settings import Settings
from infocse_ray.settings.command_line import parse
from infocse_ray.settings.nested import nested
from infocse_ray.tuning import run
from infocse_ray.tuning.config import Sweep
from infocse_ray.tuning.run import run_trial, sweep
from infocse_ray.tuning.trials import plan_trials
from tests.conftest import make_documents, write_jsonl

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _drawing() -> None:
    pytest.importorskip("matplotlib")


def config_for(folder: Path, encoder: Path, **changes: Any) -> dict[str, Any]:
    write_jsonl(folder / "corpus.jsonl", make_documents(60))
    return {
        "name": "s",
        "storage": str(folder / "runs"),
        "parameters": {"annotate.k": {"grid": [1, 2]}, "train.batch_size": {"grid": [8, 16]}},
        "settings": {
            "corpus.source": str(folder / "corpus.jsonl"),
            "corpus.lanes": 4,
            "corpus.valid_fraction": 0.3,
            "corpus.test_fraction": 0.0,
            "encoder.model": str(encoder),
            "encoder.max_length": 16,
            "encoder.precision": "fp32",
            "encoder.whiten": "off",
            "annotate.num_workers": 1,
            "train": {"batch_size": 8, "max_steps": 2, "learning_rate": 1e-3, "similarity": "cosine", "num_workers": 1},
            "validate.every": 2,
            "loop": {"initialization": "none", "max_iterations": 1},
        },
    } | changes


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "runs" / "s" / "sweep.json").read_text())


def written(folder: Path, *parts: str) -> dict[Path, int]:
    """When every file was written, or every one with a part of these in its path; not the sweep's own files."""
    own = folder / "runs" / "s"
    files = [file for file in (folder / "runs").rglob("*") if not file.is_relative_to(own)]
    chosen = [file for file in files if not parts or any(part in str(file) for part in parts)]
    return {file: file.stat().st_mtime_ns for file in chosen if file.is_file()}


def stages(folder: Path) -> Counter[str]:
    """How many stages of each kind there are, in all runs."""
    return Counter(json.loads(file.read_text())["kind"] for file in (folder / "runs").rglob("stage.json"))


@pytest.mark.usefixtures("ray_cluster")
def test_trials_share_their_stages_and_the_best_is_a_finished_run(
    tmp_path: Path, tiny_encoder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(run, "make_stores", lambda every: made.append(len(every)))
    two = {"annotate.k": {"grid": [1]}, "train.batch_size": {"grid": [8, 16]}}
    config = Sweep.model_validate(config_for(tmp_path, tiny_encoder) | {"parameters": two})
    assert sweep(config) == 0
    said = capsys.readouterr().out
    assert "2 trials to run, 2 at a time" in said
    assert made == [2], "what trackers keep on this machine, before trials would make it at the same time"
    assert "[1/2]   annotated: " in said, "what a trial says is shown, with its number"
    found = results(tmp_path)
    assert [row["state"] for row in found["trials"]] == ["finished"] * 2
    assert all(len(row["iterations"]) == 2 and row["iterations"][1]["pairs"] for row in found["trials"])
    assert stages(tmp_path)["prepare"] == 1
    assert stages(tmp_path)["train"] == 2
    annotations = {json.loads(file.read_text())["folder"] for file in (tmp_path / "runs" / "stages").iterdir()}
    assert sum("annotations" in folder for folder in annotations) == 1, "one first annotation for the K"

    before = written(tmp_path)
    best = tmp_path / "runs" / "s" / "best.yaml"
    settings = parse(Settings, ["--config", str(best)], "pretrain.py", "")
    capsys.readouterr()
    pretrain(settings)
    assert "nothing to do" in capsys.readouterr().out
    assert sweep(config) == 0
    assert "2 trials, 2 of them done" in capsys.readouterr().out
    assert written(tmp_path) == before
    assert results(tmp_path) == found


@pytest.mark.usefixtures("ray_cluster")
def test_a_task_of_a_trial_gets_a_core_although_the_trial_has_none(tmp_path: Path) -> None:
    class Holder:
        """Placed as Tune places a trial, whose own tasks it would place beside it."""

        def work(self) -> None:
            in_one_task(Path.touch, tmp_path / "done")

    here = f"node:{ray.nodes()[0]['NodeManagerAddress']}"
    group = placement_group([{here: 0.001}])
    method = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    holder: Any = ray.remote(num_cpus=0, resources={here: 0.001}, scheduling_strategy=method)(Holder).remote()
    ray.get(holder.work.remote(), timeout=60)
    assert (tmp_path / "done").exists()
    ray.kill(holder)
    remove_placement_group(group)


@pytest.mark.usefixtures("ray_cluster")
def test_what_does_not_fit_the_corpus_or_the_cluster_is_refused_before_any_trial(
    tmp_path: Path, tiny_encoder: Path
) -> None:
    config = config_for(tmp_path, tiny_encoder)
    many = config | {"parameters": {"train.batch_size": {"grid": [8, 640]}}}
    with pytest.raises(ValueError, match=r"trial train.batch_size = 640: train.batch_size = 640: the corpus has 60"):
        sweep(Sweep.model_validate(many))
    with pytest.raises(ValueError, match=r"annotate.num_workers = 99: the cluster has 2 CPU cores"):
        sweep(Sweep.model_validate(config | {"settings": config["settings"] | {"annotate.num_workers": 99}}))
    assert stages(tmp_path) == {"prepare": 1}


@pytest.mark.usefixtures("ray_cluster")
def test_why_a_trial_failed_is_in_the_table(tmp_path: Path, tiny_encoder: Path) -> None:
    two = {"annotate.k": {"grid": [1]}, "train.batch_size": {"grid": [8, 16]}}
    config = Sweep.model_validate(config_for(tmp_path, tiny_encoder) | {"parameters": two})
    blocked = plan_trials(config)
    for trial in blocked:  # a file where the run's folder would be
        (tmp_path / "runs").mkdir(exist_ok=True)
        (tmp_path / "runs" / trial.name).touch()
    assert sweep(config) == 2
    for row, trial in zip(results(tmp_path)["trials"], blocked, strict=True):
        assert row["state"] == "failed"
        assert trial.name in row["reason"]
        assert "\n" not in row["reason"]
        assert "ray::" not in row["reason"]


def start(folder: Path, config: dict[str, Any]) -> subprocess.Popen[bytes]:
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump(config))
    return subprocess.Popen(
        [sys.executable, str(ROOT / "jobs" / "sweep.py"), "--config", str(file)],
        env=os.environ | {"RAY_ADDRESS": "local", "INFOCSE_TRACEBACK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path, tiny_encoder: Path) -> None:
    config = config_for(tmp_path, tiny_encoder) | {"parameters": {"annotate.k": {"grid": [1, 2, 3]}}}
    driver = start(tmp_path, config | {"max_concurrent": 1})
    own = tmp_path / "runs" / "s"

    def states() -> list[str]:
        return [row["state"] for row in results(tmp_path)["trials"]] if (own / "sweep.json").exists() else []

    while "finished" not in states() or not list((tmp_path / "runs").glob("s-k2-*/iteration_1/annotations/stage.json")):
        assert driver.poll() is None, (driver.stdout.read() if driver.stdout else b"").decode()
        time.sleep(0.02)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    done = ("s-k1-", "/annotations/", "/corpora/")
    before = written(tmp_path, *done)
    again = start(tmp_path, config)
    said = again.communicate(timeout=900)[0].decode()
    assert again.returncode == 0, said
    assert states() == ["finished"] * 3
    assert "3 trials, 1 of them done" in said
    after = written(tmp_path, *done)
    assert {file: after[file] for file in before} == before, "finished work was done again"
    assert stages(tmp_path)["train"] == 3


@pytest.mark.usefixtures("ray_cluster")
def test_tune_stops_the_trial_that_lags_behind(
    tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def learned(settings: Settings, after_iteration: Any, at_once: int) -> dict[str, Any]:
        """Stands for `pretrain`: the first learning rate helps, the other changes nothing."""
        scores = [0.1, 0.3, 0.5] if settings.train.learning_rate == 1e-3 else [0.1, 0.1, 0.1]
        iterations = [{"iteration": t, "validation": {"mrr": score}} for t, score in enumerate(scores)]
        after_iteration(iterations[:2])
        return {"iterations": iterations, "best_iteration": 2}

    def trainable(
        config: dict[str, Any], trials: dict[int, tuple[str, Settings]], at_once: int, log: Any, **_: Any
    ) -> None:
        run_trial(trials[config["trial"]][1], tune.report, at_once, learned)

    monkeypatch.setattr(run, "_trainable", trainable)
    content = config_for(tmp_path, tiny_encoder)
    settings = nested(content["settings"])
    settings["loop"] |= {"max_iterations": 2}
    content |= {"settings": settings, "parameters": {"train.learning_rate": {"grid": [1e-3, 1e-7]}}}
    config = Sweep.model_validate(content | {"max_concurrent": 1, "asha": {"grace_iterations": 1}})
    assert sweep(config) == 0
    good, bad = results(tmp_path)["trials"]
    assert (good["state"], bad["state"]) == ("finished", "stopped"), (good, bad)
    assert [len(row["iterations"]) for row in (good, bad)] == [3, 2]
    assert bad["reason"] == "stopped early after iteration 1"
    capsys.readouterr()
    assert sweep(config) == 0
    assert "2 trials, 2 of them done" in capsys.readouterr().out
