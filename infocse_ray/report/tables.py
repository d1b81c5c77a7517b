"""Summarise cells into tables: mean and sample standard deviation over seeds, leads, and what is missing and why."""

from __future__ import annotations

import statistics
from typing import Any

from infocse_ray.loop.run import versions
from infocse_ray.report.cell_settings import budget_of, stage_tokens
from infocse_ray.report.cells import CellPlan, Slot
from infocse_ray.report.choice import LearningRateChoice, Records, choice_of, settled, to_run
from infocse_ray.report.config import TableCorpus, Tables
from infocse_ray.report.leads import Leads, strongest_other
from infocse_ray.report.outcome import METRICS, PLAIN, WHITENED
from infocse_ray.report.paper import COLUMNS, paper_recalls
from infocse_ray.report.studies import METHODS, Study, TableRow


def summarise(config: Tables, plan: CellPlan, records: Records, leads: Leads) -> dict[str, Any]:
    """The content of `tables.json`.

    Returns:
        `variants`, of every row's encoders: `plain` and, if they are whitened, `whitened`, the one that rows are
        compared by; `corpora`: by name, `tables` (by study, its rows, see `summarise_row`, each with its `lead` and
        its `lead_in_mrr` over the row that it is held against, or None) and `comparisons` (by study, the other leads);
        `cells`: state, reason and iterations of each; `budget`: tokens of a baseline's and of an InfoCSE's stage;
        `skipped`: rows not run; `paper`: its recalls for the corpora it is like; the configuration; the versions now
        and those the cells were computed with.
    """
    corpora: dict[str, Any] = {}
    for corpus in config.corpora:
        tables = {
            study.name: [summarise_row(row, corpus.name, config.seeds, plan, records) for row in study.rows]
            for study in plan.studies
        }
        for study in plan.studies:
            _hold_against(study, tables[study.name], leads, _variants(plan)[-1])
        comparisons = {
            study.name: [_compare(study, tables[study.name], pair, leads, _variants(plan)[-1]) for pair in study.versus]
            for study in plan.studies
            if study.versus
        }
        corpora[corpus.name] = {"like": corpus.like, "tables": tables, "comparisons": comparisons}
    computed = [record["versions"] for record in records.values() if record["state"] == "finished"]
    return {
        "name": config.name,
        "variants": _variants(plan),
        "config": config.model_dump(mode="json", exclude={"only", "only_rows", "only_corpora"}),
        "versions": {"tables": versions(), "cells": [v for i, v in enumerate(computed) if v not in computed[:i]]},
        "budget": {
            "baseline": stage_tokens(config, METHODS["simcse"]),
            "infocse": stage_tokens(config, METHODS["infocse"]),
            "infocse_none": stage_tokens(config, METHODS["infocse_none"]),
            "infocse_3_iterations": budget_of(config, METHODS["infocse_3_iterations"]),
        },
        "corpora": corpora,
        "cells": {name: cell for slot in plan.slots for name, cell in _cells(plan, slot, records).items()},
        "skipped": {row.key: plan.skipped[row.method] for row in _rows(plan) if row.method in plan.skipped},
        "paper": _paper(config.corpora, plan.studies),
    }


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
    out: dict[str, Any] = {"key": row.key, "label": row.label, "family": plan.families.get(row.method)}
    out |= {"over": row.over, "skipped": plan.skipped.get(row.method), "to_do": []}
    out |= {name: {} for name in ("iteration", "whitening", "steps", "tokens", "annotation_tokens", "seconds")}
    out |= {"failures": {}, "ranks": {variant: {} for variant in _variants(plan)}}
    slots = {} if out["skipped"] else {seed: plan.at[corpus, row.method, seed] for seed in seeds}
    rate, tried, why_not = _learning_rate(plan, next(iter(slots.values()), None), records)
    out["learning_rate"] = {"chosen": rate, "tried": tried}
    tests: dict[str, dict[str, Any]] = {}
    spearman: dict[str, dict[str, float]] = {variant: {} for variant in _variants(plan)}
    for seed, slot in slots.items():
        key, cell = str(seed), settled(plan, slot, records)
        record = None if cell is None else records.get(cell.name)
        if cell is None and why_not is not None:
            out["failures"][key] = why_not
        elif record is None:
            out["to_do"].append(seed)
        elif record["state"] == "failed":
            out["failures"][key] = record["reason"]
        else:
            entries = {entry["iteration"]: entry for entry in record["iterations"]}
            iteration = record["chosen_iteration"] if row.iteration is None else row.iteration
            # The budget is that of the whole run, whichever iteration of it validation chose.
            upto = [e for t, e in entries.items() if row.iteration is None or t <= row.iteration]
            if iteration not in entries:
                out["failures"][key] = f"the run has no iteration {iteration}"
                continue
            tests[key] = entries[iteration]["test"]
            out["iteration"][key] = iteration
            out["whitening"][key] = entries[iteration]["whitening"]
            out["steps"][key] = _total([e["steps"] for e in upto])
            out["tokens"][key] = _total([e["tokens"] for e in upto])
            out["annotation_tokens"][key] = _total([e["annotation_tokens"] for e in upto])
            out["seconds"][key] = round(sum(e["seconds"] for e in upto), 2)
            for variant in _variants(plan):
                out["ranks"][variant][key] = entries[iteration]["ranks"][variant]
                if (value := (entries[iteration].get("sts") or {}).get(variant)) is not None:
                    spearman[variant][key] = value
    out["metrics"] = {
        variant: {metric: _statistics({s: test[variant][metric] for s, test in tests.items()}) for metric in METRICS}
        for variant in _variants(plan)
    }
    out["sts"] = {variant: _statistics(values) for variant, values in spearman.items()}
    out["questions"] = next((test[PLAIN]["queries"] for test in tests.values()), None)
    out["candidates"] = next((test[PLAIN]["candidates"] for test in tests.values()), None)
    return out


