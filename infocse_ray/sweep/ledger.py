"""What came of each trial, kept in the sweep's folder, and the results, written anew with every change.

A trial's record is `<storage>/<sweep>/trials/<trial>.json`; it counts as long as the trial's identity is the same.
"""

from __future__ import annotations

from typing import Any

from infocse_ray.retrieval.ranks import shown
from infocse_ray.runtime.progress import say
from infocse_ray.stages.records import keep, kept
from infocse_ray.storage.folder import Storage
from infocse_ray.sweep.config import Sweep
from infocse_ray.sweep.plan import Plan, Trial
from infocse_ray.sweep.results import summarise, write_results


class Ledger:
    """The records of a sweep's trials."""

    def __init__(self, folder: Storage, config: Sweep, plan: Plan) -> None:
        self.folder, self.config, self.plan = folder, config, plan
        self.metric = plan.trials[0].settings.validate.metric
        self.records: dict[str, dict[str, Any]] = {}
        for trial in plan.trials:
            if (record := kept(self._file(trial), trial.identity)) is not None:
                self.records[trial.name] = record

    def _file(self, trial: Trial) -> Storage:
        return self.folder / "trials" / f"{trial.name}.json"

    def state(self, trial: Trial) -> str:
        """`to do`, `running`, `finished`, `stopped` or `failed`."""
        return self.records.get(trial.name, {}).get("state", "to do")

    def settled(self, trial: Trial) -> bool:
        """Whether the trial isn't to be run: it is finished, or was stopped by the rule that holds today."""
        state = self.state(trial)
        return state == "finished" or (
            state == "stopped" and self.records[trial.name]["asha"] == self.config.asha.model_dump(mode="json")
        )

    def note(self, trial: Trial, record: dict[str, Any]) -> None:
        """Keep what a trial reported, say it, and write the results."""
        # Iterations that were reported stay, should the trial fail in the next.
        before = {"iterations": self.records.get(trial.name, {}).get("iterations", [])}
        record = before | record | {"identity": trial.identity}
        if record["state"] == "stopped":
            record["asha"] = self.config.asha.model_dump(mode="json")
        self.records[trial.name] = record
        keep(self._file(trial), record)
        if (line := self._line(record)) is not None:
            say(f"{self.title(trial)}: {line}")
        self.write()

    def title(self, trial: Trial) -> str:
        """A trial as the log names it."""
        return f"[{trial.number}/{len(self.plan.trials)}] {trial.title}"

    def _line(self, record: dict[str, Any]) -> str | None:
        if record["state"] == "failed":
            return f"failed: {record['reason']}"
        if record["state"] == "finished":
            best = record["best_iteration"]
            [entry] = [entry for entry in record["iterations"] if entry["iteration"] == best]
            return f"finished, {self.metric} {shown(entry['validation'], self.metric)} after iteration {best}"
        return record.get("reason")

    def write(self) -> None:
        """Write the table, its JSON, the plot and the best settings."""
        write_results(self.folder, summarise(self.config, self.plan, self.records), self.plan)
