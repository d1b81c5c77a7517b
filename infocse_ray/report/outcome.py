"""What the tables keep of a finished run: per iteration its scores, what they cost and where the ranks are."""

from __future__ import annotations

from typing import Any

from infocse_ray.loop.manifest import Manifest
from infocse_ray.loop.trained import trained_score
from infocse_ray.report.cells import Cell
from infocse_ray.storage.folder import Storage

METRICS = ("recall@5", "recall@10", "recall@20", "mrr")

PLAIN, WHITENED = "plain", "whitened"
"""The variants of a row: the encoder without its whitening, and as it is exported."""


def whitens(cell: Cell) -> bool:
    """Whether a cell's encoders are whitened."""
    return cell.settings.encoder.whiten != "off"


def outcome(root: Storage, cell: Cell, metrics: dict[str, Any]) -> dict[str, Any]:
    """The record of a finished run.

    Args:
        root: the storage of the runs.
        cell: what ran.
        metrics: what it returned, the content of its `metrics.json`.

    Returns:
        `metric`, that of validation; `chosen_iteration`, whose encoder rows show; `iterations`, each with `test` and
        `ranks` (scores, and the folder of the ranks relative to `root`, by variant), `whitening` (power and
        dimension), `sts` (Spearman's rank correlation on the pairs of `validate.sts`, by variant), `validation`,
        `trained` (see `trained_score`), `steps`, `tokens`, `annotation_tokens` and `seconds`; `start_validation`, the
        scores that training began with; `versions`.

    Raises:
        ValueError: the run has no test scores.
    """
    stages = Manifest(root / cell.settings.name).stages
    metric = cell.settings.validate.metric
    entries = _rounds(metrics) if cell.labelled else metrics["iterations"]
    first, iterations = entries[0], []
    for entry in entries:
        tests = _tests(cell, entry)
        place = entry.get("tested") or f"iteration_{entry['iteration']}"
        names = {PLAIN: f"{place}/test_plain" if whitens(cell) else f"{place}/test", WHITENED: f"{place}/test"}
        iterations.append(
            {
                "iteration": entry["iteration"],
                "test": tests,
                "sts": _sts(cell, entry, metrics),
                "ranks": {variant: stages.get(names[variant], {}).get("folder") for variant in tests},
                "whitening": entry.get("whitening"),
                "validation": _scores(entry["validation"]),
                "trained": trained_score(entry, metric),
                "steps": (entry.get("train") or {}).get("steps"),
                "tokens": (entry.get("train") or {}).get("tokens"),
                "annotation_tokens": (entry.get("annotations") or {}).get("tokens"),
                "seconds": _seconds(entry.get("seconds")),
            }
        )
    # A row shows what its method trained; one that may return its start shows what the run did.
    return {
        "identity": cell.identity,
        "state": "finished",
        "metric": metric,
        "chosen_iteration": metrics["best_iteration"]
        if cell.settings.train.never_worse
        else chosen_iteration(iterations, metric),
        # An initialised encoder began untouched, at step 0 of iteration 0.
        "start_validation": _scores(first["history"][0] if first.get("history") else first["validation"]),
        "iterations": iterations,
        "versions": metrics.get("versions", {}),
    }


def chosen_iteration(iterations: list[dict[str, Any]], metric: str) -> int:
    """The iteration t >= 1 with the best validation score, the first of equal ones; 0 where nothing was trained."""
    trained = [entry for entry in iterations if entry["iteration"] > 0]
    # In order of iterations, and max() returns the first of equals.
    return max(trained or iterations, key=lambda entry: entry["validation"][metric])["iteration"]


def _tests(cell: Cell, entry: dict[str, Any]) -> dict[str, Any]:
    """Test scores by variant.

    Raises:
        ValueError: there are none.
    """
    if entry.get("test") is None:
        raise ValueError("no test document has a counterpart; mark some as test, or raise corpus.test_fraction")
    if not whitens(cell):
        return {PLAIN: entry["test"]}
    if "plain" not in entry:
        raise ValueError(f"{cell.settings.name} has no test scores of the encoders without their whitening")
    return {PLAIN: entry["plain"]["test"], WHITENED: entry["test"]}


def _sts(cell: Cell, entry: dict[str, Any], metrics: dict[str, Any]) -> dict[str, float]:
    """What is known of general ability, by variant: of what is exported, and of the encoder as it came."""
    found = {}
    if "sts" in entry:
        found[WHITENED if whitens(cell) else PLAIN] = entry["sts"]
    if entry["iteration"] == 0 and not entry.get("train") and "sts" in metrics:
        found[PLAIN] = metrics["sts"]["start"]
    return found


def _rounds(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """The rounds of a run with labels as iterations: the fine-tuned encoder's scores, what went before it counted."""
    rounds = []
    for one in metrics["rounds"]:
        tuned, before = one["fine_tuned"], one["iterations"]
        counts = [entry.get("train") or {} for entry in before] + [tuned["train"]]
        annotated = [tokens for e in before if (tokens := (e.get("annotations") or {}).get("tokens")) is not None]
        rounds.append(
            {name: tuned[name] for name in ("test", "plain", "whitening", "validation", "history") if name in tuned}
            | {
                "iteration": one["round"],
                "train": {name: sum(c.get(name) or 0 for c in counts) for name in ("steps", "tokens")},
                "annotations": {"tokens": sum(annotated) if annotated else None},
                "seconds": {str(i): _seconds(e.get("seconds")) for i, e in enumerate([*before, tuned])},
                "tested": f"round_{one['round']}/fine_tuned",
            }
        )
    return rounds


def _scores(validation: dict[str, Any]) -> dict[str, float]:
    return {metric: validation[metric] for metric in METRICS}


def _seconds(of: dict[str, float | None] | None) -> float:
    """Of all stages together."""
    return sum(seconds or 0.0 for seconds in (of or {}).values())