def _learning_rate(plan: CellPlan, slot: Slot | None, records: Records) -> LearningRateChoice:
    """The learning rate of a slot's method on its corpus."""
    if slot is None or not slot.cells[0].tokens:
        return LearningRateChoice(None, {}, None)
    if slot.chosen_by is None:
        return LearningRateChoice(slot.cells[0].settings.train.learning_rate, {}, None)
    return choice_of(plan.at[slot.chosen_by], records)


def _variants(plan: CellPlan) -> list[str]:
    return [PLAIN, WHITENED] if plan.whitened else [PLAIN]


def _hold_against(study: Study, rows: list[dict[str, Any]], leads: Leads, variant: str) -> None:
    """Add to each row its leads over the row that it is held against."""
    by_key = {row["key"]: row for row in rows}
    for row in rows:
        held = row["over"] and row["skipped"] is None
        row["lead"] = leads.over(row, by_key[row["over"]], variant) if held else None
        row["lead_in_mrr"] = leads.over(row, by_key[row["over"]], variant, metric="mrr") if held else None


def _compare(
    study: Study, rows: list[dict[str, Any]], pair: tuple[str, str], leads: Leads, variant: str
) -> dict[str, Any]:
    """A row's lead over another, or over the strongest of another family; with that in MRR as `in_mrr`."""
    by_key, (key, other) = {row["key"]: row for row in rows}, pair
    ours, strongest = by_key[key], not other
    if ours["skipped"]:
        return {"of": ours["label"], "strongest": strongest, "missing": ours["skipped"]}
    theirs = strongest_other(rows, ours, variant) if strongest else by_key[other]
    if theirs is None:
        return {"of": ours["label"], "strongest": strongest, "missing": "no scores yet of another row"}
    note = ", the strongest other row," if strongest else ""
    in_mrr = leads.over(ours, theirs, variant, note, metric="mrr")
    return leads.over(ours, theirs, variant, note) | {"strongest": strongest, "in_mrr": in_mrr}


def _cells(plan: CellPlan, slot: Slot, records: Records) -> dict[str, Any]:
    """What `tables.json` says of the cells of a slot, by name; or, before there is a learning rate, by place."""
    cells = to_run(plan, slot, records)
    entries = {}
    for cell in cells or [slot.cells[0]]:
        record = records.get(cell.name, {}) if cells else {}
        name = cell.name if cells else "-".join(map(str, slot.place))
        entries[name] = {
            "corpus": cell.corpus,
            "method": cell.method,
            "seed": cell.seed,
            "run": cell.settings.name if cells else None,
            "learning_rate": cell.settings.train.learning_rate if cells and cell.tokens else None,
            "budget": cell.tokens,
            "state": record.get("state", "to do"),
            "reason": record.get("reason"),
            "chosen_iteration": record.get("chosen_iteration"),
            "start_validation": record.get("start_validation"),
            "iterations": record.get("iterations"),
        }
    return entries


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


def _rows(plan: CellPlan) -> list[TableRow]:
    return [row for study in plan.studies for row in study.rows]


def _paper(corpora: list[TableCorpus], studies: list[Study]) -> dict[str, Any]:
    """By study, row and column of the paper: Recall@5, 10, 20."""
    columns = [column for column in COLUMNS if any(corpus.like == column for corpus in corpora)]
    tables = {
        study.name: {
            row.key: {column: recalls for column in columns if (recalls := paper_recalls(row.key, column))}
            for row in study.rows
            if study.name not in ("options", "cost") and paper_recalls(row.key, "news")
        }
        for study in studies
    }
    return {name: rows for name, rows in tables.items() if rows and columns}
