"""Fine-tuning's epochs: when it stops and whose encoder comes back, on scores that follow a script."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.loop import fine_tuning
from infocse_ray.loop.fine_tuning import check_labels, fine_tune
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.train import loop
from infocse_ray.train.loop import Training, train_alone
from infocse_ray.train.schedule import Budget
from tests.unit.stores import counted
from tests.unit.trainees import LABELLED, EncoderSpec, annotated, load_encoder, method_for, settings_for

EPOCH = 3


def train_on_script(
    folder: Path,
    encoder: Path,
    scores: list[float],
    budget: Budget,
    monkeypatch: pytest.MonkeyPatch,
    **train: Any,
) -> tuple[dict[str, Any], dict[int, dict[str, torch.Tensor]]]:
    """What comes of training with these validation scores, and the weights at each validation."""
    settings = settings_for(LABELLED, encoder, **{"never_worse": False, "interpolation": []} | train)
    settings = settings.model_copy(
        update={"validate": settings.validate.model_copy(update={"every": EPOCH})}  # pyright: ignore
    )
    source = annotated(folder / "source", encoder)
    loaded = load_encoder(encoder, settings.encoder, False)
    method = method_for(LABELLED, EncoderSpec.of(loaded), settings)
    where = EncoderFolder(Storage.open(str(encoder)), "x", settings.encoder.max_length)
    seen: dict[int, dict[str, torch.Tensor]] = {}

    def score(model: Any, questions: None) -> SimpleNamespace:
        number = len(seen)
        seen[number * EPOCH] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        names = ("recall@5", "recall@10", "recall@20", "mrr")
        return SimpleNamespace(metrics=dict.fromkeys(names, scores[number]) | {"queries": 100})

    monkeypatch.setattr(loop, "score", score)
    monkeypatch.setattr(loop, "questions_for", lambda *a: None)
    monkeypatch.setattr(loop, "worker_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(loop, "assigned_cores", lambda: 1)
    stage = Storage.open(str(folder / "stage"))
    store: Any = None
    train_alone(Training(settings, store, counted(source, method), method, budget, where, 5, stage, "counterpart"))
    return (stage / "result.json").read_json(), seen


@pytest.mark.parametrize(
    ("scores", "steps", "best"),
    [
        ([0.9, 0.2, 0.5, 0.4, 0.5, 0.6, 0.7], 4, 2),  # a tie is no growth; the start is no result of training
        ([0.1, 0.2, 0.1, 0.3, 0.2, 0.4], 5, 5),  # until there are no more epochs
        ([0.1, 0.3, 0.2, 0.2], 3, 1),
    ],
)
def test_two_epochs_without_growth_end_it_and_the_best_encoder_comes_back(
    tmp_path: Path, tiny_encoder: Path, scores: list[float], steps: int, best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget(5 * EPOCH, None, 2 * EPOCH)
    result, seen = train_on_script(tmp_path, tiny_encoder, scores, budget, monkeypatch)
    assert result["step"] == steps * EPOCH
    assert result["stopping"] == {"best": scores[best], "best_step": best * EPOCH}
    models = tmp_path / "stage" / "models"
    [kept] = models.iterdir()
    assert kept.name == f"step-{best * EPOCH:08d}"
    saved = EncoderFolder(Storage.open(str(kept)), "y", 16).load().state_dict()
    assert saved.keys() == seen[0].keys()
    for name, tensor in saved.items():
        assert torch.equal(tensor, seen[best * EPOCH][name]), name
    assert any(not torch.equal(seen[EPOCH][name], seen[0][name]) for name in saved), "it trains"


ALL = Budget(2 * EPOCH, None, 9 * EPOCH)


def test_a_training_that_only_does_harm_gives_back_its_start(
    tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = train_on_script(tmp_path, tiny_encoder, [0.9, 0.2, 0.9], ALL, monkeypatch, never_worse=True)
    assert (result["chosen"]["kind"], result["chosen"]["step"], result["chosen"]["recall@5"]) == ("start", 0, 0.9)
    assert result["stopping"]["best_step"] == 2 * EPOCH
    assert not (tmp_path / "stage" / "models").exists() or not list((tmp_path / "stage" / "models").iterdir())


@pytest.mark.parametrize(
    ("scores", "kind", "share"),
    [
        ([0.1, 0.5, 0.6, 0.7, 0.8], "interpolated", 0.5),
        ([0.1, 0.5, 0.6, 0.7, 0.7], "interpolated", 0.75),  # the first of equals
        ([0.1, 0.5, 0.6, 0.6], "trained", None),  # and no other weights are looked at
        ([0.7, 0.5, 0.6, 0.7, 0.2], "start", None),
    ],
)
def test_weights_between_start_and_best_step_come_back_where_they_are_better_than_both(
    tmp_path: Path, tiny_encoder: Path, scores: list[float], kind: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"never_worse": True, "interpolation": [0.5, 0.75]}
    result, seen = train_on_script(tmp_path, tiny_encoder, scores, ALL, monkeypatch, **options)
    assert (result["chosen"]["kind"], result["chosen"].get("share")) == (kind, share)
    models = tmp_path / "stage" / "models"
    names = {"interpolated": ["interpolated"], "trained": [f"step-{2 * EPOCH:08d}"], "start": []}[kind]
    assert (
        sorted(one.name for one in models.iterdir()) == names
        if names
        else not models.exists() or not any(models.iterdir())
    )
    start, end = seen[0], seen[2 * EPOCH]
    assert [entry["share"] for entry in result["between"]] == [0.75, 0.5][: len(scores) - 3]
    for number, part in ((3, 0.75), (4, 0.5))[: len(scores) - 3]:
        for name, weight in seen[number * EPOCH].items():
            if weight.is_floating_point():
                torch.testing.assert_close(weight, torch.lerp(start[name], end[name], part))
    if share is not None:
        saved = EncoderFolder(Storage.open(str(models / "interpolated")), "y", 16).load().state_dict()
        assert all(
            torch.equal(saved[name], weight) for name, weight in seen[(3 if share == 0.75 else 4) * EPOCH].items()
        )


@pytest.mark.parametrize(
    ("size", "patience", "budget", "every"),
    [
        (100, 2, Budget(31, None, 4), 2),  # 20 passes over 100 examples are 31 full batches of 64, and a part of one
        (95, 2, Budget(29, None, 4), 2),
        (160, 2, Budget(50, None, 6), 3),
        (128, 2, Budget(40, None, 4), 2),
        (70, 10, Budget(21, None, 12), 2),
    ],
)
def test_all_epochs_are_no_more_steps_than_the_drawn_examples_give_and_patience_no_fewer_passes_than_asked_for(
    size: int, patience: int, budget: Budget, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.model_validate(
        {
            "name": "x",
            "corpus": {"source": "x"},
            "encoder": {"model": "m"},
            "train": {"temperature": 0.3, "batch_size": 9, "max_tokens": 7, "learning_rate": 0.5, "warmup_steps": 8},
            "validate": {"every_tokens": 3, "metric": "recall@5"},
            "labels": {"train_size": size},
            "finetune": {"batch_size": 64, "epochs": 20, "patience": patience, "learning_rate": 0.25},
        }
    )
    asked: list[Any] = []

    def train_iteration(
        run: Any, rounds: Any, method: Any, encoder: Any, budget: Budget, number: int, source: Any
    ) -> Any:
        asked.append((rounds, method, encoder, budget, number, source))
        entry = {"step": 3, "recall@5": 0.5, "queries": 100}
        chosen = entry | {"kind": "trained"}
        summary = {"best_step": 3, "history": [entry | {"step": 0}, entry], "chosen": chosen, "seconds": 1.0}
        return {"train": Stage("train", "f", Storage.open("."), summary)}, "tuned"

    monkeypatch.setattr(fine_tuning, "train_iteration", train_iteration)
    monkeypatch.setattr(
        fine_tuning.EncoderSpec, "of", lambda encoder: SimpleNamespace(sentence_tokens=30, query_tokens=30)
    )
    store = SimpleNamespace(summary={"labelled": {"train": 500}})
    run: Any = SimpleNamespace(
        settings=settings,
        store=store,
        inputs=SimpleNamespace(encoder=None),
        iteration_stages=SimpleNamespace(fine_tuning=lambda settings: settings),
    )
    copied: Any = "the documents that were copied"
    report, tuned = fine_tune(run, LabelSample(settings.seed, 77), copied, "encoder", 4)  # pyright: ignore
    [(own, method, encoder, found, number, source)] = asked
    assert source == copied
    assert found == budget
    assert (own.validate.every, own.validate.every_tokens) == (every, None)
    assert (own.train.batch_size, own.train.learning_rate, own.train.warmup_steps) == (64, 0.25, 0)
    assert (method.drawn, method.temperature) == ((settings.seed, 77), 0.3)
    assert (encoder, tuned, number) == ("encoder", "tuned", 4)
    assert "iteration" not in report
    assert report["validation"]["recall@5"] == 0.5


def test_a_round_that_made_nothing_better_is_named(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    content = {"name": "x", "corpus": {"source": "x"}, "encoder": {"model": "m"}, "labels": {"train_size": 70}}
    entry = {"step": 0, "mrr": 0.5, "queries": 100}
    summary = {"best_step": 0, "history": [entry], "chosen": entry | {"kind": "start"}, "seconds": 1.0}
    stages = {"train": Stage("train", "f", Storage.open("."), summary)}
    monkeypatch.setattr(fine_tuning, "train_iteration", lambda *_, **__: (stages, "tuned"))
    monkeypatch.setattr(fine_tuning.EncoderSpec, "of", lambda _: SimpleNamespace(sentence_tokens=30, query_tokens=30))
    run: Any = SimpleNamespace(
        settings=Settings.model_validate(content),
        store=SimpleNamespace(summary={"labelled": {"train": 500}}),
        inputs=SimpleNamespace(encoder=None),
        iteration_stages=SimpleNamespace(fine_tuning=lambda settings: settings),
    )
    fine_tune(run, LabelSample(1, 70), None, "encoder", 2)  # pyright: ignore
    # Warnings are kept with the run, whose other rounds may have done better.
    assert "warning: round 2: fine-tuning never made it better" in capsys.readouterr().out


@pytest.mark.parametrize(("documents", "refused"), [(1, True), (2, False), (None, False)])
def test_labels_of_one_document_alone_teach_nothing(documents: int | None, refused: bool):
    summary: dict[str, Any] = {"labelled": {"train": 64, "valid": 9, "test": 9}}
    if documents is not None:
        summary["documents_labelled"] = {"train": documents, "valid": 9, "test": 9}
    store = TokenStore(Storage("nowhere"), "f", summary)
    given = {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}, "finetune": {"batch_size": 32}}
    settings = Settings.model_validate(given)
    if refused:
        with pytest.raises(
            ValueError, match=r"^corpus\.counterpart: the labels to train on are of 1 documents, and the neg"
        ):
            check_labels(settings, store)
    else:
        check_labels(settings, store)
