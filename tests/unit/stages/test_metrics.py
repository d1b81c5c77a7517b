"""Ray metrics of a run by name, and what curves are made of."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.util.metrics import Counter, Gauge

from infocse_ray.loop.manifest import Manifest
from infocse_ray.stages import metrics
from infocse_ray.stages.metrics import Begun, Points, TrainingMetrics
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.train.step import StepReport

RUN = Storage("s3://bucket/runs", "news")
TRAIN = RUN / "iteration_1" / "train"


class Recorder:
    """In place of Ray's metrics: counters are added up, gauges keep the last."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str, str], float] = {}

    def metric(self, name: str) -> Any:
        kind, description = metrics.METRICS[name]
        assert description
        recorder = self

        class Metric:
            def inc(self, value: float, tags: dict[str, str]) -> None:
                assert kind is Counter
                assert value > 0, "Ray refuses it"
                key = (f"infocse_{name}", tags["run"], tags["stage"])
                recorder.values[key] = recorder.values.get(key, 0) + value

            def set(self, value: float, tags: dict[str, str]) -> None:
                assert kind is Gauge
                assert isinstance(value, float)
                recorder.values[f"infocse_{name}", tags["run"], tags["stage"]] = value

        return Metric()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str, str], float]:
    recorder = Recorder()
    monkeypatch.setattr(metrics, "_metric", recorder.metric)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    return recorder.values


def test_rays_metrics_are_of_the_kind_and_name_that_is_listed():
    for name, (kind, description) in metrics.METRICS.items():
        made = metrics._metric(name)
        assert (type(made), made.info["name"], made.info["description"]) == (kind, f"infocse_{name}", description)
        assert made.info["tag_keys"] == ("run", "stage")


def values(recorded: dict[tuple[str, str, str], float], run: str, stage: str) -> dict[str, float]:
    return {name: value for (name, *where), value in recorded.items() if where == [run, stage]}


def test_steps_are_added_up_and_the_last_is_shown(recorded):
    shown = TrainingMetrics(TRAIN, None, 0)
    shown.step(1, StepReport(1.5, 2.0, 0.5, 80, 100), 0.5, 16)
    shown.step(2, StepReport(1.25, 3.0, 0.25, 60, 60), 0.25, 16)
    assert values(recorded, "news", "iteration_1/train") == {
        "infocse_steps": 2,
        "infocse_pairs": 32,
        "infocse_tokens": 140,
        "infocse_loss": 1.25,
        "infocse_gradient_norm": 3.0,
        "infocse_spread": 0.25,
        "infocse_padding_share": 0.0,
        "infocse_tokens_per_second": 240.0,
    }


def test_scores_have_names_that_prometheus_takes(recorded):
    TrainingMetrics(TRAIN, None, 0).validation(5, {"recall@5": 0.5, "mrr": 0.25, "recall@5_low": 0.1, "queries": 9})
    expected = {"infocse_recall_at_5": 0.5, "infocse_mrr": 0.25}
    assert values(recorded, "news", "iteration_1/train") == expected


def test_shards_are_counted_as_they_are_finished(recorded):
    documents = {"train": 3, "valid": 1, "test": 0}
    for rejected in ({}, {"empty": 2, "one sentence": 1}):
        row = {"documents": documents, "rejected": rejected, "sentences": 9, "tokens": 50}
        metrics.count_prepared(Storage("/runs", "corpora/f00"), row)
    corpus = values(recorded, "corpora", "f00")
    assert corpus == {
        "infocse_documents": 8,
        "infocse_sentences": 18,
        "infocse_tokens": 100,
        "infocse_bad_rows": 3,
    }
    annotations = RUN / "iteration_1" / "annotations"
    one = {"documents": 3, "sentences": 9, "clusters": 4, "pairs": 6, "sizes": {}}
    metrics.count_annotated(annotations, one | {"tokens": 60, "padded_tokens": 80})
    metrics.count_annotated(annotations, one)  # embedded with the shard before it
    found = values(recorded, "news", "iteration_1/annotations")
    assert (found["infocse_pairs"], found["infocse_tokens"], found["infocse_padding_share"]) == (12, 60, 0.25)


def test_a_finished_stage_shows_what_it_took_and_found(recorded, tmp_path):
    run = Storage(str(tmp_path), "news")
    manifest = Manifest(run)
    manifest.begin("pretrain", {}, {})
    summary = {"seconds": 3.5, "metrics": {"recall@5": 0.5}}
    manifest.add("iteration_1/test", Stage("evaluate", "f", Storage(str(tmp_path), "other/test/f"), summary))
    expected = {"infocse_stage_seconds": 3.5, "infocse_recall_at_5": 0.5}
    assert values(recorded, "news", "iteration_1/test") == expected


def test_without_ray_nothing_is_counted(recorded, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    TrainingMetrics(TRAIN, None, 0).step(1, StepReport(1.5, 2.0, 0.5, 80, 100), 0.5, 16)
    TrainingMetrics(TRAIN, None, 0).validation(5, {"recall@5": 0.5})
    assert not recorded


class Board:
    """A progress board's handle that keeps what it is handed."""

    def __init__(self) -> None:
        self.handed: list[Any] = []
        self.points = self

    def remote(self, points: list[Any]) -> None:
        self.handed += points


def test_points_go_to_the_board_at_a_validation_and_at_the_end(recorded):
    board = Board()
    shown = TrainingMetrics(TRAIN, board, 11)
    shown.step(11, StepReport(1.5, 2.0, 0.5, 80, 100), 0.5, 16)
    assert board.handed == [], "once a second at most"
    shown.validation(11, {"recall@5": 0.5, "queries": 9})
    shown.step(12, StepReport(1.25, 3.0, 0.25, 60, 60), 0.25, 16)
    shown.close()
    begun, step, validation, last = board.handed
    assert begun == Begun(11)
    assert (step.group, step.step, step.values["loss"]) == ("train", 11, 1.5)
    assert validation == Points("validation", 11, {"recall@5": 0.5})
    assert last.step == 12


def test_the_end_waits_until_the_board_has_the_last_points(recorded, monkeypatch):
    board, waited = Board(), []
    ref = ray.ObjectRef.from_random()
    monkeypatch.setattr(Board, "remote", lambda self, points: ref)
    monkeypatch.setattr(ray, "wait", lambda refs, timeout: waited.append((refs, timeout)))
    TrainingMetrics(TRAIN, board, 0).close()
    [(refs, seconds)] = waited
    assert refs == [ref]
    assert seconds < 60
