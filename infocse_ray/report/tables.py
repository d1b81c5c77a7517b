"""Summarise cells into tables: mean and sample standard deviation over seeds, and what is missing and why."""

from __future__ import annotations

import statistics
from typing import Any

from infocse_ray.loop.manifest import folder_in
from infocse_ray.loop.run import versions
from infocse_ray.report.bootstrap import paired_bootstrap
from infocse_ray.report.cells import Plan, budget_of, stage_tokens
from infocse_ray.report.config import TableCorpus, Tables
from infocse_ray.report.paper import COLUMNS, paper_recalls
from infocse_ray.report.questions import documents_of, recall_by_question
from infocse_ray.report.studies import METHODS, Row, Study
from infocse_ray.storage import Storage

METRICS = ("recall@5", "recall@10", "recall@20", "mrr")
_LEAD_METRIC, _LEAD_CUTOFF = "recall@5", 5

Records = dict[str, dict[str, Any]]


def summarise(config: Tables, plan: Plan, records: Records) -> dict[str, Any]:
    """The content of `tables.json`.

    Returns:
        `corpora`: by name, `tables` (by study, its rows) and `leads` (by study, of a row over another, or why there is
        none); `cells`: state, reason and iterations of each; `budget`: tokens of a
        baseline's and of an InfoCSE's stage; `skipped`: rows not run; `paper`: its recalls for the corpora it is
        like; the configuration; the versions now and those the cells were computed with.
    """
    corpora: dict[str, Any] = {}
    for corpus in config.corpora:
        tables = {
            study.name: [summarise_row(row, corpus.name, config.seeds, plan, records) for row in study.rows]
            for study in plan.studies
        }
        leads = {
            study.name: [
                lead_of(Storage.open(config.storage), tables[study.name], ours, other) for ours, other in study.versus
            ]
            for study in plan.studies
            if study.versus
        }
        corpora[corpus.name] = {"like": corpus.like, "tables": tables, "leads": leads}
    computed = [record["versions"] for record in records.values() if record["state"] == "finished"]
    return {
        "name": config.name,
        "config": config.model_dump(mode="json", exclude={"only", "only_rows", "only_corpora"}),
        "versions": {"tables": versions(), "cells": [v for i, v in enumerate(computed) if v not in computed[:i]]},
        "budget": {
            "baseline": stage_tokens(config, METHODS["simcse"]),
            "infocse": stage_tokens(config, METHODS["infocse"]),
            "infocse_none": stage_tokens(config, METHODS["infocse_none"]),
            "infocse_3_iterations": budget_of(config, METHODS["infocse_3_iterations"]),
        },
        "corpora": corpora,
        "cells": {
            cell.name: {
                "corpus": cell.corpus,
                "method": cell.method,
                "seed": cell.seed,
                "run": cell.settings.name,
                "budget": cell.tokens,
                "state": records.get(cell.name, {}).get("state", "to do"),
                "reason": records.get(cell.name, {}).get("reason"),
                "chosen_iteration": records.get(cell.name, {}).get("chosen_iteration"),
                "start_validation": records.get(cell.name, {}).get("start_validation"),
                "iterations": records.get(cell.name, {}).get("iterations"),
            }
            for cell in plan.cells
        },
        "skipped": {row.key: plan.skipped[row.method] for row in _rows(plan) if row.method in plan.skipped},
        "paper": _paper(config.corpora, plan.studies),
    }


