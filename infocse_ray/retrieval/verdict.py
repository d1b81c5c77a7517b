"""The verdict on two encoders, such as a run's on its start: which is better, by how much, and how sure is that?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from infocse_ray.retrieval.bootstrap import Lead
from infocse_ray.settings import Metric

Label = Literal["WIN", "LEVEL", "LOSS", "START RETURNED"]

FEWEST = 10
"""Documents that have to be asked to tell two encoders apart: drawn again and again, fewer seem to by luck alone."""


class Verdict(NamedTuple):
    """Of an encoder over another: what a run returns over what it began with, or what is compared."""

    label: Label
    """WIN and LOSS: the 95 % interval of the difference is above or below 0; LEVEL: 0 is in it, or few were asked."""
    metric: Metric
    before: float
    after: float
    lead: Lead
    among: int = 1
    """Encoders that these questions chose the one from; `lead` is that of the best of them."""

    def scores(self) -> str:
        """For people: mrr 0.5000 to 0.5312, +0.0312 (95 % interval +0.0104 to +0.0521); of a start its score alone."""
        before = f"{self.metric} {self.before:.4f}"
        if self.label == "START RETURNED":
            return before
        # Without it an interval above 0 would contradict the label.
        few = f" of {self.lead.documents:,} documents, too few to tell" if not tells(self.lead) else ""
        return f"{before} to {self.after:.4f}, {difference(self.lead, self.among)}{few}"

    def content(self) -> dict[str, Any]:
        """For programs."""
        lead = self.lead
        return {
            "label": self.label,
            "metric": self.metric,
            "before": self.before,
            "after": self.after,
            "difference": lead.difference,
            "low": lead.low,
            "high": lead.high,
            "no_lead": lead.no_lead,
            "questions": lead.questions,
            "documents": lead.documents,
            "chosen_among": self.among,
        }


def verdict(lead: Lead, returned_start: bool, metric: Metric, before: float, after: float, among: int = 1) -> Verdict:
    """Judge a run.

    Args:
        lead: of the encoder that is returned over the one that the run began with, in `metric`.
        returned_start: whether they are the same encoder.
        metric: what is compared.
        before: the score that the run began with.
        after: that of what is returned.
        among: encoders that the questions of the lead chose it from; 1: they didn't choose.
    """
    lead = lead.of_the_best(among)
    return Verdict("START RETURNED" if returned_start else label_of(lead), metric, before, after, lead, among)


def told(line: str, over: str, judged_on: str, verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """What programs are told, under `verdict`.

    Args:
        line: for people; it begins with the label.
        over: the encoder that another is held against, as scores beside this name it.
        judged_on: whose verdict counts.
        verdicts: by what was asked, such as `validation` and `test`.
    """
    of_each = {asked: one.content() for asked, one in verdicts.items()}
    return {"line": line, "over": over, "judged_on": judged_on, "label": verdicts[judged_on].label, **of_each}


def versus(lead: Lead, metric: Metric, ours: str, theirs: str) -> str:
    """One line on two encoders of these names, for people: which is better, by how much, how sure."""
    label = label_of(lead)
    better, worse = (ours, theirs) if label == "WIN" else (theirs, ours)
    said = f"{better} is better than {worse} in {metric}"
    if label == "LEVEL":
        said = f"neither is better in {metric} for sure"
    return f"{label}, {said}: {ours} less {theirs} is {difference(lead)}, {asked(lead)}"


def difference(lead: Lead, among: int = 1) -> str:
    """A difference with its interval, for people: +0.0312 (95 % interval +0.0104 to +0.0521)."""
    best = f", of the best of {among:,}" if among > 1 else ""
    return f"{lead.difference:+.4f} (95 % interval {lead.low:+.4f} to {lead.high:+.4f}{best})"


def asked(lead: Lead) -> str:
    """Of how much that was found."""
    few = ", too few to tell" if not tells(lead) else ""
    return f"{lead.questions:,} questions of {lead.documents:,} documents{few}"


def tells(lead: Lead) -> bool:
    """Whether as many documents were asked as it takes to tell two encoders apart."""
    return lead.documents >= FEWEST


def label_of(lead: Lead) -> Label:
    """Whether a lead is one, for sure."""
    if not tells(lead):
        return "LEVEL"
    return "WIN" if lead.low > 0 else "LOSS" if lead.high < 0 else "LEVEL"
