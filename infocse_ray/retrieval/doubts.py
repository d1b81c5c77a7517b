"""What to doubt about a validation before anything is trained: whether it could see that an encoder got better."""

from __future__ import annotations

import math
from collections.abc import Mapping

from infocse_ray.retrieval.validation import On
from infocse_ray.settings import Metric

KNOWN_TO = 0.05
"""Half the width of a 95 % interval from which on a score says little."""

CEILING = 0.95
"""A score above it leaves no room to tell a better encoder from a good one."""


def doubts(scores: Mapping[str, float], metric: Metric, on: On | None = None) -> list[str]:
    """Lines that warn of a validation that asks too little or too easily; none if all is well.

    Args:
        scores: the metrics of the encoder that a run starts from.
        metric: what checkpoints are chosen by.
        on: what is asked, so that nothing is proposed that is done already.
    """
    score, low, high = scores[metric], scores[f"{metric}_low"], scores[f"{metric}_high"]
    said = []
    if (known := (high - low) / 2) > KNOWN_TO:
        questions = int(scores["queries"])
        needed = math.ceil(questions * (known / KNOWN_TO) ** 2 / 10) * 10
        said.append(
            f"too few questions: {metric} is {score:.4f} ({low:.2f} to {high:.2f}) on {questions:,}; to know it to "
            f"± {KNOWN_TO:.2f} takes about {needed:,}: raise corpus.valid_fraction or validate.max_documents"
        )
    if score > CEILING or high >= 1.0:
        said.append(f"at its ceiling before training: {metric} is {score:.4f}; {_harder(scores, metric, on)}")
    return said


def _harder(scores: Mapping[str, float], metric: Metric, on: On | None) -> str:
    """What would leave more room."""
    ways = []
    if metric != "mrr" and scores["mrr"] <= CEILING:
        ways.append(f"set validate.metric to mrr ({scores['mrr']:.4f} now)")
    if on != "sentence":
        ways.append("set validate.on to sentence")
    among = int(scores["candidates"])
    ways.append(f"give it more distractors than these {among:,} candidates, a larger corpus or corpus.valid_fraction")
    return "to see an encoder get better, " + ", or ".join(ways)
