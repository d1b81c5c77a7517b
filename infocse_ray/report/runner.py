"""Run the cells that aren't finished, one after the other, and write the tables after each.

1. A cell is one `pretrain`, or one run with labels; what came of it is kept in `<storage>/<name>/cells/`, under the
   cell's identity.
2. A finished cell isn't looked at again; one that failed keeps its reason and is tried again by the next command.
3. The tables are made of what is kept, so that a partial result is always there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray

from infocse_ray.failures import one_line
from infocse_ray.loop.infocse import pretrain as run_pretrain
from infocse_ray.loop.manifest import Manifest
from infocse_ray.loop.plusplus import finetune, plusplus
from infocse_ray.progress import say
from infocse_ray.records import keep, kept
from infocse_ray.redact import redacted
from infocse_ray.report.cells import Cell, Plan, plan_cells
from infocse_ray.report.config import Tables
from infocse_ray.report.markdown import render
from infocse_ray.report.plots import plot, require_matplotlib
from infocse_ray.report.tables import METRICS, summarise
from infocse_ray.settings import Settings
from infocse_ray.stopping import check
from infocse_ray.storage import Storage


def run_few_shot(settings: Settings) -> dict[str, Any]:
    """Run a cell with labels: fine-tuning, or InfoCSE++ of as many rounds as the settings say.

    As in the tables without labels, a row shows what its method trained, were it worse than what that started from.
    """
    return finetune(settings) if settings.train.strategy == "none" else plusplus(settings, fall_back=False)


def reproduce(
    config: Tables,
    pretrain: Callable[[Settings], dict[str, Any]] = run_pretrain,
    few_shot: Callable[[Settings], dict[str, Any]] = run_few_shot,
) -> int:
    """Make the tables; they are in `<storage>/<name>/`: tables.json, tables.md and a plot of each.

    Args:
        config: what to run.
        pretrain: runs a cell.
        few_shot: runs one with labels.

    Returns:
        How many cells failed.

    Raises:
        ValueError: one line that names what doesn't fit; nothing has run.
        Stopped: a signal came; what was finished is kept.
    """
    plan = plan_cells(config)
    if config.only == "plan":
        show_plan(config, plan, read_records(Storage.open(config.storage) / config.name, plan))
        return 0
    require_matplotlib()
    folder = Storage.for_runs(config.storage) / config.name
    records = read_records(folder, plan)
    finished = sum(_finished(records, cell) for cell in plan.asked)
    say(f"{len(plan.asked)} cells, {finished} of them finished; tables: {folder / 'tables.md'}")
    write_tables(folder, config, plan, records)
    failed = 0
    for number, cell in enumerate(plan.asked, 1):
        if _finished(records, cell):
            continue
        say(f"[{number}/{len(plan.asked)}] {cell.title}")
        try:
            metrics = (few_shot if cell.labelled else pretrain)(cell.settings)
            record = outcome(Storage.open(config.storage), cell, metrics)
        except Exception as error:  # whatever it is, the other cells can do without this one
            check()  # unless it came of being stopped
            reason = redacted(one_line(error))
            say(f"  failed: {reason}")
            record = {"identity": cell.identity, "state": "failed", "reason": reason}
            failed += 1
            # A mistake in the settings leaves Ray as it was; after anything else it may be what failed, and the
            # next cell starts or joins one that works.
            if not isinstance(error, ValueError) and ray.is_initialized():
                ray.shutdown()
        records[cell.name] = record
        keep(_record_of(folder, cell), record)
        write_tables(folder, config, plan, records)
        check()
    again = f"; {failed} failed, and the same command tries them again" if failed else ""
    say(f"{len(plan.asked) - failed} of {len(plan.asked)} cells are finished{again}. Tables: {folder / 'tables.md'}")
    return failed


def read_records(folder: Storage, plan: Plan) -> dict[str, dict[str, Any]]:
    """What came of the plan's cells so far, by name; nothing of cells whose settings or files have changed."""
    found = {}
    for cell in plan.cells:
        if (record := kept(_record_of(folder, cell), cell.identity)) is not None:
            found[cell.name] = record
    return found


def _record_of(folder: Storage, cell: Cell) -> Storage:
    return folder / "cells" / f"{cell.name}.json"


