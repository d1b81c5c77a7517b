"""Summarise a row of a table on one corpus: its scores over seeds, what they cost, and what is missing and why."""

from __future__ import annotations

import statistics
from typing import Any, NamedTuple

from infocse_ray.report.cells import CellPlan, Slot
from infocse_ray.report.choice import LearningRateChoice, Records, choice_of, settled
from infocse_ray.report.outcome import METRICS, PLAIN, WHITENED
from infocse_ray.report.studies import TableRow


def summarise_row(row: TableRow, corpus: str, seeds: list[int], plan: CellPlan, records: Records) -> dict[str, Any]:
    """A row on one corpus.

    Returns:
        `metrics`: by variant and metric `mean`, `sd` (sample standard deviation; None for fewer than two seeds) and
        `seeds`; `sts`, by variant such statistics of Spearman's rank correlation on the pairs of `validate.sts`, where
        it is known; `ranks`, by variant and seed; `learning_rate`: `chosen` (None: none yet, or none needed) and
        `tried`, the validation score of each (None where there is none); by seed the `iteration` shown, its `whitening`
        (power and dimension), `steps` and `tokens` of training, `annotation_tokens` (each None where there are none)
        and `seconds` of annotating and training; `failures` by seed, `to_do`; `skipped`, the reason or None.
    """
    skipped, variants = plan.skipped.get(row.method), variants_of(plan)
    slots = {} if skipped else {seed: plan.at[corpus, row.method, seed] for seed in seeds}
    rate, tried, why_not = _learning_rate(plan, next(iter(slots.values()), None), records)
    found = {str(seed): _of_seed(row, plan, slot, records, why_not) for seed, slot in slots.items()}
    shown = {seed: one for seed, one in found.items() if isinstance(one, _OfSeed)}
    tests = {seed: one.test for seed, one in shown.items()}
    any_test = next((test[PLAIN] for test in tests.values()), {})
    return {
        "key": row.key,
        "label": row.label,
        "family": plan.families.get(row.method),
        "over": row.over,
        "skipped": skipped,
        "to_do": [seed for seed in slots if found[str(seed)] is None],
        **{name: {seed: getattr(one, name) for seed, one in shown.items()} for name in _BY_SEED},
        "failures": {seed: one for seed, one in found.items() if isinstance(one, str)},
        "ranks": {variant: {seed: one.ranks[variant] for seed, one in shown.items()} for variant in variants},
        "learning_rate": {"chosen": rate, "tried": tried},
        "metrics": {
            variant: {
                metric: _statistics({seed: of[variant][metric] for seed, of in tests.items()}) for metric in METRICS
            }
            for variant in variants
        },
        "sts": {
            variant: _statistics({seed: one.sts[variant] for seed, one in shown.items() if variant in one.sts})
            for variant in variants
        },
        "questions": any_test.get("queries"),
        "candidates": any_test.get("candidates"),
    }


class _OfSeed(NamedTuple):
    """What a finished cell shows in a row."""

    test: dict[str, Any]
    """Scores by variant, as `ranks` and `sts`."""
    ranks: dict[str, str | None]
    """Folders of theirs; None where they are gone."""
    sts: dict[str, float]
    """Of the variants that it is known of."""
    iteration: int
    whitening: dict[str, Any] | None
    steps: int | None
    tokens: int | None
    annotation_tokens: int | None
    seconds: float


_BY_SEED = ("iteration", "whitening", "steps", "tokens", "annotation_tokens", "seconds")
"""Of `_OfSeed`, what a row has by seed."""


def _of_seed(row: TableRow, plan: CellPlan, slot: Slot, records: Records, why_not: str | None) -> _OfSeed | str | None:
    """What a seed gave a row: figures, the reason why there are none, or None while that is to come.

    Args:
        row: on one corpus.
        plan: of all cells.
        slot: the seed's.
        records: of the cells that ended.
        why_not: the reason why no learning rate could be chosen; None: one could, will be, or isn't needed.
    """
    cell = settled(plan, slot, records)
    if cell is None:
        return why_not
    if (record := records.get(cell.name)) is None:
        return None
    if record["state"] == "failed":
        return record["reason"]
    entries = {entry["iteration"]: entry for entry in record["iterations"]}
    iteration = record["chosen_iteration"] if row.iteration is None else row.iteration
    if iteration not in entries:
        return f"the run has no iteration {iteration}"
    # The budget is that of the whole run, whichever iteration of it validation chose.
    upto = [e for t, e in entries.items() if row.iteration is None or t <= row.iteration]
    entry, variants = entries[iteration], variants_of(plan)
    sts = entry.get("sts") or {}
    return _OfSeed(
        entry["test"],
        {variant: entry["ranks"][variant] for variant in variants},
        {variant: sts[variant] for variant in variants if sts.get(variant) is not None},
        iteration,
        entry["whitening"],
        _total([e["steps"] for e in upto]),
        _total([e["tokens"] for e in upto]),
        _total([e["annotation_tokens"] for e in upto]),
        round(sum(e["seconds"] for e in upto), 2),
    )


def _learning_rate(plan: CellPlan, slot: Slot | None, records: Records) -> LearningRateChoice:
    """The learning rate of a slot's method on its corpus."""
    if slot is None or not slot.cells[0].tokens:
        return LearningRateChoice(None, {}, None)
    if slot.chosen_by is None:
        return LearningRateChoice(slot.cells[0].settings.train.learning_rate, {}, None)
    return choice_of(plan.at[slot.chosen_by], records)


def variants_of(plan: CellPlan) -> list[str]:
    """Of every row's encoders, as `outcome` names them."""
    return [PLAIN, WHITENED] if plan.whitened else [PLAIN]


def _statistics(values: dict[str, float]) -> dict[str, Any]:
    numbers = list(values.values())
    return {
        "mean": statistics.fmean(numbers) if numbers else None,
        "sd": statistics.stdev(numbers) if len(numbers) > 1 else None,
        "seeds": values,
    }


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
