"""MLflow, in a database of its own on this machine: curves, settings, scores; resumed under the same MLflow run."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.errors import Interrupted
from infocse_ray.loop import shown_late
from infocse_ray.loop.manifest import Manifest
from infocse_ray.loop.run import finished
from infocse_ray.settings import Settings
from infocse_ray.stages.records import read_record, write_record
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.tracking.mlflow import MLflow, make_store
from infocse_ray.tracking.sink import TrackedRun
from infocse_ray.tracking.tracking import Tracking
from tests.unit.tracking.runs import HISTORY, METRICS, settings_for, show_training

mlflow = pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")


@pytest.fixture(scope="module")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables, which take seconds to make."""
    file = tmp_path_factory.mktemp("mlflow") / "new.db"
    mlflow.MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def client(new_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    file = tmp_path / "mlflow.db"
    shutil.copy(new_database, file)
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{file}")
    # What the sink sets for itself is gone after the test.
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    return mlflow.MlflowClient(f"sqlite:///{file}")


def tracked(client: Any) -> list[Any]:
    experiment = client.get_experiment_by_name("infocse")
    return client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"])


def curve(client: Any, id: str, name: str) -> list[tuple[int, float]]:
    return [(metric.step, round(metric.value, 4)) for metric in client.get_metric_history(id, name)]


def settings(**more: Any) -> Settings:
    return settings_for("mlflow", storage="s3://KEY:hidden-secret@bucket/runs", **more)


def test_a_run_that_is_stopped_and_goes_on_is_one_mlflow_run(client, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["infocse", "--storage", "s3://KEY:hidden-secret@bucket/runs"])
    run = Storage(str(tmp_path), "news")
    stage = Stage("train", "f", run / "iteration_1" / "train")
    corpus = Stage("prepare", "c", run / "corpus", {"seconds": 1.0, "sentences": 50})

    def stopped() -> None:
        with Tracking(settings(tracking={"group": "first"}), "pretrain", run) as tracking:
            tracking.stage("corpus", corpus)
            show_training(tracking, stage, range(0, 8), ends=False)
            raise Interrupted(15)

    with pytest.raises(Interrupted):
        stopped()
    (one,) = tracked(client)
    assert one.info.status == "KILLED"

    with Tracking(settings(seed=7, tracking={"group": "first"}), "pretrain", run) as tracking:
        tracking.stage("corpus", corpus)
        show_training(tracking, stage, range(6, 11))  # from the checkpoint of step 5
        tracking.summary(METRICS, "i")
    (one,) = tracked(client)
    id = one.info.run_id
    assert (one.info.status, one.info.run_name) == ("FINISHED", "news")
    assert curve(client, id, "iteration_1/train/loss") == [(step, round(1 / step, 4)) for step in range(1, 11)]
    assert curve(client, id, "iteration_1/validation/recall_at_5") == [(0, 0.5), (10, 0.6)]
    assert curve(client, id, "run/corpus/sentences") == [(0, 50.0)], "once, though the run went on"
    assert curve(client, id, "iterations/train/seconds") == [(1, 3.0)]
    assert "iteration_1/train/spread" not in one.data.metrics, "is no number"
    assert one.data.metrics["result/validation/recall_at_5"] == 0.5
    assert one.data.metrics["best_iteration"] == 1.0
    assert one.data.tags["infocse.verdict"] == "WIN"
    assert one.data.tags["infocse.group"] == "first"
    assert one.data.params["train.batch_size"] == str(settings().train.batch_size)
    assert (one.data.params["seed"], one.data.tags["changed.seed"]) == ("42", "7")
    assert one.data.params["storage"] == "s3://***@bucket/runs"
    assert "tracking.group" not in one.data.params
    assert b"hidden-secret" not in (tmp_path / "mlflow.db").read_bytes()
    assert capsys.readouterr().out == ""


def test_what_another_run_trained_has_its_validations(client, tmp_path):
    run = Storage(str(tmp_path), "news")
    stage = Stage("train", "f", Storage(str(tmp_path), "other/iteration_1/train"), {"seconds": 3.0, "history": HISTORY})
    with Tracking(settings(), "pretrain", run) as tracking:
        tracking.stage("iteration_1/train", stage)
    (one,) = tracked(client)
    assert curve(client, one.info.run_id, "iteration_1/validation/recall_at_5") == [(0, 0.5), (10, 0.6)]


def test_reasons_why_rows_are_bad_are_curves_too(client, tmp_path, capsys):
    run = Storage(str(tmp_path), "news")
    rejected = {"empty": 2, "split is none of train, valid, test": 3}
    summary = {"seconds": 1.0, "sentences": 50, "rejected": rejected}
    with Tracking(settings(), "pretrain", run) as tracking:
        tracking.stage("corpus", Stage("prepare", "c", run / "corpus", summary))
    (one,) = tracked(client)
    assert one.data.metrics["run/corpus/bad_rows/split is none of train_ valid_ test"] == 3.0
    assert one.data.metrics["run/corpus/sentences"] == 50.0
    assert capsys.readouterr().out == ""


def test_mlflow_does_not_tell_its_makers_of_a_run(client, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "")  # so that it is gone after the test
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
    with Tracking(settings(), "pretrain", Storage(str(tmp_path), "news")):
        pass
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_an_mlflow_run_that_was_deleted_is_followed_by_a_new_one(client, tmp_path, monkeypatch):
    run = Storage(str(tmp_path), "news")
    stage = Stage("train", "f", run / "iteration_1" / "train")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    for _ in range(2):
        with Tracking(settings(), "pretrain", run) as tracking:
            show_training(tracking, stage, range(0, 11))
        there = client.search_runs([client.get_experiment_by_name("theirs").experiment_id])
        (one,) = there
        assert len(curve(client, one.info.run_id, "iteration_1/train/loss")) == 10
        client.delete_run(one.info.run_id)


def test_a_run_that_goes_on_is_under_way_again_and_takes_settings_of_any_length_and_number(client, tmp_path):
    many = {f"of_{number:03}": number for number in range(250)}
    given = {"corpus": {"source": "a" * 9000}, "many": many}
    tracked_run = TrackedRun("news", "pretrain", Storage(str(tmp_path), "news"), given, None)
    for _ in range(2):
        sink = MLflow()
        sink.open(tracked_run)
        (one,) = tracked(client)
        assert one.info.status == "RUNNING"
        assert one.data.params == {"corpus.source": "a" * 6000} | {f"many.{name}": str(n) for name, n in many.items()}
        assert not [name for name in one.data.tags if name.startswith("changed.")]
        sink.close("stopped")


def test_a_setting_that_is_what_it_was_first_has_no_tag_of_another(client, tmp_path):
    for seed, tag in ((1, None), (2, "2"), (1, "1")):
        sink = MLflow()
        sink.open(TrackedRun("news", "pretrain", Storage(str(tmp_path), "news"), {"seed": seed}, None))
        (one,) = tracked(client)
        assert (one.data.params["seed"], one.data.tags.get("changed.seed")) == ("1", tag)


def test_a_server_that_cannot_tell_whether_a_run_is_there_gets_no_second_one(client, tmp_path, monkeypatch):
    tracked_run = TrackedRun("news", "pretrain", Storage(str(tmp_path), "news"), {}, None)
    MLflow().open(tracked_run)

    def unavailable(*_: Any) -> None:
        raise mlflow.exceptions.MlflowException("later, please")

    monkeypatch.setattr(mlflow.MlflowClient, "get_run", unavailable)
    with pytest.raises(mlflow.exceptions.MlflowException, match="later, please"):
        MLflow().open(tracked_run)
    assert len(tracked(client)) == 1


def test_a_server_out_of_reach_is_warned_of_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # nobody listens
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    run = Storage(str(tmp_path), "news")
    with Tracking(settings(), "pretrain", run) as tracking:
        show_training(tracking, Stage("train", "f", run / "iteration_1" / "train"), range(0, 11))
        tracking.summary(METRICS, "i")
    printed = capsys.readouterr()
    assert printed.out.count("warning: tracking: mlflow: ") == 1
    assert len(printed.out.splitlines()) == 1
    assert printed.err == ""


def a_finished_run(folder: Path) -> tuple[Storage, Settings]:
    """With one training."""
    root = Storage.open(str(folder / "runs"))
    run = root / "news"
    kept = run_stage(root, run / "iteration_1" / "train", "train", "f", lambda _: {"steps": 10, "history": HISTORY})
    manifest = Manifest(run)
    manifest.begin("pretrain", {"name": "news"}, {"corpus": "c"})
    manifest.add("iteration_1/train", kept)
    (run / "metrics.json").write_json(METRICS)
    manifest.finish("i", [])
    return run, settings_for("mlflow", storage=root.root)


def test_a_finished_run_tells_what_was_away_to_its_end(client, tmp_path, monkeypatch, capsys):
    run, asked = a_finished_run(tmp_path)
    there, stage = os.environ["MLFLOW_TRACKING_URI"], Stage("train", "f", run / "iteration_1" / "train")

    def again(said: str) -> None:
        capsys.readouterr()
        assert finished("pretrain", asked, "i") == METRICS
        assert capsys.readouterr().out.count("which it hasn't been told") == (said == "shows")

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with Tracking(asked, "pretrain", run) as tracking:
        show_training(tracking, stage, range(0, 11))
        tracking.summary(METRICS, "i")
    again("shows")  # away still
    monkeypatch.setenv("MLFLOW_TRACKING_URI", there)
    again("shows")
    (one,) = tracked(client)
    assert one.info.status == "FINISHED"
    assert one.data.metrics["result/validation/recall_at_5"] == 0.5
    assert one.data.tags["infocse.verdict"] == "WIN"
    assert curve(client, one.info.run_id, "iteration_1/validation/recall_at_5") == [(0, 0.5), (10, 0.6)]
    again("knows it")
    assert [one.info.run_id for one in tracked(client)] == [one.info.run_id]
    with Tracking(asked, "pretrain", run):  # goes on, with other settings say
        pass
    again("shows")
    assert finished("pretrain", settings_for("tensorboard", storage=str(tmp_path / "runs")), "i") == METRICS


def test_a_finished_run_that_an_earlier_version_showed_is_left_as_it_is(client, tmp_path, monkeypatch):
    run, asked = a_finished_run(tmp_path)
    with Tracking(asked, "pretrain", run) as tracking:
        tracking.summary(METRICS, "i")
    note = read_record(run / "tracking" / "mlflow.json", "mlflow")
    assert note is not None
    write_record(run / "tracking" / "mlflow.json", {name: value for name, value in note.items() if name != "told"})
    (before,) = tracked(client)
    assert finished("pretrain", asked, "i") == METRICS
    (after,) = tracked(client)
    assert before.info.end_time == after.info.end_time


def test_the_command_of_a_finished_run_waits_little_for_a_server_that_doesnt_answer(tmp_path, monkeypatch, capsys):
    _, asked = a_finished_run(tmp_path)
    answers = threading.Event()
    # Sooner than a run's own end gives up.
    monkeypatch.setattr(MLflow, "open", lambda *_: answers.wait(30))
    monkeypatch.setattr(shown_late, "_SECONDS", 0.05)
    assert finished("pretrain", asked, "i") == METRICS
    assert "mlflow: hasn't taken everything in time" in capsys.readouterr().out
    answers.set()


@pytest.mark.parametrize("wrong", ["package", "storage"])
def test_where_a_finished_run_cant_tell_nothing_is_begun(client, tmp_path, monkeypatch, capsys, wrong: str):
    _, asked = a_finished_run(tmp_path)

    def refused(*_: Any) -> None:
        raise ValueError(f"{wrong}: no")

    if wrong == "package":
        monkeypatch.setattr(shown_late, "check_sinks", refused)
    else:
        monkeypatch.setattr(shown_late.Storage, "for_runs", refused)
    assert finished("pretrain", asked, "i") == METRICS
    assert f"note: mlflow: isn't shown what the run came to: {wrong}: no" in capsys.readouterr().out
    assert client.get_experiment_by_name("infocse") is None


def test_the_store_is_made_with_its_experiment_where_it_is_of_this_machine(tmp_path: Path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'new.db'}")
    make_store()
    there = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'new.db'}").get_experiment_by_name("infocse")
    assert there is not None
    make_store()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    make_store()  # a server makes its own


@pytest.mark.parametrize(
    ("code", "answered", "away"),
    [
        ("TEMPORARILY_UNAVAILABLE", True, True),
        ("INTERNAL_ERROR", False, True),  # the client's own, of a server that didn't answer
        ("INTERNAL_ERROR", True, False),
        ("INVALID_PARAMETER_VALUE", True, False),
    ],
)
def test_a_server_that_does_not_answer_is_away_and_one_that_refuses_is_not(code: str, answered: bool, away: bool):
    from mlflow.exceptions import MlflowException, RestException
    from mlflow.protos import databricks_pb2

    told = {"error_code": code, "message": "no"}
    error = RestException(told) if answered else MlflowException("no", getattr(databricks_pb2, code))
    assert MLflow().is_away(error) == away
    assert MLflow().is_away(ConnectionError())
    assert not MLflow().is_away(PermissionError())