def outcome(root: Storage, cell: Cell, metrics: dict[str, Any]) -> dict[str, Any]:
    """What the tables need of a finished run, in little space.

    Raises:
        ValueError: the run has no test scores.
    """
    stages = Manifest(root / cell.settings.name).stages
    metric = cell.settings.validate.metric
    entries = _rounds(metrics) if cell.labelled else metrics["iterations"]
    first = entries[0]
    iterations = []
    for entry in entries:
        if "test" not in entry:
            raise ValueError("no test document has a counterpart; mark some as test, or raise corpus.test_fraction")
        iterations.append(
            {
                "iteration": entry["iteration"],
                "test": entry["test"],
                "validation": _scores(entry["validation"]),
                "steps": (entry.get("train") or {}).get("steps"),
                "tokens": (entry.get("train") or {}).get("tokens"),
                "annotation_tokens": (entry.get("annotations") or {}).get("tokens"),
                "seconds": _seconds(entry.get("seconds")),
                "ranks": stages.get(entry.get("tested") or f"iteration_{entry['iteration']}/test", {}).get("folder"),
            }
        )
    return {
        "identity": cell.identity,
        "state": "finished",
        "metric": metric,
        "chosen_iteration": chosen_iteration(iterations, metric),
        # An initialised encoder began untouched, at step 0 of iteration 0.
        "start_validation": _scores(first["history"][0] if first.get("history") else first["validation"]),
        "iterations": iterations,
        "versions": metrics.get("versions", {}),
    }


def _rounds(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """The rounds of a run with labels as iterations: the fine-tuned encoder's scores, what went before it counted."""
    found = []
    for one in metrics["rounds"]:
        tuned, before = one["fine_tuned"], one["iterations"]
        counts = [entry.get("train") or {} for entry in before] + [tuned["train"]]
        annotated = [tokens for e in before if (tokens := (e.get("annotations") or {}).get("tokens")) is not None]
        found.append(
            {
                "iteration": one["round"],
                "test": tuned.get("test"),
                "validation": tuned["validation"],
                "history": tuned["history"],
                "train": {name: sum(c.get(name) or 0 for c in counts) for name in ("steps", "tokens")},
                "annotations": {"tokens": sum(annotated) if annotated else None},
                "seconds": {str(i): _seconds(e.get("seconds")) for i, e in enumerate([*before, tuned])},
                "tested": f"round_{one['round']}/fine_tuned/test",
            }
        )
        if found[-1]["test"] is None:
            del found[-1]["test"]
    return found


def chosen_iteration(iterations: list[dict[str, Any]], metric: str) -> int:
    """The iteration t >= 1 with the best validation score, the first of equal ones; 0 where nothing was trained."""
    trained = [entry for entry in iterations if entry["iteration"] > 0]
    # In order of iterations, and max() returns the first of equals.
    return max(trained or iterations, key=lambda entry: entry["validation"][metric])["iteration"]


def write_tables(folder: Storage, config: Tables, plan: Plan, records: dict[str, dict[str, Any]]) -> None:
    """Write tables.json, tables.md and the plots, each whole."""
    tables = summarise(config, plan, records)
    (folder / "tables.json").write_json(tables)
    for study in plan.studies:
        (folder / f"{study.name}.png").write_bytes(plot(study, tables))
    (folder / "tables.md").write_bytes(render(plan.studies, tables).encode())


def show_plan(config: Tables, plan: Plan, records: dict[str, dict[str, Any]]) -> None:
    """Print every cell that may run, its state and its budget."""
    for number, cell in enumerate(plan.asked, 1):
        record = records.get(cell.name, {})
        state = record.get("state", "to do")
        if state == "failed":
            state = f"failed, to be tried again: {record['reason']}"
        say(f"[{number}/{len(plan.asked)}] {cell.title}: {state} ({cell.tokens:,} tokens)")
    for reason in plan.skipped.values():
        say(f"skipped: {reason}")
    todo = [cell for cell in plan.asked if not _finished(records, cell)]
    say(
        f"{len(plan.asked)} cells, {len(plan.asked) - len(todo)} finished; to go: {len(todo)}, at most "
        f"{sum(cell.tokens for cell in todo):,} tokens of training (stages that cells share are trained once)"
    )


def _finished(records: dict[str, dict[str, Any]], cell: Cell) -> bool:
    return records.get(cell.name, {}).get("state") == "finished"


def _scores(validation: dict[str, Any]) -> dict[str, float]:
    return {metric: validation[metric] for metric in METRICS}


def _seconds(of: dict[str, float | None] | None) -> float:
    """Of all stages together."""
    return sum(seconds or 0.0 for seconds in (of or {}).values())
