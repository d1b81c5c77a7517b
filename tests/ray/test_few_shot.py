"""Fine-tuning and InfoCSE++ through the whole job: rounds, what they start from, what they share, what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.loop import drawn_documents, fine_tuning, iteration_stages, run
from infocse_ray.loop.infocse import pretrain
from infocse_ray.loop.plusplus import finetune, plusplus
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import read_stage
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents, write_jsonl
from tests.ray.tiny_job import settings_for

pytestmark = pytest.mark.usefixtures("ray_cluster", "workers_here")


def few_shot(folder: Path, model: Path, name: str, /, **sections: Any) -> Settings:
    defaults: dict[str, Any] = {
        "loop": {"initialization": "none", "max_iterations": 1},
        "labels": {"train_size": 40},
        "finetune": {"batch_size": 16, "epochs": 3, "learning_rate": 1e-3, "temperature": 0.05},
    }
    merged = {section: values | sections.pop(section, {}) for section, values in defaults.items()}
    return settings_for(folder, model, name, **merged, **sections)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of which two thirds are labelled, in a file of their own."""
    folder = tmp_path_factory.mktemp("few-shot")
    documents = make_documents(200)
    write_jsonl(folder / "corpus.jsonl", [{"id": d["id"], "sentences": d["sentences"]} for d in documents])
    labels = [{"id": d["id"], "counterpart": d["counterpart"]} for i, d in enumerate(documents) if i % 3]
    write_jsonl(folder / "labels.jsonl", labels)
    return folder


def test_plusplus_alternates_and_shares_its_stages(
    folder: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drawn_documents, "_FEW", 1)
    labels = {"labels": str(folder / "labels.jsonl")}
    evaluated: list[set[str]] = []
    evaluate = run.evaluate
    monkeypatch.setattr(run, "evaluate", lambda *a: evaluated.append({one.split for one in a[3]}) or evaluate(*a))
    settings = few_shot(folder, tiny_encoder, "plus", corpus=labels, plusplus={"max_rounds": 2})
    metrics = plusplus(settings)
    said = capsys.readouterr().out
    assert [one["round"] for one in metrics["rounds"]] == [1, 2]
    one, two = metrics["rounds"]
    assert evaluated == [{"valid"}, {"valid", "test"}], "the test is looked at once, after the last round"
    assert [entry["iteration"] for entry in one["iterations"]] == [0, 1]
    assert [entry["iteration"] for entry in two["iterations"]] == [2]
    assert two["zero_shot"]["iteration"] == 2, "what was trained, whatever fine-tuning had scored before"
    # Each phase starts with the encoder that the one before chose.
    assert one["fine_tuned"]["history"][0]["recall@5"] == one["zero_shot"]["validation"]["recall@5"]
    assert two["iterations"][0]["history"][0]["recall@5"] == one["fine_tuned"]["validation"]["recall@5"]
    assert two["fine_tuned"]["history"][0]["recall@5"] == two["zero_shot"]["validation"]["recall@5"]
    # Three passes over 40 examples are 7 batches of 16, and a part of one; validation comes after each pass.
    for tuned in (one["fine_tuned"], two["fine_tuned"]):
        assert [entry["step"] for entry in tuned["history"]] == [0, 3, 6, 7][: len(tuned["history"])]
        assert tuned["examples"]["examples"] == 40
        assert {"recall@5", "recall@5_low", "queries"} <= tuned["test"].keys()
    scores = [entry["fine_tuned"]["validation"]["mrr"] for entry in metrics["rounds"]]
    assert metrics["best_round"] == 1 + scores.index(max(scores))
    assert "verdict: " in said
    assert metrics["verdict"]["label"] in ("WIN", "LEVEL", "LOSS", "START RETURNED")
    judged = metrics["verdict"]
    # The encoder as it came is what it is held against only where it is the better one.
    assert judged["over"] == "whitened" or judged[judged["judged_on"]]["difference"] < 0
    card = (folder / "runs" / "plus" / "model" / "README.md").read_text()
    assert "fine-tuned on 40 labelled examples" in card
    assert card.count(" to 0.") > 8
    stages = json.loads((folder / "runs" / "plus" / "manifest.json").read_text())["stages"]
    assert {"labels", "fine_tuning_1/train", "iteration_2/train", "fine_tuning_2/train"} <= stages.keys()
    # Fine-tuning reads no document but those of its labels.
    root = Storage.open(str(folder / "runs"))
    counted = read_stage(root / stages["fine_tuning_1/examples"]["folder"]).summary or {}
    assert (counted["examples"], counted["none"]) == (40, 0)

    # The same command again does nothing.
    monkeypatch.setattr(iteration_stages, "train", lambda *_: pytest.fail("trained again"))
    assert plusplus(settings) == metrics
    # A run without labels finds what the first round trained without them.
    first = pretrain(few_shot(folder, tiny_encoder, "zero", corpus=labels))
    assert one["iterations"][1]["history"] == first["iterations"][1]["history"]


