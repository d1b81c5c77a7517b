"""Choice of the weights that a training returns: of its start, its best step, or between them, by validation.

Robust fine-tuning of zero-shot models, Wortsman et al. 2022 (WiSE-FT); LM-Cocktail, Xiao et al. 2023.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from infocse_ray.encoder.model import SentenceEncoder


class WeightsChoice:
    """The best of what a training can give back, as it is offered.

    Attributes:
        chosen: what `metrics.json` says of it: its validation, and `kind`.
        between: every interpolation that was offered.
    """

    def __init__(self, metric: str, history: list[dict[str, Any]], best_step: int, start_counts: bool) -> None:
        """Begin with the start and the best step.

        Args:
            metric: the higher the better.
            history: of validations, that of step 0 first.
            best_step: of those after it.
            start_counts: whether the start can be chosen; it is unless something is better.
        """
        self._metric = metric
        trained = next(entry for entry in history if entry["step"] == best_step)
        self._nearer, self._rises = trained[metric], True
        best, kind = trained, "trained"
        if start_counts and history[0][metric] >= trained[metric]:
            best, kind = history[0], "start"
        self.chosen: dict[str, Any] = {**best, "kind": kind}
        self.between: list[dict[str, Any]] = []

    @property
    def kind(self) -> Literal["start", "trained", "interpolated"]:
        """Which kind of weights is chosen."""
        return self.chosen["kind"]

    @property
    def rises(self) -> bool:
        """Whether scores still rise away from the best step: what was offered last is better than what is nearer to it.

        Between two encoders scores were seen to rise or fall all the way (docs/tried.md): where they fall, nothing
        better is looked for further on.
        """
        return self._rises

    def offer(self, entry: dict[str, Any]) -> bool:
        """Offer an interpolation by its validation, one nearer to the best step first; whether it beats all so far."""
        self.between.append(entry)
        score = entry[self._metric]
        self._nearer, self._rises = score, score > self._nearer
        if score <= self.chosen[self._metric]:
            return False
        self.chosen = {**entry, "kind": "interpolated"}
        return True


def between(encoder: SentenceEncoder, start: SentenceEncoder, end: SentenceEncoder, share: float) -> None:
    """Give an encoder the weights start + share (end - start).

    Args:
        encoder: gets them; it may be on another device.
        start: of the same architecture.
        end: likewise.
        share: 0 is the start, 1 the end.
    """
    there = dict(start.named_parameters())
    to = dict(end.named_parameters())
    with torch.no_grad():
        for name, weight in encoder.named_parameters():
            weight.copy_(torch.lerp(there[name], to[name].to(there[name].dtype), share))
