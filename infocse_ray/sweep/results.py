"""The result of a sweep, made of the trials' records: `sweep.json`, `sweep.md`, `sweep.png` and `best.yaml`."""

from __future__ import annotations

from typing import Any

import yaml

from infocse_ray.report.markdown import escape
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from infocse_ray.sweep.config import Sweep
from infocse_ray.sweep.plan import Plan, Trial, shown_value
from infocse_ray.sweep.plots import plot
from infocse_ray.sweep.trials import best_score


def summarise(config: Sweep, plan: Plan, records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The content of `sweep.json`.

    Args:
        config: of the sweep.
        plan: its trials.
        records: what came of them so far, by name.
    """
    metric = plan.trials[0].settings.validate.metric
    trials = [_row(trial, records.get(trial.name, {}), metric) for trial in plan.trials]
    done = [row for row in trials if row["state"] == "finished"]
    started = {e["validation"][metric] for row in trials for e in row["iterations"][:1] if e["validation"]}
    return {
        "name": config.name,
        "metric": metric,
        "parameters": config.parameters,
        "asha": config.asha.model_dump(mode="json"),
        "trials": trials,
        # What all trials began with; None where they differ, or before the first score.
        "start": started.pop() if len(started) == 1 else None,
        # max() returns the first of equals.
        "best": max(done, key=lambda row: row["score"])["name"] if done else None,
    }


def _row(trial: Trial, record: dict[str, Any], metric: str) -> dict[str, Any]:
    iterations = record.get("iterations", [])
    tested = [entry for entry in iterations if entry["iteration"] == record.get("best_iteration") and entry["test"]]
    return {
        "name": trial.name,
        "number": trial.number,
        "values": trial.values,
        "state": record.get("state", "to do"),
        "reason": record.get("reason"),
        "score": best_score(record, metric),
        "best_iteration": record.get("best_iteration"),
        "test": tested[0]["test"] if tested else None,
        "iterations": iterations,
        "pairs": [entry["pairs"] for entry in iterations if entry["pairs"] is not None],
        "seconds": round(sum(entry["seconds"] for entry in iterations), 2),
    }


def write_results(folder: Storage, results: dict[str, Any], plan: Plan) -> None:
    """Write the four files, each whole; without a finished trial there is no `best.yaml`."""
    (folder / "sweep.json").write_json(results)
    (folder / "sweep.md").write_bytes(render(results).encode())
    (folder / "sweep.png").write_bytes(plot(results))
    if results["best"] is None:
        (folder / "best.yaml").delete()
        return
    [best] = [trial for trial in plan.trials if trial.name == results["best"]]
    [row] = [row for row in results["trials"] if row["name"] == best.name]
    title = f"The best of sweep {results['name']}, {best.title}: {results['metric']} {row['score']:.4f} on validation"
    (folder / "best.yaml").write_bytes(as_config(best.settings, title).encode())


def as_config(settings: Settings, title: str) -> str:
    """A file for `infocse pretrain --config`, which finds the stages that the trial left in the storage."""
    content = settings.model_dump(mode="json")
    return f"# {' '.join(title.split())}.\n{yaml.safe_dump(content, sort_keys=False, allow_unicode=True)}"


def render(results: dict[str, Any]) -> str:
    """The content of `sweep.md`.

    Args:
        results: what `summarise` returns.
    """
    trials, metric = results["trials"], results["metric"]
    names = list(results["parameters"])
    most = max((entry["iteration"] for row in trials for entry in row["iterations"]), default=0)
    head = ["trial", *(escape(name) for name in names), "state", *(f"iteration {t}" for t in range(most + 1))]
    head += [f"test {metric}", "pairs", "seconds"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    notes = []
    for row in trials:
        if row["reason"]:
            notes.append(f"- Trial {row['number']}: {escape(row['reason'])}.")
        cells = [str(row["number"]), *(escape(shown_value(row["values"][name])) for name in names), row["state"]]
        cells += [_score(row, t, metric) for t in range(most + 1)]
        cells.append("" if row["test"] is None else f"{row['test'][metric]:.4f}")
        cells.append(", ".join(f"{pairs:,}" for pairs in row["pairs"]))
        cells.append(f"{row['seconds']:,.0f}" if row["iterations"] else "")
        if row["name"] == results["best"]:
            cells = [f"**{cell}**" if cell and not cell.startswith("**") else cell for cell in cells]
        lines.append(f"| {' | '.join(cells)} |")
    parts = [f"# {escape(results['name'])}", "\n".join(lines), _explained(results), "![](sweep.png)"]
    if notes:
        parts.insert(2, "\n".join(notes))
    return "\n\n".join(parts) + "\n"


def _score(row: dict[str, Any], t: int, metric: str) -> str:
    """A trial's score after iteration t, its best one bold."""
    found = next((entry["validation"] for entry in row["iterations"] if entry["iteration"] == t), None)
    if found is None:
        return ""
    return f"**{found[metric]:.4f}**" if t == row["best_iteration"] else f"{found[metric]:.4f}"


def _explained(results: dict[str, Any]) -> str:
    metric = results["metric"]
    asked = next((e["validation"] for row in results["trials"] for e in row["iterations"] if e["validation"]), None)
    text = (
        f"Columns `iteration` have {metric} on validation, 0 being the encoder that training began with, and each "
        "trial's best in bold. Trials are compared by their best iteration after 0. The test is of the best "
        "iteration's encoder. Pairs are those of each annotation; seconds those that the trial's stages took, by "
        "whichever trial they were done: what trials share is done once and counted in each."
    )
    if asked is not None and f"{metric}_low" in asked:
        known = (asked[f"{metric}_high"] - asked[f"{metric}_low"]) / 2
        text += f" Validation asks {int(asked['queries']):,} questions: a score is known to about ± {known:.3f} (95 %)."
    if results["best"] is not None:
        text += " `best.yaml` is the best finished trial, the row in bold, for `infocse pretrain --config best.yaml`."
    return text
