"""Event files, read back: every step once, whatever was interrupted; what stages counted, over iterations."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.crc32c import crc32c
from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

from infocse_ray.loop.manifest import Manifest
from infocse_ray.stages import events
from infocse_ray.stages.events import Curve, curve_folder, event_file, show_stage, stage_values, write_curve
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from infocse_ray.train.step import StepReport

Points = dict[str, list[tuple[int, float]]]


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read_events(content: bytes) -> tuple[list[str], Points, list[float]]:
    """Versions, points by tag, and times, of an event file whose checksums are right."""
    versions, points, times = [], Points(), []
    while content:
        (size,) = struct.unpack("Q", content[:8])
        data = content[12 : 12 + size]
        assert struct.unpack("I", content[8:12]) == (masked(content[:8]),)
        assert struct.unpack("I", content[12 + size : 16 + size]) == (masked(data),)
        content = content[16 + size :]
        event = Event.FromString(data)
        if event.file_version:
            versions.append(event.file_version)
            continue
        times.append(event.wall_time)
        for value in event.summary.value:
            points.setdefault(value.tag, []).append((event.step, round(value.simple_value, 4)))
    return versions, points, times


def read_all(run: Storage) -> dict[str, Points]:
    """The points of every folder of events of a run."""
    found: dict[str, Points] = {}
    for name in sorted((run / "events").files()):
        versions, points, _ = read_events((run / "events" / name).read_bytes())
        assert versions == ["brain.Event:2"]
        for tag, values in points.items():
            found.setdefault(name.rpartition("/")[0], {}).setdefault(tag, []).extend(values)
    return found


def report(step: int) -> StepReport:
    return StepReport(loss=1.0 / step, gradient_norm=2.0, spread=0.5, tokens=80, padded=100)


def train(progress: dict[str, Any], folder: Storage | None, last: int, every: int = 10) -> Curve:
    """What the loop does to the curve, from where `progress` is to the step `last`."""
    curve = Curve(folder, progress)
    for step in range(progress["step"] + 1, last + 1):
        progress["step"] = step
        validating = step % every == 0
        curve.add(step, report(step), 0.5, validating)
        if validating:
            scores = {"recall@5": step / 1000, "recall@5_low": 0.1, "mrr": 0.2, "queries": 9, "loss": 7.0}
            progress["history"].append({"step": step, **scores})
        curve.show()
    return curve


def begun() -> dict[str, Any]:
    progress: dict[str, Any] = {"step": 0, "history": [{"step": 0, "recall@5": 0.0, "mrr": 0.0}]}
    Curve(None, progress).add(0, validated=True)
    return progress


def test_a_curve_has_its_steps_and_validations(tmp_path):
    folder, progress = Storage.open(str(tmp_path)), begun()
    train(progress, None, 20)
    write_curve(folder, progress)
    [name] = folder.files()
    versions, points, times = read_events((folder / name).read_bytes())
    assert versions == ["brain.Event:2"]
    assert points["train/loss"] == [(step, round(1 / step, 4)) for step in range(1, 21)]
    assert points["train/padding_share"][0] == (1, 0.2)
    assert points["train/tokens_per_second"][0] == (1, 160.0)
    assert points["validation/recall@5"] == [(0, 0.0), (10, 0.01), (20, 0.02)]
    assert set(points) == {
        *(f"train/{name}" for name in ("loss", "gradient_norm", "spread", "tokens_per_second", "padding_share")),
        "validation/recall@5",
        "validation/mrr",
    }
    assert times == sorted(times)
    assert times[0] > 1.7e9


def test_a_resumed_curve_has_every_step_once(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "_EVERY_SECONDS", 0.0)
    folder, progress = Storage.open(str(tmp_path)), begun()
    train(progress, None, 10)
    checkpoint = {key: list(value) if isinstance(value, list) else value for key, value in progress.items()}
    curve = train(progress, folder, 27)
    curve.close()
    # Killed; what was shown is further than the checkpoint.
    train(checkpoint, None, 30)
    write_curve(folder, checkpoint)
    [name] = folder.files()
    _, points, _ = read_events((folder / name).read_bytes())
    assert [step for step, _ in points["train/loss"]] == list(range(1, 31))
    assert [step for step, _ in points["validation/mrr"]] == [0, 10, 20, 30]


def test_a_curve_that_goes_on_is_added_to_in_place(tmp_path):
    folder, progress = Storage.open(str(tmp_path)), begun()
    train(progress, None, 5)
    write_curve(folder, progress)
    [file] = tmp_path.iterdir()
    with file.open("rb") as watched:
        before = watched.read()
        train(progress, None, 12)
        write_curve(folder, progress)
        _, points, _ = read_events(before + watched.read())
    assert len(points["train/loss"]) == 12
    # A crash while it was added to leaves a part of an event.
    whole = file.read_bytes()
    file.write_bytes(whole[:-7])
    write_curve(folder, progress)
    assert file.read_bytes() == whole


def test_a_long_curve_has_few_points_and_is_the_same_wherever_it_was_cut(monkeypatch):
    monkeypatch.setattr(events, "_AN_OCTAVE", 4)
    progress, other = begun(), begun()
    train(progress, None, 1000, every=1001)
    for cut in (3, 17, 500, 1000):
        train(other, None, cut, every=1001)
    steps = [point["step"] for point in progress["curve"]]
    assert steps == [point["step"] for point in other["curve"]]
    assert steps[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert len(steps) < 50
    assert steps[-1] > 870


def test_only_now_and_then_and_without_waiting_is_a_growing_curve_written(tmp_path, monkeypatch):
    progress = begun()
    train(progress, Storage.open(str(tmp_path)), 50)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(events, "_EVERY_SECONDS", 0.0)

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(events, "write_curve", fail)
    curve = train(progress, Storage.open(str(tmp_path)), 60)
    curve.close()
    assert progress["step"] == 60


def stage(folder: Path, kind: str, **summary: Any) -> Stage:
    return Stage(kind, "f", Storage.open(str(folder)), {"seconds": 3.0, **summary})


def show(run: Storage, tmp_path: Path) -> None:
    """A run of two iterations and a test, as its manifest gets to know it."""
    manifest = Manifest(run)
    manifest.begin("pretrain", {}, {})
    rejected = {"empty": 2, "one sentence": 3}
    documents = {"train": 6, "valid": 2, "test": 1}
    corpus = {"documents": documents, "rejected": rejected, "sentences": 50, "token_type": "uint16"}
    manifest.add("corpus", stage(tmp_path / "c", "prepare", **corpus))
    for t in (1, 2):
        annotated = {"pairs": 10 * t, "tokens": 75, "padded_tokens": 100, "cluster_sizes": {"2": 3}}
        manifest.add(f"iteration_{t}/annotations", stage(tmp_path / f"a{t}", "annotate", **annotated))
        trained = stage(tmp_path / f"t{t}", "train", steps=20, best=0.5, history=[1], resumed_at=[])
        progress = begun()
        train(progress, None, 20)
        (trained.folder / "result.json").write_json(checked(progress))
        manifest.add(f"iteration_{t}/train", trained)
    manifest.add("round_1/zero_shot/test", stage(tmp_path / "e", "evaluate", metrics={"recall@5": 0.7, "queries": 9}))


def test_stages_are_shown_over_their_iterations(tmp_path):
    run = Storage.open(str(tmp_path / "run"))
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
    assert [step for step, _ in found["iteration_2"]["train/loss"]] == list(range(1, 21))
    # The same command again, after a crash or not, changes nothing.
    before = {name: (run / "events" / name).read_bytes() for name in (run / "events").files()}
    kept = run / "events" / "iterations" / "events.out.tfevents.00001.train"
    assert kept.exists()
    kept.delete()
    manifest = Manifest(run)
    manifest.add("iteration_1/train", stage(tmp_path / "t1", "train", steps=20, best=0.5, history=[1], resumed_at=[]))
    assert {name: (run / "events" / name).read_bytes() for name in (run / "events").files()} == before


def test_a_stage_of_another_run_is_shown_whole(tmp_path):
    run, other = (Storage.open(str(tmp_path / name)) for name in ("run", "other"))
    show(run, tmp_path)
    show_stage(other, "iteration_1/train", stage(tmp_path / "t1", "train"))
    [name] = curve_folder(run, "iteration_1").files()
    assert (curve_folder(other, "iteration_1") / name).read_bytes() == (
        curve_folder(run, "iteration_1") / name
    ).read_bytes()


def test_what_is_no_number_is_left_out():
    _, points, _ = read_events(event_file([(1, 0.0, {"a": float("inf"), "b": float("nan"), "c": 1.0})]))
    assert points == {"c": [(1, 1.0)]}
    summary = {"flag": True, "name": "x", "list": [1, 2], "cluster_sizes": {"2": 3}, "count": 4}
    assert stage_values(summary) == {"count": 4.0}
