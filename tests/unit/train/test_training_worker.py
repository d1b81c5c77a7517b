"""A training worker from its first step to its last, with a Ray Train that is a folder: stopped, resumed, told of."""

from __future__ import annotations

import errno
import gc
import shutil
import threading
import time
import weakref
from concurrent.futures import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train
import torch
from ray.train import Checkpoint

from infocse_ray.distributed.collectives import rank
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.errors import NoSpace
from infocse_ray.sampling.stream import ExampleStream
from infocse_ray.settings import Settings
from infocse_ray.stages.metrics import Begun
from infocse_ray.storage.checksums import MARK
from infocse_ray.storage.folder import Storage
from infocse_ray.train import loop
from infocse_ray.train.checkpoint import Snapshot
from infocse_ray.train.checkpoints import OfRayTrain
from infocse_ray.train.choice import WeightsChoice
from infocse_ray.train.loop import Training, TrainingWorker
from infocse_ray.train.memory import ChunkMemory, OutOfMemoryEverywhere
from infocse_ray.train.models import SavedModels
from infocse_ray.train.saver import Saver
from infocse_ray.train.schedule import Budget
from infocse_ray.train.step import train_step
from tests.unit.group import on_workers
from tests.unit.stores import counted
from tests.unit.trainees import EncoderSpec, annotated, load_encoder, method_for, settings_for

METRICS = ("recall@5", "recall@10", "recall@20", "mrr")


class FakeRayTrain:
    """Keeps the checkpoints that are reported, and offers the last."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self.steps: list[int] = []
        monkeypatch.setattr(ray.train, "report", self._report)
        monkeypatch.setattr(ray.train, "get_checkpoint", self._offer)

    def _place(self, step: int) -> Path:
        return self._folder / f"checkpoint_{step:04d}"

    def _report(self, metrics: dict[str, Any], checkpoint: Checkpoint) -> None:
        shutil.copytree(checkpoint.path, self._place(metrics["step"]))
        self.steps.append(metrics["step"])

    def _offer(self) -> Checkpoint | None:
        return Checkpoint(str(self._place(self.steps[-1]))) if self.steps else None


class SlowRayTrain(FakeRayTrain):
    """Holds the uploads after `held` steps until somebody waits for a checkpoint, or `released` is set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, held: set[int]) -> None:
        super().__init__(folder, monkeypatch)
        self.held, self.released, self.events = held, threading.Event(), list[str]()
        inner = Saver.wait_for_checkpoint

        def waits(saver: Saver) -> None:
            if saver._under_way is not None and not saver._under_way.done():
                self.events.append("waits")
                self.released.set()
            inner(saver)

        monkeypatch.setattr(Saver, "wait_for_checkpoint", waits)

    def _report(self, metrics: dict[str, Any], checkpoint: Checkpoint) -> None:
        self.events.append(f"begins {metrics['step']}")
        if metrics["step"] in self.held:
            self.released.wait(30)
        super()._report(metrics, checkpoint)
        self.events.append(f"saved {metrics['step']}")


