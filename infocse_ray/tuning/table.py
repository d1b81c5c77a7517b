"""The results of trials: `sweep.json`, from which the same command resumes, and the table, plot and best settings."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from typing import Any

import yaml

from infocse_ray.page.figure import literal
from infocse_ray.report.markdown import escape
from infocse_ray.runtime.progress import say
from infocse_ray.stages.lease import Lease
from infocse_ray.stages.records import read_record, write_record
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted, redacted_json
from infocse_ray.tuning.config import Sweep
from infocse_ray.tuning.trials import Trial, shown_value, title_of

_IDENTITY = "sweep"
_MOST_LINES = 8
_NOTE = (
    "Columns `iteration` have {metric} on validation of what the iteration trained, 0 being the encoder that training "
    "began with, and each trial's best in bold. Trials are compared by their best iteration after 0, though a run "
    "returns what it began with where that is better. The test is of the best iteration's encoder. "
    "Pairs are those of each annotation; seconds those that the trial's stages took: what trials share is done once "
    "and counted in each. The row in bold is the best finished trial, `best.yaml` its settings, for "
    "`infocse pretrain --config`."
)


class Table:
    """A row for each trial; whatever changes one is written at once.

    A row is known again by its trial's name and identity. One whose trial was under way counts as not begun: the
    trial's stages are there.
    """

    def __init__(self, folder: Storage, config: Sweep, trials: list[Trial], lease: Lease | None = None) -> None:
        """Read what is there.

        Args:
            folder: of the sweep.
            config: what is asked for.
            trials: of it.
            lease: of the sweep, for whoever writes.
        """
        self._lease = lease
        self.folder, self.config, self.trials = folder, config, trials
        self.metric = trials[0].settings.validate.metric
        self.asha = config.asha.model_dump(mode="json")
        before = read_record(folder / "sweep.json", _IDENTITY) or {"trials": [], "asha": None}
        lasting = {"finished", "failed", *(["stopped"] if before["asha"] == self.asha else [])}
        # Earlier versions didn't note what iterations had trained: the runs are there, and say it again.
        known = {row["name"]: row for row in before["trials"] if row["state"] in lasting and _tells(row)}
        self.rows: dict[str, dict[str, Any]] = {}
        for trial in trials:
            row = {"number": trial.number, "name": trial.name, "identity": trial.identity, "values": trial.values}
            past = known.get(trial.name, {})
            empty = {"state": "to do", "iterations": [], "best_iteration": None, "reason": None}
            self.rows[trial.name] = empty | (past if past.get("identity") == trial.identity else {}) | row

    def __getstate__(self) -> dict[str, Any]:
        """What Tune writes down of it, for a restore that nobody asks for: the driver alone has a lease."""
        return self.__dict__ | {"_lease": None}

    def settled(self, trial: Trial) -> bool:
        """Whether the trial isn't to be run: it is finished, or was stopped by the rule that holds today."""
        return self.rows[trial.name]["state"] in ("finished", "stopped")

    def count(self, state: str) -> int:
        """How many trials are in this state: `to do`, `running`, `finished`, `stopped` or `failed`."""
        return sum(row["state"] == state for row in self.rows.values())

    def title(self, trial: Trial) -> str:
        """A trial as the log names it."""
        return f"[{trial.number}/{len(self.trials)}] {trial.title}"

    def note(self, trial: Trial, news: dict[str, Any]) -> None:
        """Write what is new of a trial, and say it if it is its end."""
        row = self.rows[trial.name]
        row |= {"reason": None} | news
        if row["state"] != "running":
            after = f" after iteration {row['best_iteration']}" if row["best_iteration"] else self.no_better(trial)
            score = f"{self.metric} {self.score(row):.4f}{after}"
            say(f"{self.title(trial)}: {row['state']}{': ' + row['reason'] if row['reason'] else ', ' + score}")
        self.write(plot=row["state"] != "running")

    def score(self, row: dict[str, Any]) -> float:
        """See `best_score`."""
        return best_score(row["iterations"])

    def best(self) -> Trial | None:
        """The finished trial of the best score, of equals the first."""
        finished = [trial for trial in self.trials if self.rows[trial.name]["state"] == "finished"]
        return max(finished, key=lambda trial: self.score(self.rows[trial.name]), default=None)

    def no_better(self, trial: Trial) -> str:
        """What is to be said of a trial that trained nothing better than what it began with; else nothing."""
        row = self.rows[trial.name]
        if row["best_iteration"] != 0 or len(row["iterations"]) < 2:
            return ""
        return f", no better than the {row['iterations'][0]['validation'][self.metric]:.4f} it began with"

    def write(self, plot: bool = True) -> None:
        """Write the table, the plot and the best settings, each whole; without a finished trial no `best.yaml`.

        Raises:
            LeaseLost: another driver took the sweep over.
        """
        if self._lease is not None:
            self._lease.check()
        best = self.best()
        content = {"name": self.config.name, "metric": self.metric, "best": best and best.name, "asha": self.asha}
        content |= {"parameters": self.config.parameters, "trials": list(self.rows.values())}
        write_record(self.folder / "sweep.json", content | {"identity": _IDENTITY})
        (self.folder / "sweep.md").write_bytes(redacted(self.markdown()).encode())
        if plot:
            (self.folder / "sweep.png").write_bytes(self.plot())
        if best is None:
            (self.folder / "best.yaml").delete()
            return
        score = f"{self.metric} {self.score(self.rows[best.name]):.4f} on validation{self.no_better(best)}"
        head = " ".join(f"The best of sweep {self.config.name}, {best.title}: {score}".split())
        content = redacted_json(best.settings.model_dump(mode="json"))
        settings = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        own = "# Under this name it is the trial's run: give another (--name) before you change anything."
        (self.folder / "best.yaml").write_bytes(redacted(f"# {head}.\n{own}\n{settings}").encode())

    def markdown(self) -> str:
        """The content of `sweep.md`."""
        names, rows, best = list(self.config.parameters), list(self.rows.values()), self.best()
        columns = range(1 + max((entry["iteration"] for row in rows for entry in row["iterations"]), default=0))
        head = ["trial", *map(escape, names), "state", *(f"iteration {t}" for t in columns)]
        head += [f"test {self.metric}", "pairs", "seconds"]
        lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
        for row in rows:
            entries = {entry["iteration"]: entry for entry in row["iterations"]}
            cells = [str(row["number"]), *(escape(shown_value(row["values"][name])) for name in names), row["state"]]
            cells += [_bold(self._trained(entries.get(t)), t == row["best_iteration"]) for t in columns]
            cells.append(self._cell(entries.get(row["best_iteration"]), "test"))
            cells.append(", ".join(f"{e['pairs']:,}" for e in row["iterations"] if e["pairs"] is not None))
            cells.append(f"{sum(e['seconds'] for e in row['iterations']):,.0f}" if entries else "")
            chosen = best is not None and row["name"] == best.name
            lines.append(f"| {' | '.join(_bold(cell, chosen) for cell in cells)} |")
        lines += ["", *(f"- Trial {row['number']}: {escape(row['reason'])}." for row in rows if row["reason"])]
        table = "\n".join(lines).rstrip()
        return f"# {escape(self.config.name)}\n\n{table}\n\n{_NOTE.format(metric=self.metric)}\n\n![](sweep.png)\n"

    def _trained(self, entry: dict[str, Any] | None) -> str:
        return f"{entry['trained']:.4f}" if entry and entry["trained"] is not None else ""

    def _cell(self, entry: dict[str, Any] | None, split: str) -> str:
        return f"{entry[split][self.metric]:.4f}" if entry and entry[split] else ""

    def plot(self) -> bytes:
        """The score over each parameter as PNG, trials that agree in all others joined by a line."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        names = list(self.config.parameters)
        figure = Figure(figsize=(max(6.4, 4.0 * len(names)), 4.8), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False, sharey=True)[0], names, strict=True):
            [way] = self.config.parameters[name]
            listed = way in ("grid", "choice")
            values = [row["values"][name] for row in self.rows.values()]
            numbers = all(isinstance(value, (int, float)) for value in values)
            if listed and numbers:  # in their order, not in that in which they were drawn
                axes.xaxis.update_units([shown_value(value) for value in sorted(values)])
            lines = defaultdict(list)
            for row in self.rows.values():
                others = title_of({k: v for k, v in row["values"].items() if k != name})
                lines[others].append((row["values"][name], self.score(row)))
            for others, points in lines.items():
                few = len(lines) <= _MOST_LINES
                along, scores = zip(*(sorted(points) if numbers else points), strict=True)
                along = [literal(shown_value(value)) for value in along] if listed else along
                axes.plot(along, scores, marker="o", label=literal(others), color=None if few else "C0")
                if few and others:
                    axes.legend(frameon=False)
            if "log" in way:
                axes.set_xscale("log")
            axes.set_xlabel(literal(name))
        figure.supylabel(f"{self.metric} (validation, best iteration)")
        figure.suptitle(literal(self.config.name))
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=150)
        return out.getvalue()


def best_score(iterations: list[dict[str, Any]]) -> float:
    """The best validation score, of what was trained if anything was: what all start from tells nothing."""
    scored = [entry for entry in iterations if entry["trained"] is not None]
    trained = [entry for entry in scored if entry["iteration"] > 0]
    return max((entry["trained"] for entry in trained or scored), default=math.nan)


def _tells(row: dict[str, Any]) -> bool:
    """Whether a row has what its trial's iterations trained."""
    return all("trained" in entry for entry in row["iterations"])


def _bold(cell: str, really: bool) -> str:
    return f"**{cell}**" if really and cell and not cell.startswith("**") else cell
