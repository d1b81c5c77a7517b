"""Which learning rate a method gets on a corpus: the one whose run has the best validation score with the first seed.

It follows from the records of those runs alone, so that every command finds the same. There is none before each of
them has finished or failed; one that fails is left out, until a later command brings it to an end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infocse_ray.report.cells import Cell, CellPlan, Slot

Records = dict[str, dict[str, Any]]
"""Results of cells, by name."""


class LearningRateChoice(NamedTuple):
    """The learning rate chosen for a slot, or why there is none."""

    rate: float | None
    """The one chosen, the first of equal ones; None: none yet, or none can be."""
    tried: dict[str, float | None]
    """By learning rate the validation score; None where there is none."""
    why_not: str | None
    """Why none can be chosen."""


def choice_of(slot: Slot, records: Records) -> LearningRateChoice:
    """Choose among the cells of a slot.

    Args:
        slot: that chooses.
        records: of its cells, as far as there are any.
    """
    candidates = [records.get(cell.name) for cell in slot.cells]
    scores = {cell.rate: _score(record) for cell, record in zip(slot.cells, candidates, strict=True)}
    tried = {f"{rate:g}": score for rate, score in scores.items()}
    known = {rate: score for rate, score in scores.items() if score is not None}
    if any(record is None for record in candidates):
        return LearningRateChoice(None, tried, None)
    if not known:
        reason = next(record["reason"] for record in candidates if record)
        return LearningRateChoice(None, tried, f"all learning rates failed with seed {slot.place[2]}: {reason}")
    return LearningRateChoice(
        max(known, key=lambda rate: known[rate]), tried, None
    )  # max() returns the first of equals


def settled(plan: CellPlan, slot: Slot, records: Records) -> Cell | None:
    """The cell that rows show of a slot; None while its learning rate isn't chosen."""
    if slot.chosen_by is None:
        return slot.cells[0]
    rate = choice_of(plan.at[slot.chosen_by], records).rate
    return next((cell for cell in slot.cells if cell.rate == rate), None)


def to_run(plan: CellPlan, slot: Slot, records: Records) -> list[Cell]:
    """The cells of a slot that are to run, or have run; none while the learning rate isn't chosen."""
    if slot.chooses:
        return list(slot.cells)
    cell = settled(plan, slot, records)
    return [] if cell is None else [cell]


def _score(record: dict[str, Any] | None) -> float | None:
    if record is None or record["state"] != "finished":
        return None
    # What a run trained, even where it returned its start: that is the same for all of them.
    trained = [entry for entry in record["iterations"] if entry["iteration"] > 0] or record["iterations"]
    return max(entry.get("trained", entry["validation"][record["metric"]]) for entry in trained)
