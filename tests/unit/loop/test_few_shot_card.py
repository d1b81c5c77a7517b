"""The card of a fine-tuned encoder: what it was trained on, and each round's scores."""

from __future__ import annotations

from typing import Any

from infocse_ray.loop.card import few_shot_card
from infocse_ray.settings import Settings


def scores(value: float) -> dict[str, Any]:
    of = dict(zip(("recall@5", "recall@10", "recall@20", "mrr"), (value, value + 0.01, value + 0.02, 0.9), strict=True))
    return {"validation": of, "test": of | {"mrr": 0.8}}


def trained(number: int, kind: str = "trained") -> dict[str, Any]:
    """An iteration, as `metrics.json` has it."""
    return {"iteration": number, "train": {}, "validation": {"kind": kind}}


def tuned(value: float, kind: str = "trained") -> dict[str, Any]:
    of = scores(value)
    return of | {"validation": of["validation"] | {"kind": kind}}


def card(best: int = 2, more: dict[str, Any] | None = None, drawn: int | str = 40, **sections: Any) -> str:
    content = {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}} | sections
    metrics = {
        "corpus": {"documents": 5000, "sentences": 90000},
        "labels": {"labelled": {"train": 1234}, "leaks": {}, "train_size": drawn},
        "validate_on": "counterpart",
        "best_round": best,
        "rounds": [
            {
                "round": 1,
                "iterations": [{"iteration": 0}, trained(1)],
                "zero_shot": {"iteration": 0} | scores(0.125),
                "fine_tuned": tuned(0.25),
            },
            {
                "round": 2,
                "iterations": [trained(2, "start"), trained(3, "interpolated")],
                "zero_shot": {"iteration": 3} | scores(0.375),
                "fine_tuned": tuned(0.5),
            },
        ],
    }
    return few_shot_card(Settings.model_validate(content), metrics | (more or {}))


FINE_TUNED: dict[str, Any] = {"train": {"method": "none"}}  # as `infocse finetune` has it


def test_it_says_what_it_was_trained_on_and_how():
    said = card()
    assert (
        "adapted to a corpus of 5,000 documents (90,000 sentences), fine-tuned on 40 labelled examples and with "
        in said
    )
    assert "InfoCSE (Yang et al., arXiv 2202.13802), in turns, by\n" in said
    assert "It is the fine-tuned encoder of round 2." in said
    assert said.endswith(
        "\nK = 1, distillation = 0.5, temperature 0.05, batch 128, learning rate 2e-05; fine-tuning: batch 64, "
        "learning rate 2e-05, at most 20 epoch(s), temperature 0.05, seed 42.\n"
    )
    assert "fine-tuned on 1,234 labelled examples" in card(drawn="all")
    shared = card(plusplus={"label_share": 0.5})
    assert "InfoCSE (Yang et al., arXiv 2202.13802) (labelled examples are 0.5 of its batches, too), in turns" in shared


def test_fine_tuning_alone_claims_no_other_training():
    said = card(
        1, **FINE_TUNED, finetune={"batch_size": 8, "learning_rate": 1e-4, "epochs": 3, "temperature": 0.1}, seed=7
    )
    assert "fine-tuned on 40 labelled examples by\n" in said
    assert "It is the fine-tuned encoder of round 1." in said
    assert said.endswith("\nfine-tuning: batch 8, learning rate 0.0001, at most 3 epoch(s), temperature 0.1, seed 7.\n")
    assert "at most 20 epoch(s), temperature 0.2, seed" in card(1, train={"method": "none", "temperature": 0.2})


def test_what_fine_tuning_began_with_claims_none():
    said = card(0, **FINE_TUNED)
    assert "A sentence encoder as it came, exported by" in said
    assert "It is what training began with: fine-tuning it on 40 labelled examples validated no better." in said
    assert "\nWhat was tried: fine-tuning: batch 64" in said
    turns = card(0, {"whitening": {"power": 0.5, "dimension": 8}})
    assert "adapted without labels to a corpus of 5,000 documents (90,000 sentences) with whitening by" in turns
    tried = "fine-tuning it on 40 labelled examples and with InfoCSE (Yang et al., arXiv 2202.13802), in turns"
    assert f"It is what training began with: {tried} validated no better." in turns
    assert "\nWhat was tried: K = 1, " in turns


