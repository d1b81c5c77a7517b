"""What TensorBoard is shown, read back: every step once, whatever was interrupted; what stages counted."""

from __future__ import annotations

import struct
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.crc32c import crc32c
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

from infocse_ray.stages import metrics
from infocse_ray.stages.metrics import TrainingMetrics
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.tracking import tensorboard
from infocse_ray.tracking.tracking import Tracking
from infocse_ray.tracking.values import summary_values
from infocse_ray.train.step import StepReport
from tests.unit.tracking.runs import PointsTo, settings_for

Points = dict[str, list[tuple[int, float]]]


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read_events(content: bytes, points: Points) -> None:
    """Add the points of an event file, whose checksums are right, as TensorBoard does: a restart purges."""
    while content:
        (size,) = struct.unpack("Q", content[:8])
        data = content[12 : 12 + size]
        assert struct.unpack("I", content[8:12]) == (masked(content[:8]),)
        assert struct.unpack("I", content[12 + size : 16 + size]) == (masked(data),)
        content = content[16 + size :]
        event = Event.FromString(data)
        assert event.file_version in ("", "brain.Event:2")
        if event.HasField("session_log"):
            for tag in points:
                points[tag] = [point for point in points[tag] if point[0] < event.step]
        for value in event.summary.value:
            points.setdefault(value.tag, []).append((event.step, round(value.simple_value, 4)))


def read_all(run: Storage) -> dict[str, Points]:
    """The points of every folder of events of a run."""
    found: dict[str, Points] = {}
    for name in sorted((run / "events").files()):
        read_events((run / "events" / name).read_bytes(), found.setdefault(name.rpartition("/")[0], {}))
    return found


def report(step: int) -> StepReport:
    return StepReport(loss=1.0 / step, gradient_norm=2.0, spread=0.5, tokens=80, padded=100)


def scores(step: int) -> dict[str, float]:
    return {"recall@5": step / 1000, "recall@5_low": 0.1, "mrr": 0.2, "queries": 9, "loss": 7.0}


class Shown:
    """A training that TensorBoard is shown by its worker 0, through the driver."""

    def __init__(self, run: Storage, first: int, folder: str = "news/iteration_1/train") -> None:
        stage = Stage("train", "f", Storage(run.root, folder))
        self._tracking = Tracking(settings_for("tensorboard"), "pretrain", run)
        self._metrics = TrainingMetrics(stage.folder, PointsTo(self._tracking.training("iteration_1", stage)), first)
        self.step, self.validation = self._metrics.step, self._metrics.validation

    def close(self) -> None:
        self._metrics.close()
        self._tracking.__exit__(None, None, None)


def train(run: Storage, first: int, last: int, folder: str = "news/iteration_1/train") -> Shown:
    """What is shown from the step `first` to the step `last`."""
    shown = Shown(run, first, folder)
    for step in range(first, last + 1):
        if step:
            shown.step(step, report(step), 0.5, 16)
        if step % 10 == 0:
            shown.validation(step, scores(step))
    return shown


