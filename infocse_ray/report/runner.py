"""Run the cells that aren't finished, one after the other, and write the tables after each.

1. A cell is one `pretrain`, or one run with labels; what came of it is kept in `<storage>/<name>/cells/`, under the
   cell's identity.
2. A finished cell isn't looked at again; one that failed keeps its reason and is tried again by the next command.
3. Which learning rate the cells of later seeds have follows from what is kept of the first seed's.
4. The tables are made of what is kept, so that a partial result is always there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray

from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.loop.infocse import pretrain as run_pretrain
from infocse_ray.loop.own_folder import check_own_folder
from infocse_ray.loop.plusplus import finetune, plusplus
from infocse_ray.report.cells import Cell, CellPlan, Slot, plan_cells
from infocse_ray.report.choice import Records, choice_of, to_run
from infocse_ray.report.config import Tables
from infocse_ray.report.outcome import outcome
from infocse_ray.report.writer import Writer
from infocse_ray.runtime.failures import one_line
from infocse_ray.runtime.interrupts import check
from infocse_ray.runtime.progress import duration, say
from infocse_ray.settings import Settings
from infocse_ray.stages.lease import Lease
from infocse_ray.stages.records import read_record, write_record
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted


def run_without_labels(settings: Settings) -> dict[str, Any]:
    """Run a cell without labels."""
    return run_pretrain(settings, also_plain=_whitens(settings), tested=True)


def run_few_shot(settings: Settings) -> dict[str, Any]:
    """Run a cell with labels: fine-tuning, or InfoCSE++ of as many rounds as the settings say.

    As in the tables without labels, a row shows what its method trained, were it worse than what that started from.
    """
    if settings.train.method == "none":
        return finetune(settings, also_plain=_whitens(settings))
    return plusplus(settings, fall_back=False, also_plain=_whitens(settings))


def _whitens(settings: Settings) -> bool:
    return settings.encoder.whiten != "off"


def reproduce(
    config: Tables,
    pretrain: Callable[[Settings], dict[str, Any]] = run_without_labels,
    few_shot: Callable[[Settings], dict[str, Any]] = run_few_shot,
) -> int:
    """Make the tables; they are in `<storage>/<name>/`: tables.json, tables.md and a plot of each.

    Args:
        config: what to run.
        pretrain: runs a cell.
        few_shot: runs one with labels.

    Returns:
        How many cells failed, or have no learning rate since those that choose it failed.

    Raises:
        ValueError: one line that names what doesn't fit; nothing has run.
        RunInUse: another driver makes the same tables.
        LeaseLost: another took them over; it is left to that one.
        Interrupted: a signal came; what was finished is kept.
    """
    place = Storage.of_runs(config.storage) / config.name
    if (place / "manifest.json").exists():
        raise ValueError(f"name = {config.name!r}: {place} is a run; give the tables another name")
    plan = plan_cells(config)
    if config.only == "plan":
        show_plan(plan, read_records(place, plan))
        return 0
    folder = Storage.for_runs(config.storage) / config.name
    check_own_folder(folder, config.name)
    with Lease(folder / "driver.lease", f"name = {config.name!r}") as lease:
        lease.take()
        return _make(config, lease, folder, plan, pretrain, few_shot)


def _make(
    config: Tables,
    lease: Lease,
    folder: Storage,
    plan: CellPlan,
    pretrain: Callable[[Settings], dict[str, Any]],
    few_shot: Callable[[Settings], dict[str, Any]],
) -> int:
    records = read_records(folder, plan)
    _check_encoders(plan, records)
    many = sum(slot.runs for slot in plan.asked)
    finished = sum(_finished(records, cell) for slot in plan.asked for cell in to_run(plan, slot, records))
    say(f"{many} runs (cells of the tables), {finished} of them finished; tables: {folder / 'tables.md'}")
    writer = Writer(folder, config, plan)
    writer.write(records)
    number, failed = 0, 0
    for slot in plan.asked:
        cells = to_run(plan, slot, records)
        if not cells:
            say(f"[{number + 1}/{many}] {slot.title}\n  left out: {_why_not(plan, slot, records)}")
        for step, cell in enumerate(cells, 1):
            if _finished(records, cell):
                continue
            say(f"[{number + step}/{many}] {cell.title}")
            lease.check()
            records[cell.name] = record = _run(config, cell, few_shot if cell.labelled else pretrain)
            lease.check()
            write_record(_record_of(folder, cell), record)
            writer.write(records)
            check()
        number += slot.runs
        failed += slot.runs - sum(_finished(records, cell) for cell in cells)
    again = f"; {failed} failed, and the same command tries them again" if failed else ""
    say(f"{many - failed} of {many} cells are finished{again}. Tables: {folder / 'tables.md'}")
    return failed


def _check_encoders(plan: CellPlan, records: Records) -> None:
    """Refuse, before the first cell, an encoder that isn't there.

    Every cell would fail, and its record take the place of one that is finished.

    Raises:
        ValueError: a cell that isn't finished has one.
    """
    cells = [cell for slot in plan.asked for cell in to_run(plan, slot, records) or slot.cells]
    left = [cell.settings for cell in cells if not _finished(records, cell)]
    named = [(settings.encoder.model, "encoder.model") for settings in left]
    named += [(first, "annotate.first_encoder") for s in left if (first := s.annotate.first_encoder) is not None]
    for model, setting in dict.fromkeys(named):
        resolve_encoder(model, setting)


def _run(config: Tables, cell: Cell, run: Callable[[Settings], dict[str, Any]]) -> dict[str, Any]:
    """Run a cell.

    Returns:
        Its record.
    """
    try:
        return outcome(Storage.open(config.storage), cell, run(cell.settings))
    except Exception as error:  # whatever it is, the other cells can do without this one
        check()  # unless it came of being stopped
        reason = redacted(one_line(error))
        say(f"  failed: {reason}")
        # A mistake in the settings leaves Ray as it was; after anything else it may be what failed, and the
        # next cell starts or joins one that works.
        if not isinstance(error, ValueError) and ray.is_initialized():
            ray.shutdown()
        return {"identity": cell.identity, "state": "failed", "reason": reason}


def read_records(folder: Storage, plan: CellPlan) -> Records:
    """Records of the plan's cells so far, by name, without cells whose settings or files have changed."""
    there = (folder / "cells").files()  # many learning rates have never run
    records = {}
    for cell in plan.cells:
        if (
            f"{cell.name}.json" in there
            and (record := read_record(_record_of(folder, cell), cell.identity)) is not None
        ):
            records[cell.name] = record
    return records


