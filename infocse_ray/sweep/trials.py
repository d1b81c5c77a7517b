"""One trial: a `pretrain` that reports after each iteration, and what is kept of it.

It runs in a process of its own, which Ray Tune starts and may end at a report; what it had finished is in its stages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.exceptions import RayActorError

from infocse_ray.loop.infocse import pretrain as run_pretrain
from infocse_ray.runtime.failures import one_line
from infocse_ray.storage.redact import redacted
from infocse_ray.sweep.plan import Trial

Report = Callable[[dict[str, Any]], None]
"""Takes what Tune is told: a `record`, and for its scheduler `iteration` and `score` (see `best_score`)."""

_SCORES = ("recall@5", "recall@10", "recall@20", "mrr", "queries")


def run_trial(
    trial: Trial, report: Report, at_once: int = 1, pretrain: Callable[..., dict[str, Any]] = run_pretrain
) -> None:
    """Run or go on with a trial's run.

    Args:
        trial: which.
        report: is told the state after each iteration and at the end; what it raises ends the trial.
        at_once: how many trials share the cluster.
        pretrain: does it.
    """

    def after_iteration(iterations: list[dict[str, Any]]) -> None:
        tell("running", iterations)

    def tell(state: str, iterations: list[dict[str, Any]], **more: Any) -> None:
        record = {"state": state, "iterations": [in_short(entry) for entry in iterations], **more}
        score = best_score(record, trial.settings.validate.metric)
        report({"iteration": iterations[-1]["iteration"], "score": score, "record": record})

    try:
        metrics = pretrain(trial.settings, after_iteration, at_once)
        tell("finished", metrics["iterations"], best_iteration=metrics["best_iteration"])
    except Exception as error:  # whatever it is, the other trials can do without this one
        report({"record": {"state": "failed", "reason": reason_of(error)}})


def in_short(entry: dict[str, Any]) -> dict[str, Any]:
    """What the table needs of an iteration of `metrics.json`."""
    counts = entry.get("train") or {}
    annotated = (entry.get("annotations") or {}).get("pairs")
    return {
        "iteration": entry["iteration"],
        "validation": _scores(entry.get("validation")),
        "test": _scores(entry.get("test")),
        "steps": counts.get("steps"),
        "tokens": counts.get("tokens"),
        # What a strategy that annotates nothing trains on isn't pairs of one cluster, but as many examples.
        "pairs": annotated if annotated is not None else (entry.get("examples") or {}).get("examples"),
        "seconds": round(sum(seconds or 0.0 for seconds in (entry.get("seconds") or {}).values()), 2),
    }


def best_score(record: dict[str, Any], metric: str) -> float | None:
    """The best validation score so far, of a trained encoder if there is one: what all start from tells nothing."""
    scored = [entry for entry in record.get("iterations", []) if entry["validation"]]
    trained = [entry for entry in scored if entry["iteration"] > 0]
    return max((entry["validation"][metric] for entry in trained or scored), default=None)


def reason_of(error: BaseException | str) -> str:
    """An error in one line."""
    if isinstance(error, RayActorError):
        return "its process died: killed, out of memory, or its node was lost"
    if isinstance(error, str):  # the traceback, of which the last line says it
        return redacted(error.strip().rpartition("\n")[2].strip())
    return redacted(one_line(error))


def _scores(found: dict[str, Any] | None) -> dict[str, float] | None:
    return None if found is None else {name: found[name] for name in _SCORES}