class FakeBoard:
    """A board's handle that keeps what it is sent."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.line = SimpleNamespace(remote=self.lines.append)
        self.shown: list[str] = []
        """What is beside the bar, one after the other."""
        self.set = SimpleNamespace(remote=lambda _, note: self.shown.append(note))
        self.tell = SimpleNamespace(remote=self.shown.append)
        self.curves: list[Any] = []
        self.points = SimpleNamespace(remote=self.curves.extend)


def worker_of(training: Training) -> TrainingWorker:
    """As a worker of Ray Train."""
    return TrainingWorker(training, OfRayTrain(training.folder))


@pytest.fixture
def training(tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    """Nine steps, with a validation, whose score grows with the first weight, after every three."""
    settings = settings_for("simcse", tiny_encoder, interpolation=[], never_worse=False)
    return begun_training(settings, tmp_path / "source", tmp_path / "stage", tiny_encoder, monkeypatch)


def begun_training(
    settings: Settings, source: Path, stage: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> Training:
    """As `training` says, with these settings and folders."""
    nothing: Any = None
    settings = settings.model_copy(update={"validate": settings.validate.model_copy(update={"every": 3})})
    method = method_for("simcse", EncoderSpec.of(load_encoder(tiny_encoder, settings.encoder, True)), settings)
    for name, fake in {
        "score": lambda model, _: SimpleNamespace(
            metrics=dict.fromkeys(METRICS, float(next(model.parameters()).sum())) | {"queries": 100}
        ),
        "questions_for": lambda *_: None,
        "worker_device": lambda: torch.device("cpu"),
        "assigned_cores": lambda: 1,
    }.items():
        monkeypatch.setattr(loop, name, fake)
    return Training(
        settings,
        nothing,
        counted(annotated(source, tiny_encoder), method),
        method,
        Budget(9, None, 99),
        EncoderFolder(Storage.open(str(tiny_encoder)), "x", settings.encoder.max_length),
        5,
        Storage.open(str(stage)),
        "halves",
        board=FakeBoard(),
    )


def test_a_start_whose_scores_are_known_is_not_validated_again(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    FakeRayTrain(tmp_path / "known", monkeypatch)
    known = dict.fromkeys(METRICS, 0.25) | {"queries": 7}
    worker_of(training._replace(scored=known)).run()
    first, *others = (training.folder / "result.json").read_json()["history"]
    assert first == known | {"step": 0, "tokens_done": 0}
    assert [entry["queries"] for entry in others] == [100, 100, 100]
    assert training.board.lines[0] == "    step 0: validation " + ", ".join(f"{name} 0.2500" for name in METRICS)
    assert [note for note in training.board.shown if note.startswith("validating")] == [
        f"validating step {step}" for step in (3, 6, 9)
    ]


def test_an_encoder_is_gone_with_its_training(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[weakref.ref[Any]] = []

    class Watched(loop.TrainState):
        def __init__(self, encoder: Any, *others: Any) -> None:
            trained.append(weakref.ref(encoder))
            super().__init__(encoder, *others)

    monkeypatch.setattr(loop, "TrainState", Watched)
    # Memory of torch's that is in a cycle isn't missed before Python's own objects are many.
    gc.disable()
    try:
        loop.train_alone(training._replace(board=None))
        assert [encoder() for encoder in trained] == [None], "the next stage in this process would have less memory"
    finally:
        gc.enable()


def test_a_worker_that_begins_anew_after_the_choice_leaves_it(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    train = FakeRayTrain(tmp_path / "checkpoints", monkeypatch)
    sections = training.settings.model_dump()
    sections["train"] |= {"never_worse": True, "interpolation": [0.5]}
    training = training._replace(settings=type(training.settings).model_validate(sections))
    scores = iter([9.0, 1.0, 2.0, 3.0, 4.0])  # the start is best, so that no model is kept
    monkeypatch.setattr(
        loop, "score", lambda *_: SimpleNamespace(metrics=dict.fromkeys(METRICS, next(scores)) | {"queries": 100})
    )
    worker_of(training).run()
    result = (training.folder / "result.json").read_bytes()
    assert train.steps[-1] == 9
    assert not [name for name in training.folder.files() if name.startswith("models/")]
    worker_of(training).run()
    assert (training.folder / "result.json").read_bytes() == result


def test_a_model_that_was_damaged_leaves_nothing_where_it_is_written_again(tmp_path: Path, tiny_encoder: Path) -> None:
    stage = Storage.open(str(tmp_path))
    mark = stage / "models" / "step-00000003" / f"model.safetensors{MARK}"
    mark.write_bytes(b"")
    models = SavedModels(stage)
    bring = models.begin(
        load_encoder(tiny_encoder, settings_for("simcse", tiny_encoder).encoder, True), "step-00000003"
    )
    assert bring is not None
    bring()
    assert not mark.exists()
    models.load("step-00000003", 16)


def test_a_training_that_begins_anew_without_a_checkpoint_is_careful_for_good(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeRayTrain(tmp_path / "checkpoints", monkeypatch)
    resumed = list[tuple[int, ...]]()
    monkeypatch.setattr(ChunkMemory, "resume", lambda _, *tokens: resumed.append(tokens))
    first = worker_of(training)
    assert resumed == []
    worker_of(training)
    assert resumed == [(first._state.memory.tokens,)], "as after a checkpoint"


def test_a_training_that_goes_on_takes_its_memory_from_the_checkpoint(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    FakeRayTrain(tmp_path / "checkpoints", monkeypatch)
    known = {"chunk_tokens": 48, "kept_tokens": 96, "kept_room": 7}
    monkeypatch.setattr(ChunkMemory, "state", lambda _: known)
    first = worker_of(training)
    for _ in range(3):
        first.step()
    first._saver.wait()
    resumed = list[tuple[int, ...]]()
    monkeypatch.setattr(ChunkMemory, "resume", lambda _, *tokens: resumed.append(tokens))
    worker_of(training)
    assert resumed == [(48, 96, 7)]


def test_the_last_step_has_a_checkpoint_whatever_their_interval(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    rays = FakeRayTrain(tmp_path / "checkpoints", monkeypatch)
    train = training.settings.train.model_copy(update={"checkpoint_every": 4})
    worker_of(training._replace(settings=training.settings.model_copy(update={"train": train}))).run()
    assert rays.steps == [4, 8, 9]


def test_a_stages_seed_draws_its_heads_first_weights(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeRayTrain(tmp_path / "checkpoints", monkeypatch)
    first, again, other = (
        torch.cat([p.flatten() for p in worker_of(training._replace(seed=seed))._state.parameters()])
        for seed in (5, 5, 6)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_vectors_that_collapse_are_warned_of_once(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    FakeRayTrain(tmp_path / "checkpoints", monkeypatch)
    monkeypatch.setattr(loop, "collapsing", lambda *_: True)
    worker_of(training._replace(budget=Budget(6, None, 99))).run()
    assert [line.split(":")[1] for line in training.board.lines if "collapsing" in line] == [" step 1"]


def choice_of_two_workers(folder: Path, encoder: Path) -> tuple[list[str], int]:
    """What is left when the first of two workers takes its time to write the best step's model; tokens as it counts."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        FakeRayTrain(folder / f"checkpoints-{rank()}", monkeypatch)
        asked_at(None, monkeypatch)
        write = Storage.write_bytes

        def slow(file: Storage, data: bytes, *more: Any) -> None:
            if rank() == 0 and file.name == "model.safetensors":
                time.sleep(1.0)
            write(file, data, *more)

        monkeypatch.setattr(Storage, "write_bytes", slow)
        settings = settings_for("simcse", encoder)
        assert settings.train.interpolation
        training = begun_training(settings, folder / f"source-{rank()}", folder / "stage", encoder, monkeypatch)
        scores = iter([1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0])  # the last step is the best
        monkeypatch.setattr(
            loop, "score", lambda *_: SimpleNamespace(metrics=dict.fromkeys(METRICS, next(scores)) | {"queries": 100})
        )
        worker = worker_of(training)
        worker.run()
        return sorted(training.folder.files()), worker.progress["tokens"]


