"""The suite `mteb`: tasks of the package mteb, run by it on the encoder's folder, prompts and whitening included.

It runs in the process of the command: what mteb has fetched of a task's data lies on that machine.
"""

from __future__ import annotations

import difflib
import logging
from pathlib import Path
from typing import Any

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.runtime.libraries import check_installed
from infocse_ray.runtime.progress import say
from infocse_ray.settings import fingerprint
from infocse_ray.stages.stage import Stage
from infocse_ray.suites.judged import Judged
from infocse_ray.suites.rows import Row, no_interval


def require_mteb() -> Any:
    """The module mteb.

    Raises:
        ValueError: it isn't installed.
    """
    check_installed(["mteb"], "mteb", "suite = mteb")
    import mteb  # pyright: ignore[reportMissingImports]

    logging.getLogger("mteb").setLevel(logging.ERROR)
    return mteb


def find_tasks(names: list[str]) -> list[Any]:
    """The tasks of these names, with their data.

    Raises:
        ValueError: there is no such task, it isn't about text, or its data can't be had.
    """
    mteb = require_mteb()
    tasks = []
    for name in names:
        try:
            tasks.append(mteb.get_task(name))
        except KeyError as error:
            known = [task.metadata.name for task in mteb.get_tasks()]
            near = difflib.get_close_matches(name, known, n=1)
            meant = f": did you mean {near[0]}?" if near else "; mteb.get_tasks() lists them"
            raise ValueError(f"tasks = {name!r}: mteb {mteb.__version__} has no such task{meant}") from error
        if (about := tasks[-1].metadata.modalities) != ["text"]:
            raise ValueError(f"tasks = {name!r}: is about {' and '.join(about)}, not text alone")
    for task in tasks:
        load(task)
    return tasks


def load(task: Any) -> None:
    """Let a task find its data.

    Raises:
        ValueError: it can't be had.
    """
    say(f"{task.metadata.name}: loading its data")
    try:
        task.load_data()
    except Exception as error:  # the hub's clients raise dozens of unrelated kinds
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        where = task.metadata.dataset.get("path", "")
        raise ValueError(
            f"tasks = {task.metadata.name!r}: its data ({where}) is neither in this machine's cache of the Hugging "
            f"Face hub (HF_HOME) nor to be had from there: {reason}"
        ) from error


def run_task(task: Any, folder: Path, device: str | None = None) -> dict[str, Any]:
    """Run a task on an encoder.

    Args:
        task: of mteb.
        folder: the encoder's, as sentence-transformers loads it.
        device: to run it on; None: a GPU if there is one.

    Returns:
        `score`, the main one, a mean over splits and languages; `measure`, its name; `result`, mteb's own record.
    """
    mteb = require_mteb()
    from mteb.models import SentenceTransformerEncoderWrapper  # pyright: ignore[reportMissingImports]

    model = SentenceTransformerEncoderWrapper(str(folder), device=device)
    found = mteb.evaluate(
        model, task, cache=None, co2_tracker=False, show_progress_bar=False, overwrite_strategy="always"
    )
    [result] = found.task_results
    return {
        "score": float(result.get_score()),
        "measure": str(task.metadata.main_score),
        "result": result.to_dict(),
    }


def judge_task(judged: Judged, task: Any) -> tuple[Row, dict[str, str]]:
    """Run a task on every encoder.

    Returns:
        The row, and where mteb's own records are, by encoder.
    """
    name = task.metadata.name
    stages = {whose: _judged(judged, task, encoder) for whose, encoder in judged.encoders.items()}
    files = {whose: str(stage.folder / f"{name}.json") for whose, stage in stages.items()}
    summaries = {whose: stage.summary or {} for whose, stage in stages.items()}
    scores = {whose: no_interval(summary["score"]) for whose, summary in summaries.items()}
    row = Row("mteb", name, task.metadata.type, summaries["model"]["measure"], scores["model"])
    return row._replace(before=scores.get("compare")), files


def _judged(judged: Judged, task: Any, encoder: EncoderFolder) -> Stage:
    mteb = require_mteb()
    metadata = task.metadata

    def work(stage: Stage) -> dict[str, Any]:
        say(f"{metadata.name}: running it on {encoder.folder}")
        device = "cpu" if judged.settings.use_gpu is False else None
        done = run_task(task, encoder.local(), device)
        (stage.folder / f"{metadata.name}.json").write_json(done["result"])
        return {"score": done["score"], "measure": done["measure"]}

    asked = metadata.name, metadata.dataset.get("revision"), list(task.eval_splits), list(task.hf_subsets)
    identity = fingerprint("mteb", mteb.__version__, *asked, encoder.fingerprint)
    return judged.stage("mteb", identity, work)
