"""Summarise cells into tables: mean and sample standard deviation over seeds, leads, and what is missing and why."""

from __future__ import annotations

from typing import Any

from infocse_ray.loop.run import versions
from infocse_ray.report.cell_settings import budget_of, stage_tokens
from infocse_ray.report.cells import CellPlan, Slot
from infocse_ray.report.choice import Records, to_run
from infocse_ray.report.config import TableCorpus, Tables
from infocse_ray.report.leads import Leads, strongest_other
from infocse_ray.report.paper import COLUMNS, paper_recalls
from infocse_ray.report.row import summarise_row, variants_of
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
    shown = variants_of(plan)
    for corpus in config.corpora:
        tables = {
            study.name: [summarise_row(row, corpus.name, config.seeds, plan, records) for row in study.rows]
            for study in plan.studies
        }
        for study in plan.studies:
            _hold_against(tables[study.name], leads, shown[-1])
        comparisons = {
            study.name: [_compare(tables[study.name], pair, leads, shown[-1]) for pair in study.versus]
            for study in plan.studies
            if study.versus
        }
        corpora[corpus.name] = {"like": corpus.like, "tables": tables, "comparisons": comparisons}
    computed = [record["versions"] for record in records.values() if record["state"] == "finished"]
    return {
        "name": config.name,
        "variants": shown,
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


def _hold_against(rows: list[dict[str, Any]], leads: Leads, variant: str) -> None:
    """Add to each row its leads over the row that it is held against."""
    by_key = {row["key"]: row for row in rows}
    for row in rows:
        held = row["over"] and row["skipped"] is None
        row["lead"] = leads.over(row, by_key[row["over"]], variant) if held else None
        row["lead_in_mrr"] = leads.over(row, by_key[row["over"]], variant, metric="mrr") if held else None


def _compare(rows: list[dict[str, Any]], pair: tuple[str, str], leads: Leads, variant: str) -> dict[str, Any]:
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