def summarise_row(row: Row, corpus: str, seeds: list[int], plan: Plan, records: Records) -> dict[str, Any]:
    """A row on one corpus.

    Returns:
        Per metric `mean`, `sd` (sample standard deviation; None for fewer than two seeds) and `seeds`; by seed the
        `iteration` shown, `steps` and `tokens` of training, `annotation_tokens` (each None where there are none),
        `seconds` of annotating and training, `ranks`; `failures` by seed, `to_do`; `skipped`, the reason or None;
        `below_start`: by seed, where the encoder shown has a lower validation score than the one that training began
        with, the `metric`, its `score` and that at the `start`.
    """
    out: dict[str, Any] = {"key": row.key, "label": row.label, "skipped": plan.skipped.get(row.method)}
    shown: dict[str, dict[str, Any]] = {}
    out |= {name: {} for name in ("iteration", "steps", "tokens", "annotation_tokens", "seconds", "failures", "ranks")}
    out |= {"to_do": [], "below_start": {}}
    for seed in seeds if out["skipped"] is None else []:
        record = records.get(plan.by_row[corpus, row.method, seed].name)
        key = str(seed)
        if record is None:
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
            shown[key] = entries[iteration]["test"]
            out["iteration"][key] = iteration
            out["steps"][key] = _total([e["steps"] for e in upto])
            out["tokens"][key] = _total([e["tokens"] for e in upto])
            out["annotation_tokens"][key] = _total([e["annotation_tokens"] for e in upto])
            out["seconds"][key] = round(sum(e["seconds"] for e in upto), 2)
            out["ranks"][key] = entries[iteration]["ranks"]
            metric = record["metric"]
            score, start = entries[iteration]["validation"][metric], record["start_validation"][metric]
            if score < start:
                out["below_start"][key] = {"metric": metric, "score": score, "start": start}
    out["metrics"] = {metric: _statistics({s: test[metric] for s, test in shown.items()}) for metric in METRICS}
    out["questions"] = next((test["queries"] for test in shown.values()), None)
    out["candidates"] = next((test["candidates"] for test in shown.values()), None)
    return out


def lead_of(root: Storage, rows: list[dict[str, Any]], key: str, other: str) -> dict[str, Any]:
    """A row's lead in recall@5 over another, by the paired bootstrap over test documents.

    Args:
        root: the storage of the runs, which the ranks' folders are relative to.
        rows: of a table on one corpus.
        key: the row that may lead.
        other: the other row; "": the strongest of all others.

    Returns:
        `of` and `over` (the rows' labels), `strongest` (whether the other was chosen for that), `seeds` (that both
        have) and the fields of `bootstrap.Lead`; or `of` and `missing`, why there is no such comparison (yet).
    """
    ours = next(row for row in rows if row["key"] == key)
    out = {"of": ours["label"]}
    among = [row for row in rows if row is not ours and (not other or row["key"] == other)]
    others = [row for row in among if row["metrics"][_LEAD_METRIC]["mean"] is not None]
    if ours["metrics"][_LEAD_METRIC]["mean"] is None or not others:
        named = among[0]["label"] if other else "another row"
        return out | {"missing": f"no scores yet of {ours['label']} and {named}"}
    theirs = max(others, key=lambda row: row["metrics"][_LEAD_METRIC]["mean"])
    strongest = "" if other else ", the strongest other row,"
    seeds = [seed for seed in ours["ranks"] if seed in theirs["ranks"]]
    if not seeds:
        return out | {"missing": f"{ours['label']} and {theirs['label']}{strongest} have no seed in common yet"}
    try:
        (asked, mine), (too, yours) = (
            recall_by_question([folder_in(root, row["ranks"][seed]) for seed in seeds], _LEAD_CUTOFF)
            for row in (ours, theirs)
        )
        if not asked.equals(too):
            raise ValueError(f"{ours['label']} and {theirs['label']} were not asked the same questions")
    except (ValueError, TypeError, OSError) as error:  # the runs' folders may be gone; the tables stay
        return out | {"missing": f"the ranks can't be read: {str(error).strip()}"}
    lead = paired_bootstrap(mine, yours, documents_of(asked))
    out |= {"over": theirs["label"], "strongest": not other, "seeds": [int(seed) for seed in seeds]}
    return out | lead._asdict()


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


def _rows(plan: Plan) -> list[Row]:
    return [row for study in plan.studies for row in study.rows]


def _paper(corpora: list[TableCorpus], studies: list[Study]) -> dict[str, Any]:
    """By study, row and column of the paper: Recall@5, 10, 20."""
    columns = [column for column in COLUMNS if any(corpus.like == column for corpus in corpora)]
    found = {
        study.name: {
            row.key: {column: recalls for column in columns if (recalls := paper_recalls(row.key, column))}
            for row in study.rows
            if study.name != "options" and paper_recalls(row.key, "news")
        }
        for study in studies
    }
    return {name: rows for name, rows in found.items() if rows and columns}
