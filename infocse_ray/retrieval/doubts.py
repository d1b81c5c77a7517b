"""What to doubt about a validation: whether it could see that an encoder is better than the one it is held against."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from infocse_ray.retrieval.validation import On
from infocse_ray.settings import Metric

KNOWN_TO = 0.05
"""Half the width of a 95 % interval from which on a score says little."""

CEILING = 0.95
"""A score above it leaves no room to tell a better encoder from a good one."""


class Advice(NamedTuple):
    """What can be done about a doubt, by the settings of the command that has it."""

    ask_more: str
    distractors: str
    """Where more of them come from."""
    metric: str
    """What its setting is called."""
    on: str
    when: str = ""
    """When a score is at its ceiling."""


def of_a_run(splits_are_given: bool, some_arent_asked: bool) -> Advice:
    """What helps a run.

    Args:
        splits_are_given: by the corpus, so that no setting draws them.
        some_arent_asked: of the validation documents, as there are more than a run asks.
    """
    more = "mark more documents valid in the split column" if splits_are_given else "raise corpus.valid_fraction"
    from_where = "a larger corpus" + ("" if splits_are_given else " or corpus.valid_fraction")
    asked = "raise validate.max_documents" if some_arent_asked else more
    return Advice(asked, from_where, "validate.metric", "validate.on", " before training")


_OF_A_RUN = of_a_run(False, False)


def doubts(scores: Mapping[str, float], metric: Metric, on: On | None = None, advice: Advice = _OF_A_RUN) -> list[str]:
    """Lines that warn of a validation that asks too little or too easily; none if all is well.

    Args:
        scores: the metrics of the encoder that another is held against, such as what a run starts from.
        metric: what they are judged by.
        on: what is asked, so that nothing is proposed that is done already.
        advice: what lines propose. Default: what helps a run.
    """
    score, low, high = scores[metric], scores[f"{metric}_low"], scores[f"{metric}_high"]
    said = []
    if (known := (high - low) / 2) > KNOWN_TO:
        questions = int(scores["queries"])
        needed = math.ceil(questions * (known / KNOWN_TO) ** 2 / 10) * 10
        said.append(
            f"too few questions: {metric} is {score:.4f} ({low:.2f} to {high:.2f}) on {questions:,}; to know it to "
            f"± {KNOWN_TO:.2f} takes about {needed:,}: {advice.ask_more}"
        )
    if score > CEILING or high >= 1.0:
        harder = _harder(scores, metric, on, advice)
        said.append(f"at its ceiling{advice.when}: {metric} is {score:.4f}; {harder}")
    return said


def _harder(scores: Mapping[str, float], metric: Metric, on: On | None, advice: Advice) -> str:
    """What would leave more room."""
    ways = []
    if metric != "mrr" and scores["mrr"] <= CEILING:
        ways.append(f"set {advice.metric} to mrr ({scores['mrr']:.4f} now)")
    if on != "sentence":
        ways.append(f"set {advice.on} to sentence")
    among = int(scores["candidates"])
    ways.append(f"give it more distractors than these {among:,} candidates, {advice.distractors}")
    return "to see an encoder get better, " + ", or ".join(ways)