def test_labels_are_trained_on_among_the_pairs(
    folder: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drawn_documents, "_FEW", 1)
    labels = {"labels": str(folder / "labels.jsonl")}
    settings = few_shot(folder, tiny_encoder, "mixed", corpus=labels, plusplus={"max_rounds": 1, "label_share": 0.5})
    [one] = plusplus(settings)["rounds"]
    size = settings.train.batch_size
    assert f"{size // 2} of a batch's {size} examples are labelled ones\n" in capsys.readouterr().out
    trained = one["iterations"][1]
    assert trained["examples"]["examples"] == trained["annotations"]["pairs"], "pairs are counted as without labels"
    stages = json.loads((folder / "runs" / "mixed" / "manifest.json").read_text())["stages"]
    copied = read_stage(Storage.open(str(folder / "runs")) / stages["labelled_documents"]["folder"]).summary or {}
    assert copied["examples"] == sum(copied["examples_by_lane"]) == 40
    assert copied["documents"] <= 40


def test_finetune_trains_an_encoder_as_it_is(folder: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iteration_stages, "annotate", lambda *a, **k: pytest.fail("annotate was called"))
    corpus = {"labels": str(folder / "labels.jsonl")}
    more = {"labels": {"train_size": "all"}, "encoder": {"whiten": "off"}, "train": {"never_worse": False}}
    more |= {"validate": {"reading": "sentences"}}  # as random weights are trained
    metrics = finetune(few_shot(folder, tiny_encoder, "tuned", corpus=corpus, **more))
    [one] = metrics["rounds"]
    assert [entry["iteration"] for entry in one["iterations"]] == [0]
    assert one["zero_shot"]["validation"]["recall@5"] == one["fine_tuned"]["history"][0]["recall@5"]
    assert one["fine_tuned"]["examples"]["examples"] == metrics["labels"]["labelled"]["train"]
    assert one["fine_tuned"]["test"]["recall@5"] > one["zero_shot"]["test"]["recall@5"], "it learns"
    with pytest.raises(ValueError, match=r"^name = 'tuned': .*tuned is a run of `infocse finetune`"):
        pretrain(few_shot(folder, tiny_encoder, "tuned", corpus=corpus))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"labels": {"train_size": 5000}}, r"labels.train_size = 5000: the labelled examples are \d+ train, \d+ valid"),
        ({"finetune": {"batch_size": 64}}, r"finetune.batch_size = 64: there are 40 labelled examples"),
        ({"corpus": {"valid_fraction": 0.0}}, r"corpus.counterpart: fine-tuning needs labels to validate on"),
        ({"corpus": {"labels": None}}, r"corpus.counterpart: fine-tuning needs labels, and there is no such column"),
    ],
)
def test_too_few_labels_are_refused_before_anything_is_trained(
    folder: Path,
    tiny_encoder: Path,
    sections: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(iteration_stages, "train", lambda *_: pytest.fail("trained"))
    monkeypatch.setattr(fine_tuning, "draw", lambda *_: pytest.fail("drawn"))
    sections = {"corpus": {"labels": str(folder / "labels.jsonl")} | sections.pop("corpus", {}), **sections}
    with pytest.raises(ValueError, match=f"^{message}"):
        finetune(few_shot(folder, tiny_encoder, "refused", **sections))