def test_all_workers_wait_for_the_best_model(tmp_path: Path, tiny_encoder: Path) -> None:
    (files, tokens), (_, others) = on_workers(2, choice_of_two_workers, tmp_path, tiny_encoder)
    assert tokens == others, "each counts those of all: a budget of tokens ends where it does for the others"
    assert "models/step-00000009/model.safetensors" in files
    assert not [name for name in files if name.endswith(MARK)]


def asked_at(step: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a worker to stop in its `step`th step; None: never."""

    class Request:
        def __init__(self, _: object) -> None:
            self.steps = 0

        def made(self) -> bool:
            self.steps += 1
            return self.steps == step

        def now(self) -> bool:
            return self.made()

    monkeypatch.setattr(loop, "Request", Request)


def test_who_is_asked_to_stop_says_at_which_step_it_ends_and_goes_on_there(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    whole = FakeRayTrain(tmp_path / "whole", monkeypatch)
    uninterrupted = worker_of(training)
    uninterrupted.run()
    expected = training.folder / "result.json"
    assert whole.steps == [3, 6, 9]
    assert not any("goes on" in line or "stop" in line for line in training.board.lines)
    validated = [number for number, note in enumerate(training.board.shown) if note.startswith("validating")]
    assert [training.board.shown[number] for number in validated] == [f"validating step {s}" for s in (0, 3, 6, 9)]
    assert all("loss" in training.board.shown[number - 1] for number in validated[1:]), "the steps before have come"
    begun, *points = training.board.curves
    assert begun == Begun(0)
    assert [(point.group, point.step) for point in points if point.group == "validation" or point.step == 9] == [
        *(("validation", step) for step in (0, 3, 6)),
        ("train", 9),
        ("validation", 9),
    ]

    cut = FakeRayTrain(tmp_path / "cut", monkeypatch)
    training = training._replace(folder=Storage.open(str(tmp_path / "again")), board=FakeBoard())
    asked_at(5, monkeypatch)
    worker_of(training).run()
    assert cut.steps == [3, 5]
    assert not (training.folder / "result.json").exists()
    assert training.board.lines[-2:] == [
        "    step 5: asked to stop; this step is the last, and a checkpoint follows",
        "    step 5: stopped, at a checkpoint",
    ]

    asked_at(None, monkeypatch)
    training = training._replace(board=FakeBoard())
    resumed = worker_of(training)
    assert resumed.progress["step"] == 5
    resumed.run()
    assert training.board.lines[0] == "    step 5: training goes on from its checkpoint"
    assert training.board.curves[0] == Begun(6)
    assert cut.steps == [3, 5, 6, 9]
    result, right = (place.read_json() for place in (training.folder / "result.json", expected))
    assert result["resumed_at"] == [5]
    for name in ("history", "stopping", "chosen", "step", "tokens"):
        assert result[name] == right[name], name
    best = f"models/step-{right['stopping']['best_step']:08d}/model.safetensors"
    assert (training.folder / best).read_bytes() == (tmp_path / "stage" / best).read_bytes()


def test_who_is_asked_to_stop_while_weights_are_tried_tries_them_again(
    tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for("simcse", tiny_encoder, interpolation=[0.25, 0.5], never_worse=False)
    monkeypatch.setattr(WeightsChoice, "rises", True)
    results = []
    for name, step in (("whole", None), ("cut", 11)):  # in nine steps, and before each of the two weights
        training = begun_training(settings, tmp_path / f"{name}-source", tmp_path / name, tiny_encoder, monkeypatch)
        FakeRayTrain(tmp_path / f"{name}-checkpoints", monkeypatch)
        asked_at(step, monkeypatch)
        worker_of(training).run()
        if step is not None:
            assert not (training.folder / "result.json").exists()
            tried = [line.split(":")[0].strip() for line in training.board.lines if "of the way" in line]
            best = results[0]["stopping"]["best_step"]
            assert tried == [f"0.5 of the way to step {best}"]
            assert training.board.lines[-1].endswith(f"before all weights on the way to step {best} were validated")
            asked_at(None, monkeypatch)
            worker_of(training).run()
        results.append((training.folder / "result.json").read_json())
    whole, cut = results
    assert cut["chosen"] == whole["chosen"]
    assert cut["between"] == whole["between"]


def test_models_that_no_checkpoint_names_are_dropped(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    FakeRayTrain(tmp_path / "ray", monkeypatch)
    worker = worker_of(training)
    scores = iter([0.5, 0.1, 0.2, 0.15])
    monkeypatch.setattr(
        loop, "score", lambda *_: SimpleNamespace(metrics=dict.fromkeys(METRICS, next(scores)) | {"queries": 100})
    )
    worker.validate()
    for _ in range(6):
        worker.step()
    worker._saver.wait()
    # Ray may not have recorded the second checkpoint yet: the first one's best model stays.
    assert sorted(p.name for p in (tmp_path / "stage" / "models").iterdir()) == ["step-00000003", "step-00000006"]
    worker.progress["best_steps"] = [6, 6, 6, 6]
    for _ in range(3):
        worker.step()
    assert [p.name for p in (tmp_path / "stage" / "models").iterdir()] == ["step-00000006"]


def poison(worker: TrainingWorker, step: int) -> None:
    """Give the encoder a vector that isn't finite in one step's forward."""

    def hook(module: torch.nn.Module, _: Any, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * torch.nan if module.training and worker.progress["step"] == step - 1 else hidden

    worker._encoder.backbone.embeddings.register_forward_hook(hook)


@pytest.mark.parametrize("step", [2, 3])
def test_a_loss_that_is_not_finite_is_told_of_its_own_step_and_changes_nothing(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Found a step late, or at once before a validation (after step 3): no weight has changed, nothing is kept."""
    asked_at(None, monkeypatch)
    rays = FakeRayTrain(tmp_path / "ray", monkeypatch)
    before = worker_of(training._replace(folder=Storage.open(str(tmp_path / "other")), board=FakeBoard()))
    for _ in range(step - 1):
        before.step()
    if before._under_way is not None:
        before._record(before._under_way)
    worker = worker_of(training)
    poison(worker, step)
    worker.run()
    result = (training.folder / "result.json").read_json()
    assert result["error"].startswith(f"step {step}: the loss is not")
    assert result["non_finite"]
    assert rays.steps == []
    assert not list((tmp_path / "stage").glob("models/*"))
    for name, tensor in worker._encoder.state_dict().items():
        assert torch.equal(tensor, before._encoder.state_dict()[name]), name
    points = [point for point in training.board.curves[1:] if point.group == "train"]
    assert [point.step for point in points] == list(range(1, step))


def test_memory_that_ran_out_is_no_loss_that_is_not_finite(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs_out(*_: Any) -> None:
        raise OutOfMemoryEverywhere("step 1: out of GPU memory")

    asked_at(None, monkeypatch)
    FakeRayTrain(tmp_path / "ray", monkeypatch)
    monkeypatch.setattr(loop, "begin_step", runs_out)
    worker_of(training).run()
    result = (training.folder / "result.json").read_json()
    assert (result["error"], result["non_finite"]) == ("step 1: out of GPU memory", False)


def test_figures_belong_to_their_steps(training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_at(None, monkeypatch)
    FakeRayTrain(tmp_path / "ray", monkeypatch)
    worker_of(training).run()
    shown = {point.step: point.values["loss"] for point in training.board.curves[1:] if point.group == "train"}
    FakeRayTrain(tmp_path / "none", monkeypatch)
    alone = worker_of(training._replace(folder=Storage.open(str(tmp_path / "other")), board=FakeBoard()))
    stream = ExampleStream(training.examples, training.method, training.settings.train.batch_size, training.seed)
    losses = {step: train_step(alone._state, stream.next_batch(), training.seed, step).loss for step in range(1, 10)}
    assert shown == losses


def test_training_goes_on_while_a_checkpoint_is_saved_as_it_was_and_the_next_waits_for_it(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    FakeRayTrain(tmp_path / "at_once", monkeypatch)
    worker_of(training).run()
    rays = SlowRayTrain(tmp_path / "late", monkeypatch, set())
    write = Snapshot.write

    def write_late(snapshot: Snapshot, folder: Path) -> None:
        rays.released.wait(30)
        write(snapshot, folder)

    monkeypatch.setattr(Snapshot, "write", write_late)
    worker = worker_of(training._replace(folder=Storage.open(str(tmp_path / "again"))))
    worker.validate()
    for _ in range(5):
        worker.step()
    assert worker.progress["step"] == 5
    assert (rays.steps, rays.released.is_set()) == ([], False)
    worker.step()
    assert rays.events[:3] == ["waits", "begins 3", "saved 3"]
    worker._saver.wait()
    assert rays.steps == [3, 6]
    for step in ("0003", "0006"):
        late, at_once = (tmp_path / name / f"checkpoint_{step}" for name in ("late", "at_once"))
        # Weights, moments, positions: those of the step, whatever training did until they were written.
        for name in ("encoder.safetensors", "head.safetensors", "optimizer.pt", "lanes-00000.npz"):
            assert (late / name).read_bytes() == (at_once / name).read_bytes(), name


def test_a_crash_in_an_upload_leaves_the_checkpoint_before(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    FakeRayTrain(tmp_path / "whole", monkeypatch)
    worker_of(training).run()
    right = (training.folder / "result.json").read_json()

    rays = FakeRayTrain(tmp_path / "cut", monkeypatch)
    report = rays._report

    def cut_off(metrics: dict[str, Any], checkpoint: Checkpoint) -> None:
        if metrics["step"] == 6:
            (cut := tmp_path / "cut" / "checkpoint_0006_cut_off").mkdir()
            (cut / "encoder.safetensors").write_bytes(b"the first bytes of it")
            raise SystemExit
        report(metrics, checkpoint)

    monkeypatch.setattr(ray.train, "report", cut_off)
    training = training._replace(folder=Storage.open(str(tmp_path / "again")))
    killed = worker_of(training)
    killed.validate()
    for _ in range(6):
        killed.step()
    wait([killed._saver._under_way])  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(ray.train, "report", report)
    resumed = worker_of(training)
    assert resumed.progress["step"] == 3
    resumed.run()
    result = (training.folder / "result.json").read_json()
    for name in ("history", "stopping", "chosen", "step", "tokens"):
        assert result[name] == right[name], name


def full(metrics: dict[str, Any], checkpoint: Checkpoint) -> None:
    """A report to a disk without space."""
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_checkpoint_that_cannot_be_saved_is_told_of_by_the_next_step(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    FakeRayTrain(tmp_path / "ray", monkeypatch)
    monkeypatch.setattr(ray.train, "report", full)
    worker = worker_of(training)
    for _ in range(3):
        worker.step()
    wait([worker._saver._under_way])  # pyright: ignore[reportArgumentType]
    with pytest.raises(NoSpace, match=f"^{training.folder}: no space left"):
        worker.step()
    assert worker.progress["step"] == 3


@pytest.mark.parametrize("steps", [3, 9])
def test_no_result_is_written_without_the_checkpoint(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    asked_at(None, monkeypatch)
    FakeRayTrain(tmp_path / "ray", monkeypatch)
    monkeypatch.setattr(ray.train, "report", full)
    with pytest.raises(NoSpace, match=f"^{training.folder}: no space left"):
        worker_of(training._replace(budget=Budget(steps, None, 99))).run()
    assert not (training.folder / "result.json").exists()


@pytest.mark.parametrize("end", ["finished", "stopped", "not finite"])
def test_the_end_waits_for_the_last_checkpoint(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    asked_at(5 if end == "stopped" else None, monkeypatch)
    last = {"finished": 9, "stopped": 5, "not finite": 3}[end]
    rays = SlowRayTrain(tmp_path / "ray", monkeypatch, {last})
    result, ended = training.folder / "result.json", list[bool]()
    report = rays._report

    def look(metrics: dict[str, Any], checkpoint: Checkpoint) -> None:
        report(metrics, checkpoint)
        ended.append(result.exists() or "stopped, at" in training.board.lines[-1])

    monkeypatch.setattr(ray.train, "report", look)
    worker = worker_of(training)
    if end == "not finite":
        poison(worker, 5)
    worker.run()
    assert rays.steps[-1] == last
    assert not any(ended)
    assert result.exists() == (end != "stopped")


def test_an_error_waits_for_the_checkpoint_and_stays_what_it_is(
    training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at(None, monkeypatch)
    rays = SlowRayTrain(tmp_path / "ray", monkeypatch, {3})
    worker = worker_of(training)
    begin = loop.begin_step

    def fails(*arguments: Any) -> Any:
        if worker.progress["step"] == 4:
            rays.released.set()
            raise RuntimeError("of the fifth step")
        return begin(*arguments)

    monkeypatch.setattr(loop, "begin_step", fails)
    with pytest.raises(RuntimeError, match="of the fifth step"):
        worker.run()
    assert rays.steps == [3]