def one_round(zero_shot: int, kinds: list[str], tuning: str, initialized: bool = False) -> dict[str, Any]:
    """What `metrics.json` says of a single round, the first iteration being 0."""
    iterations = [trained(0, kinds[0]) if initialized else {"iteration": 0}]
    iterations += [trained(number, kind) for number, kind in enumerate(kinds[initialized:], 1)]
    of = {"round": 1, "iterations": iterations, "zero_shot": {"iteration": zero_shot} | scores(0.1)}
    return {"rounds": [of | {"fine_tuned": tuned(0.2, tuning)}]}


def test_trainings_that_gave_back_what_they_got_are_not_claimed():
    infocse = "InfoCSE (Yang et al., arXiv 2202.13802)"
    gave_back = card(1, one_round(1, ["start"], "trained"))
    said = card(1, one_round(0, ["trained"], "trained"))
    assert "fine-tuned on 40 labelled examples by\n" in said
    assert gave_back.partition("## Retrieval")[0] == said.partition("## Retrieval")[0]
    assert f"It is the fine-tuned encoder of round 1. Training without labels, with {infocse}, validated no" in said
    assert said.endswith(
        "\nfine-tuning: batch 64, learning rate 2e-05, at most 20 epoch(s), temperature 0.05; What was tried: K = 1, "
        "distillation = 0.5, temperature 0.05, batch 128, learning rate 2e-05, seed 42.\n"
    )
    for zero_shot, kinds in ((1, ["interpolated"]), (2, ["trained", "start"])):
        said = card(1, one_round(zero_shot, kinds, "start"))
        assert f"adapted to a corpus of 5,000 documents (90,000 sentences) with {infocse} by\n" in said
        assert "It is the encoder of round 1; fine-tuning it on 40 labelled examples validated no better." in said
        assert "; What was tried: fine-tuning: batch 64" in said
        assert "fine-tuned encoder" not in said
    conpono: dict[str, Any] = {"loop": {"initialization": "conpono"}}
    said = card(1, one_round(0, ["trained", "trained"], "start", True), **conpono)
    assert "with CONPONO" in said
    assert infocse not in said
    said = card(1, one_round(0, ["trained", "trained"], "trained", True), **conpono)
    assert "fine-tuned on 40 labelled examples, after CONPONO" in said
    assert f"Training without labels, with {infocse}, validated no better." in said


def test_each_round_has_its_two_rows_behind_what_it_began_with():
    rows = [line for line in card(more={"start": scores(0.0625)}).splitlines() if " | 0." in line]
    assert rows == [
        "| the encoder as it came | 0.0625 | 0.0725 | 0.0825 | 0.9000 | 0.0625 | 0.0725 | 0.0825 | 0.8000 |",
        "| round 1: start | 0.1250 | 0.1350 | 0.1450 | 0.9000 | 0.1250 | 0.1350 | 0.1450 | 0.8000 |",
        "| round 1: fine-tuned | 0.2500 | 0.2600 | 0.2700 | 0.9000 | 0.2500 | 0.2600 | 0.2700 | 0.8000 |",
        "| round 2: iteration 3 | 0.3750 | 0.3850 | 0.3950 | 0.9000 | 0.3750 | 0.3850 | 0.3950 | 0.8000 |",
        "| round 2: fine-tuned | 0.5000 | 0.5100 | 0.5200 | 0.9000 | 0.5000 | 0.5100 | 0.5200 | 0.8000 |",
    ]
    initialised = card(loop={"initialization": "conpono"})
    assert "| round 1: iteration 0 | " in initialised
    assert "| round 1: start | " not in initialised