@pytest.fixture(params=["local", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "run") if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def test_a_training_has_its_steps_and_validations(run):
    train(run, 0, 20).close()
    points = read_all(run)["iteration_1"]
    assert points["train/loss"] == [(step, round(1 / step, 4)) for step in range(1, 21)]
    assert points["train/padding_share"][0] == (1, 0.2)
    assert points["train/tokens_per_second"][0] == (1, 160.0)
    assert points["validation/recall@5"] == [(0, 0.0), (10, 0.01), (20, 0.02)]
    assert set(points) == {
        *(f"train/{name}" for name in ("loss", "gradient_norm", "spread", "tokens_per_second", "padding_share")),
        "validation/recall@5",
        "validation/mrr",
    }


def test_a_resumed_training_has_every_step_once(run):
    killed = train(run, 0, 27)
    killed.close()
    # Its last checkpoint was that of step 10.
    train(run, 11, 30).close()
    points = read_all(run)["iteration_1"]
    assert [step for step, _ in points["train/loss"]] == list(range(1, 31))
    assert [step for step, _ in points["validation/mrr"]] == [0, 10, 20, 30]
    # Other settings under the same name: a training of its own, from the beginning.
    train(run, 0, 5, "news/iteration_1/train-0123").close()
    points = read_all(run)["iteration_1"]
    assert [step for step, _ in points["train/loss"]] == list(range(1, 6))
    assert [step for step, _ in points["validation/mrr"]] == [0]


def test_tensorboard_itself_shows_every_step_once(tmp_path):
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = Storage.open(str(tmp_path))
    train(run, 0, 27).close()
    train(run, 11, 30).close()
    shown = reading.EventAccumulator(str(tmp_path / "events" / "iteration_1")).Reload()
    assert [point.step for point in shown.Scalars("train/loss")] == list(range(1, 31))
    assert [point.step for point in shown.Scalars("validation/mrr")] == [0, 10, 20, 30]


def test_a_file_that_grows_is_added_to_in_place_and_shown_soon(tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "_FLUSH_SECONDS", 0.01)
    shown = train(Storage.open(str(tmp_path)), 0, 5)
    deadline = time.monotonic() + 30
    while not (there := list((tmp_path / "events" / "iteration_1").glob("events*"))) and time.monotonic() < deadline:
        time.sleep(0.01)
    with there[0].open("rb") as watched:
        before = watched.read()
        for step in range(6, 13):
            shown.step(step, report(step), 0.5, 16)
        shown.close()
        read_events(before + watched.read(), points := Points())
    assert len(points["train/loss"]) == 12


def test_a_long_curve_has_few_points(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "_AN_OCTAVE", 4)
    train(run := Storage.open(str(tmp_path)), 0, 1000).close()
    points = read_all(run)["iteration_1"]
    steps = [step for step, _ in points["train/loss"]]
    assert steps[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(steps) < 50
    assert steps[-1] > 870
    assert len(points["validation/mrr"]) == 101


def test_a_storage_that_refuses_or_is_slow_holds_nothing_up(tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "_FLUSH_SECONDS", 0.01)
    refused: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def refuse(*_: object) -> None:
        begun.set()
        assert go_on.wait(30)
        refused.append(1)
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "write_bytes", refuse)
        shown = train(Storage.open(str(tmp_path)), 0, 5)
        assert begun.wait(30)
        for step in range(6, 500):
            shown.step(step, report(step), 0.5, 16)
        go_on.set()
        while not refused:
            time.sleep(0.01)
    shown.close()
    assert len(read_all(Storage.open(str(tmp_path)))["iteration_1"]["train/loss"]) > 300


def stage(folder: Path, kind: str, **summary: Any) -> Stage:
    return Stage(kind, "f", Storage(str(folder.parent), folder.name), {"seconds": 3.0, **summary})


def show(run: Storage, tmp_path: Path) -> None:
    """A run of two iterations and a test."""
    with Tracking(settings_for("tensorboard"), "pretrain", run) as tracking:
        show_stages(tracking, tmp_path)


def show_stages(tracking: Tracking, tmp_path: Path) -> None:
    rejected = {"empty": 2, "one sentence": 3}
    documents = {"train": 6, "valid": 2, "test": 1}
    corpus = {"documents": documents, "rejected": rejected, "sentences": 50, "token_type": "uint16"}
    tracking.stage("corpus", stage(tmp_path / "c", "prepare", **corpus))
    for t in (1, 2):
        annotated = {"pairs": 10 * t, "tokens": 75, "padded_tokens": 100, "cluster_sizes": {"2": 3}}
        tracking.stage(f"iteration_{t}/annotations", stage(tmp_path / f"a{t}", "annotate", **annotated))
        history = [{"step": step} | scores(step) for step in (0, 10, 20)]
        trained = stage(tmp_path / f"t{t}", "train", steps=20, best=0.5, history=history, resumed_at=[])
        tracking.stage(f"iteration_{t}/train", trained)
    tracking.stage("round_1/zero_shot/test", stage(tmp_path / "e", "evaluate", metrics={"recall@5": 0.7, "queries": 9}))


def show_one(run: Storage, name: str, stage: Stage) -> None:
    with Tracking(settings_for("tensorboard"), "pretrain", run) as tracking:
        tracking.stage(name, stage)


def test_stages_are_shown_over_their_iterations(tmp_path):
    run = Storage.open(str(tmp_path / "run"))
    for _ in range(2):  # the same command again, after a crash or not, changes nothing
        show(run, tmp_path)
        found = read_all(run)
        assert set(found) == {"run", "iterations", "iteration_1", "iteration_2", "rounds"}
        assert found["run"]["corpus/documents"] == [(0, 9.0)]
        assert found["run"]["corpus/documents/valid"] == [(0, 2.0)]
        assert found["run"]["corpus/bad_rows"] == [(0, 5.0)]
        assert found["iterations"]["annotations/pairs"] == [(1, 10.0), (2, 20.0)]
        assert found["iterations"]["annotations/padding_share"] == [(1, 0.25), (2, 0.25)]
        assert found["iterations"]["train/seconds"] == [(1, 3.0), (2, 3.0)]
        assert found["rounds"]["zero_shot/test/recall@5"] == [(1, pytest.approx(0.7))]
        assert found["iteration_2"]["validation/recall@5"] == [(0, 0.0), (10, 0.01), (20, 0.02)]
        assert len((run / "events" / "iteration_2").files()) == 1


def test_what_a_full_disk_took_a_part_of_is_written_over(tmp_path):
    file = tensorboard._EventFile(Storage.open(str(tmp_path)) / "events")
    file.write(b"abc")
    file.flush()
    with (tmp_path / "events").open("ab") as full:
        full.write(b"de")
    file.write(b"defg")
    file.flush()
    assert (tmp_path / "events").read_bytes() == b"abcdefg"


def test_what_a_run_trained_itself_keeps_its_steps_and_what_another_did_replaces_them(run, tmp_path):
    history = [{"step": step} | scores(step) for step in (0, 10)]
    train(run, 0, 27, "own").close()
    show_one(run, "iteration_1/train", stage(tmp_path / "own", "train", history=history))
    assert len(read_all(run)["iteration_1"]["train/loss"]) == 27
    show_one(run, "iteration_1/train", stage(tmp_path / "other", "train", history=history))
    found = read_all(run)["iteration_1"]
    assert found.pop("validation/mrr") == [(0, 0.2), (10, 0.2)]
    assert found["train/loss"] == []
    # The same command as at first finds its own training again.
    show_one(run, "iteration_1/train", stage(tmp_path / "own", "train", history=history))
    assert len(read_all(run)["iteration_1"]["train/loss"]) == 27


def test_half_a_record_that_a_killed_command_wrote_is_not_shown_again(run, tmp_path):
    history = [{"step": step} | scores(step) for step in (0, 10)]
    train(run, 0, 27, "own").close()
    folder = run / "events" / "iteration_1"
    [name] = folder.files()
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole + whole[:20])
    for its in ("other", "own"):
        show_one(run, "iteration_1/train", stage(tmp_path / its, "train", history=history))
    assert (folder / sorted(folder.files())[-1]).read_bytes() == whole


def test_what_is_no_number_is_left_out(run):
    shown = Shown(run, 0)
    shown.step(1, report(1)._replace(loss=float("inf"), gradient_norm=float("nan")), 0.5, 16)
    shown.close()
    assert set(read_all(run)["iteration_1"]) == {f"train/{n}" for n in ("spread", "tokens_per_second", "padding_share")}
    summary = {"flag": True, "name": "x", "list": [1, 2], "cluster_sizes": {"2": 3}, "last": 2**62, "count": 4}
    assert summary_values(summary) == {"count": 4.0}
