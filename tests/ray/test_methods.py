"""Other methods through the whole job: what InfoCSE is initialised with, a baseline, the encoder as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.loop import iteration_stages
from infocse_ray.loop.infocse import pretrain
from tests.conftest import make_documents, write_jsonl
from tests.ray.tiny_job import settings_for

pytestmark = pytest.mark.usefixtures("ray_cluster", "workers_here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("methods")
    write_jsonl(folder / "corpus.jsonl", make_documents(150))
    return folder


def test_infocse_starts_from_what_it_is_initialised_with(
    folder: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = {"max_iterations": 1, "initialization": "conpono", "initialization_tokens": 1000}
    train = {"never_worse": False}  # what is trained is looked at, however little that is worth
    metrics = pretrain(settings_for(folder, tiny_encoder, "infocse", loop=loop, train=train))
    first, second = metrics["iterations"]
    assert first["train"]["tokens"] >= 1000
    assert first["train"]["tokens"] - first["history"][-1]["tokens"] < 1000, "it ended with the step that reached 1000"
    assert second["train"]["tokens"] >= 1500
    assert first["examples"]["short"] == 0, "single sentences are encoded: no document is short for that"
    assert first["examples"]["documents"] == 150
    assert second["history"][0]["recall@5"] == first["validation"]["recall@5"], "it starts from the initialised encoder"
    # Validations come each 700 tokens, and at the end.
    done = [entry["tokens_done"] for entry in second["history"]]
    assert [tokens // 700 for tokens in done[:-1]] == [0, 1, 2][: len(done) - 1]
    assert done[-1] >= 1500
    assert first["test"] != second["test"]

    # Another run takes its initialisation from this one, and trains otherwise.
    trained: list[int] = []
    of_rounds = iteration_stages.IterationStages.train
    monkeypatch.setattr(
        iteration_stages.IterationStages, "train", lambda self, *a: trained.append(a[4]) or of_rounds(self, *a)
    )
    monkeypatch.setattr(iteration_stages, "train", lambda *_: pytest.fail("trained again"))
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        pretrain(settings_for(folder, tiny_encoder, "other", loop=loop, train={**train, "distillation": 0.25}))
    assert trained == [0, 1], "the stage of iteration 0 was found, that of iteration 1 begun"


@pytest.mark.parametrize(("method", "title"), [("declutr", "DeCLUTR"), ("tsdae", "TSDAE")])
def test_a_baseline_trains_once_and_annotates_nothing(
    folder: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch, method: str, title: str
) -> None:
    monkeypatch.setattr(iteration_stages, "annotate", lambda *a, **k: pytest.fail("annotate was called"))
    loop = {"max_iterations": 2, "early_stop": False}
    encoder = {"pooling": "mean"}  # the first token of an encoder that was never trained is the same in every sentence
    train = {"method": method}
    metrics = pretrain(settings_for(folder, tiny_encoder, method, train=train, loop=loop, encoder=encoder))
    assert [entry["iteration"] for entry in metrics["iterations"]] == [0, 1]
    assert "train" not in metrics["iterations"][0]
    counts = metrics["corpus"]
    each = {"declutr": counts["documents"], "tsdae": counts["sentences"]}
    assert metrics["iterations"][1]["examples"]["examples"] == each[method]
    card = (folder / "runs" / method / "model" / "README.md").read_text()
    assert title in card
    assert ("started from" if metrics["best_iteration"] else "what training began with") in card


def test_no_strategy_scores_the_encoder_as_it_is(
    folder: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for work in ("annotate", "count_examples", "train"):
        monkeypatch.setattr(iteration_stages, work, lambda *a, work=work, **k: pytest.fail(f"{work} was called"))
    metrics = pretrain(settings_for(folder, tiny_encoder, "none", train={"method": "none"}))
    [only] = metrics["iterations"]
    assert only["validation"]["queries"] > 0
    assert only["test"]["queries"] > 0
    assert metrics["best_iteration"] == 0


def test_whitening_alone_is_held_to_the_best_of_the_powers_that_validation_chose_from(
    folder: Path, tiny_encoder: Path
) -> None:
    asked = {"train": {"method": "none"}, "encoder": {"whiten": "auto"}}
    metrics = pretrain(settings_for(folder, tiny_encoder, "alone", **asked, validate={"on": "sentence"}))
    powers = metrics["iterations"][0]["whitening"]["scores"]
    assert metrics["verdict"]["validation"]["chosen_among"] == len(powers) > 1
    metrics = pretrain(settings_for(folder, tiny_encoder, "labels", **asked, validate={"on": "counterpart"}))
    assert metrics["verdict"]["validation"]["chosen_among"] == 1, "labels chose none"
