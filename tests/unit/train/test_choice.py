"""What a training gives back: its start unless something is better, and weights between the two."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.settings import Encoder
from infocse_ray.train.choice import WeightsChoice, between


def history(*scores: float) -> list[dict]:
    return [{"step": step, "mrr": score} for step, score in enumerate(scores)]


def test_a_training_that_never_beats_its_start_returns_that() -> None:
    choice = WeightsChoice("mrr", history(0.5, 0.3, 0.4), 2, start_counts=True)
    assert (choice.kind, choice.chosen["step"]) == ("start", 0)
    assert not choice.offer({"share": 0.5, "mrr": 0.5})
    assert choice.kind == "start"


def test_a_tie_with_the_start_is_the_starts() -> None:
    assert WeightsChoice("mrr", history(0.5, 0.5), 1, start_counts=True).kind == "start"


def test_the_best_step_is_chosen_where_it_is_better_or_the_start_doesnt_count() -> None:
    for scores, counts in (((0.5, 0.6), True), ((0.5, 0.1), False)):
        choice = WeightsChoice("mrr", history(*scores), 1, start_counts=counts)
        assert (choice.kind, choice.chosen["step"]) == ("trained", 1)


def test_the_best_interpolation_is_chosen_where_it_beats_both_ends() -> None:
    choice = WeightsChoice("mrr", history(0.5, 0.6), 1, start_counts=True)
    kept = [choice.offer({"share": share, "mrr": mrr}) for share, mrr in ((0.75, 0.65), (0.5, 0.7), (0.25, 0.55))]
    assert kept == [True, True, False]
    assert (choice.kind, choice.chosen["share"]) == ("interpolated", 0.5)
    assert len(choice.between) == 3


def test_weights_are_looked_for_while_scores_rise_away_from_the_best_step() -> None:
    choice = WeightsChoice("mrr", history(0.9, 0.6, 0.2), 1, start_counts=True)
    rises = [choice.rises]
    for score in (0.7, 0.8, 0.8):  # not above the start's
        choice.offer({"mrr": score})
        rises.append(choice.rises)
    assert rises == [True, True, True, False]
    assert choice.kind == "start"


@pytest.fixture
def encoders(tiny_encoder: Path) -> list[SentenceEncoder]:
    settings = Encoder(model=str(tiny_encoder), max_length=16)
    found = [load_encoder(tiny_encoder, settings, cosine=True) for _ in range(3)]
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in found[2].parameters():
            weight.add_(torch.randn_like(weight))
    return found


def weights(encoder: SentenceEncoder) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in encoder.parameters()])


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_interpolations_lie_between_the_two_encoders_and_their_ends_are_these(
    encoders: list[SentenceEncoder], share: float
) -> None:
    target, start, end = encoders
    with torch.no_grad():
        for weight in target.parameters():
            weight.zero_()
    between(target, start, end, share)
    assert not torch.equal(weights(start), weights(end))
    expected = weights(start) * (1 - share) + weights(end) * share
    torch.testing.assert_close(weights(target), expected)
    if share in (0.0, 1.0):
        assert torch.equal(weights(target), weights(end if share else start))