def _record_of(folder: Storage, cell: Cell) -> Storage:
    return folder / "cells" / f"{cell.name}.json"


def show_plan(plan: CellPlan, records: Records) -> None:
    """Print every cell that may run, its state and its budget."""
    many = sum(slot.runs for slot in plan.asked)
    number, todo = 0, []
    for slot in plan.asked:
        cells = to_run(plan, slot, records)
        for step, cell in enumerate(cells, 1):
            state = _state(slot, cell, records)
            say(f"[{number + step}/{many}] {cell.title}: {state} ({cell.tokens:,} tokens)")
        if not cells:
            say(f"[{number + 1}/{many}] {slot.title}: to do, {_waits(plan, slot)} ({slot.cells[0].tokens:,} tokens)")
        todo += [cell for cell in cells or slot.cells[:1] if not (cells and _finished(records, cell))]
        number += slot.runs
    for reason in plan.skipped.values():
        say(f"skipped: {reason}")
    tokens = sum(cell.tokens for cell in todo)
    say(
        f"{many} cells, {many - len(todo)} finished; to go: {len(todo)}, at most "
        f"{tokens:,} tokens of training{_apart(todo)} (stages that cells share are trained once)"
    )
    if todo:
        say(_hours(todo, records))


def _apart(todo: list[Cell]) -> str:
    """What of them no budget bounds: fine-tuning goes on until validation stops growing."""
    return ", fine-tuning apart" if any(cell.labelled for cell in todo) else ""


def _hours(todo: list[Cell], records: Records) -> str:
    """How long that takes, by what the finished cells took: with training by tokens, without it by cells."""
    tokens = sum(cell.tokens for cell in todo)
    took = [_cost(record) for record in records.values() if record.get("state") == "finished"]
    alike = [one for one in took if one[1]] if tokens else took
    if not alike:
        return "how long that takes isn't known yet; the first finished cell will tell"
    share = tokens / sum(done for _, done in alike) if tokens else len(todo) / len(alike)
    rest = duration(share * sum(seconds for seconds, _ in alike))
    apart = _apart(todo) if tokens else ""
    return f"at most about {rest}{apart}, by what {len(alike)} finished cell{'' if len(alike) == 1 else 's'} took"


def _cost(record: dict[str, Any]) -> tuple[float, int]:
    """Seconds and training tokens of a finished cell."""
    iterations = record["iterations"]
    return sum(one["seconds"] or 0.0 for one in iterations), sum(one["tokens"] or 0 for one in iterations)


def _state(slot: Slot, cell: Cell, records: Records) -> str:
    record = records.get(cell.name, {})
    state = record.get("state", "to do")
    if state == "failed":
        return f"failed, to be tried again: {record['reason']}"
    chosen = slot.chooses and state == "finished" and choice_of(slot, records).rate == cell.rate
    return f"{state}, chosen" if chosen else state


def _waits(plan: CellPlan, slot: Slot) -> str:
    """The choice of a learning rate that a slot waits for."""
    assert slot.chosen_by is not None
    return f"with the learning rate chosen for {plan.at[slot.chosen_by].title}"


def _why_not(plan: CellPlan, slot: Slot, records: Records) -> str:
    assert slot.chosen_by is not None
    return choice_of(plan.at[slot.chosen_by], records).why_not or f"no learning rate of {plan.at[slot.chosen_by].title}"


def _finished(records: Records, cell: Cell) -> bool:
    return records.get(cell.name, {}).get("state") == "finished"
