"""A run that chooses its training: pilots, the choice, and what is trained then."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.loop import iteration_stages
from infocse_ray.loop.infocse import pretrain
from infocse_ray.loop.manifest import read_manifest
from infocse_ray.methods.recipes import DEFAULT, RECIPES
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents, write_jsonl
from tests.ray.tiny_job import settings_for

pytestmark = pytest.mark.usefixtures("ray_cluster", "workers_here")

LOOP = {"pilot_steps": 4, "max_iterations": 1}
PLAIN = {"whiten": "off", "pooling": "mean"}
"""Of an encoder that was never trained: with it four steps give something."""
OF_SENTENCES = {"loop": LOOP, "encoder": PLAIN, "validate": {"reading": "sentences"}}
"""Random weights learn what they are trained on, in so few steps, and no more."""


def choosing(settings: Settings) -> Settings:
    return settings.model_copy(update={"recipe": "auto"})


def test_the_best_pilot_trains_the_run_as_if_it_were_named(
    tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", make_documents(150))
    metrics = pretrain(choosing(settings_for(tmp_path, tiny_encoder, "chosen", **OF_SENTENCES)))
    recipe, metric = metrics["recipe"], metrics["settings"]["validate"]["metric"]
    assert list(recipe["pilots"]) == list(RECIPES)
    assert [pilot["steps"] for pilot in recipe["pilots"].values()] == [4] * len(RECIPES)
    scores = {name: pilot["validation"][metric] for name, pilot in recipe["pilots"].items()}
    assert recipe["chosen"] in (DEFAULT, max(scores, key=lambda name: scores[name]))
    assert scores[recipe["chosen"]] > recipe["start"][metric]
    assert recipe["start"][metric] == metrics["iterations"][0]["validation"][metric]
    named = RECIPES[recipe["chosen"]]
    assert metrics["settings"]["train"].items() >= named._asdict().items()
    assert metrics["iterations"][1]["train"]["tokens"] >= 1500, "the whole budget, not a pilot's"
    assert recipe["chosen"] in (tmp_path / "runs" / "chosen" / "model" / "README.md").read_text()
    root = Storage.open(str(tmp_path / "runs"))
    stages = read_manifest(root / "chosen")["stages"]
    assert {f"pilot_{name}_1/train" for name in RECIPES} < set(stages)
    annotated = {stages[f"{at}_1/annotations"]["folder"] for at in ("pilot_infocse", "pilot_infocse_distillation")}
    assert len(annotated) == 1, "pilots share an annotation"

    validated = [len(one["history"]) - 1 for one in (*recipe["pilots"].values(), *metrics["iterations"][1:])]
    validated += [len(one["train"]["between"]) for one in metrics["iterations"][1:]]
    judged = metrics["verdict"]["validation"]
    assert judged["chosen_among"] == (1 if metrics["best_iteration"] == 0 else sum(validated)), "pilots among them"

    # A run with that training finds all of it, so nothing of the pilots went into it; so does one that chooses again.
    monkeypatch.setattr(iteration_stages, "train", lambda *_: pytest.fail("trained again"))
    same = settings_for(tmp_path, tiny_encoder, "named", **OF_SENTENCES, train=named._asdict())
    assert pretrain(same)["iterations"][1]["validation"] == metrics["iterations"][1]["validation"]
    capsys.readouterr()
    again = pretrain(choosing(settings_for(tmp_path, tiny_encoder, "again", **OF_SENTENCES)))
    assert again["recipe"]["chosen"] == recipe["chosen"]
    assert f"recipe: {recipe['chosen']}, for validation {metric}" in capsys.readouterr().out


def test_documents_without_pairs_are_tried_otherwise_and_the_start_is_returned_if_that_gives_nothing(
    tmp_path: Path, tiny_encoder: Path
) -> None:
    rows = make_documents(120, sentences=(1, 1))
    write_jsonl(tmp_path / "corpus.jsonl", [row | {"sentences": 2 * row["sentences"]} for row in rows])
    corpus = {"counterpart": "counterpart"}
    train = {"learning_rate": 1e-12}  # nothing comes of it
    settings = settings_for(
        tmp_path, tiny_encoder, "copies", loop=LOOP, corpus=corpus, encoder={"pooling": "mean"}, train=train
    )
    metrics = pretrain(choosing(settings))
    recipe = metrics["recipe"]
    for name, pilot in recipe["pilots"].items():
        assert ("left_out" in pilot) == (RECIPES[name].method == "idc")
    assert "none of the" in recipe["pilots"]["infocse"]["left_out"]

    # So the run returns its start, and says so.
    assert recipe["chosen"] is None
    assert metrics["settings"]["train"]["method"] == "none"
    assert [entry["iteration"] for entry in metrics["iterations"]] == [0]
    assert (metrics["verdict"]["label"], metrics["verdict"]["over"]) == ("START RETURNED", "whitened")
    assert "none validated better than the start" in (tmp_path / "runs" / "copies" / "model" / "README.md").read_text()
