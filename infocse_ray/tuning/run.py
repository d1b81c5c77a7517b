"""Run a sweep: Ray Tune starts trials side by side, as many as the cluster has places for.

1. All trials are settled and checked, the corpus is prepared; only then the first starts.
2. A trial's process holds no core and no GPU: its stages ask for theirs when they run, as those of a run do.
3. What came of a trial is in the table as soon as it is known; the same command skips trials that are settled, and the
   others go on from their stages. Tune's own state is thrown away: `Tuner.restore` would take the trials, their number
   at a time and the callbacks from the first command, and forget the scores that ASHA stops trials by.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from infocse_ray.corpus.prepare import prepare
from infocse_ray.loop.checks import check_sizes, training_splits, validation_of
from infocse_ray.loop.infocse import pretrain as run_pretrain
from infocse_ray.loop.inputs import Inputs, check
from infocse_ray.loop.own_folder import check_own_folder
from infocse_ray.loop.trained import trained_score
from infocse_ray.runtime.cluster import connect, placement
from infocse_ray.runtime.failures import one_line
from infocse_ray.runtime.libraries import quiet_libraries
from infocse_ray.runtime.placement import possible_nodes
from infocse_ray.runtime.progress import Board, say
from infocse_ray.settings import Settings
from infocse_ray.stages.lease import Lease
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted
from infocse_ray.tracking.tracking import check_sinks, make_stores, tracking_environment
from infocse_ray.tuning.config import Sweep
from infocse_ray.tuning.table import Table, best_score
from infocse_ray.tuning.trials import Trial, plan_trials

_TUNE_IS_QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # results go to the table
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # interrupts to the job
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # a failure has no score
    "RAY_AIR_NEW_OUTPUT": "0",  # the newer output has a box even where it is to say nothing
}


def sweep(
    config: Sweep,
    execute: Callable[[Table, list[Trial]], None] | None = None,
    find: Callable[[Settings], Inputs] = check,
) -> int:
    """Run the trials; the result is in `<storage>/<name>/`: sweep.md, sweep.json, sweep.png and best.yaml.

    Args:
        config: what to run.
        execute: runs trials and notes in the table what comes of them; by default Ray Tune.
        find: finds a run's corpus and loads its encoders.

    Returns:
        How many trials failed.

    Raises:
        ValueError: one line that names what doesn't fit; no trial has started.
        RunInUse: another driver is at work on the sweep.
    """
    trials = plan_trials(config, find)
    folder = Storage.open(config.storage) / config.name
    if (folder / "manifest.json").exists():
        raise ValueError(f"name = {config.name!r}: {folder} is a run; give the sweep another name")
    if config.only == "plan":
        table = Table(folder, config, trials)
        for trial in trials:
            row = table.rows[trial.name]
            reason = f", to be tried again: {row['reason']}" if row["state"] == "failed" else ""
            say(f"{table.title(trial)}: {row['state']}{reason}")
        say(f"{len(trials)} trials, {sum(map(table.settled, trials))} of them done")
        return 0
    for trial in trials:
        check_sinks(trial.settings)
    Storage.for_runs(config.storage)
    check_own_folder(folder, config.name)
    with Lease(folder / "driver.lease", f"name = {config.name!r}") as lease:
        lease.take()
        table = Table(folder, config, trials, lease)
        todo = [trial for trial in trials if not table.settled(trial)]
        say(f"{len(trials)} trials, {len(trials) - len(todo)} of them done; table: {folder / 'sweep.md'}")
        table.write()
        if todo:
            (execute or with_tune)(table, todo)
    failed, stopped = table.count("failed"), table.count("stopped")
    parts = [f"{table.count('finished')} of {len(trials)} trials are finished"]
    parts += [f"{stopped} stopped early"] if stopped else []
    parts += [f"{failed} failed, and the same command tries them again"] if failed else []
    best = ""
    if (one := table.best()) is not None:
        best = f", the best{table.no_better(one)}: {folder / 'best.yaml'}"
    say(f"{'; '.join(parts)}. Table: {folder / 'sweep.md'}{best}")
    return failed


def scheduler_for(table: Table) -> ASHAScheduler | None:
    """What stops trials early, knowing the scores of those that are settled; None if nothing does."""
    if (grace := table.config.asha.grace_iterations) is None:
        return None
    most = max(trial.settings.loop.max_iterations for trial in table.trials)
    factor = table.config.asha.reduction_factor
    scheduler: Any = ASHAScheduler("iteration", "score", "max", most, grace, factor)
    for trial in filter(table.settled, table.trials):
        past = SimpleNamespace(trial_id=trial.name)  # a scheduler looks at the id alone
        scheduler.on_trial_add(None, past)
        iterations = table.rows[trial.name]["iterations"]
        for upto, entry in enumerate(iterations, 1):
            score = best_score(iterations[:upto])
            scheduler.on_trial_result(None, past, {"iteration": entry["iteration"], "score": score})
    return scheduler


def with_tune(table: Table, todo: list[Trial]) -> None:
    """Run the trials with Ray Tune.

    Raises:
        ValueError: a trial doesn't fit the corpus or the cluster; none has started.
    """
    connect()
    at_once = concurrent_trials(table.config.max_concurrent, [trial.settings for trial in todo])
    _check_all(Storage.open(table.config.storage), todo, at_once)
    make_stores([trial.settings for trial in todo])
    say(f"{len(todo)} trials to run, {at_once} at a time")
    for name, value in _TUNE_IS_QUIET.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as scratch, Board("sweep", "trials", len(todo)) as board:
        trainable = tune.with_parameters(
            _trainable,
            trials={t.number: (table.title(t), t.settings) for t in todo},
            at_once=at_once,
            log=board.handle,
            environment=tracking_environment(),
            directory=os.getcwd(),
        )
        # On this node, where paths mean the same, and without a core: a trial that held one could wait for ever for
        # stages that need them all.
        here = {f"node:{ray.util.get_node_ip_address()}": 0.001}
        tune.Tuner(
            tune.with_resources(trainable, here),
            param_space={"trial": tune.grid_search([trial.number for trial in todo])},
            tune_config=tune.TuneConfig(max_concurrent_trials=at_once, scheduler=scheduler_for(table)),
            run_config=tune.RunConfig(
                name="trials", storage_path=scratch, callbacks=[ToTable(table)], verbose=0, log_to_file=False
            ),
        ).fit()


def concurrent_trials(max_concurrent: int | None, every: list[Settings]) -> int:
    """How many trials run at a time so that each has the workers it asks for.

    A trial holds places only while a stage of it runs, and that asks for no more of them: so whatever the number,
    trials wait for each other but not in a circle. More at a time than there are places for would only wait.
    """
    most, nodes = max_concurrent or len(every), possible_nodes()
    for section in (section for settings in every for section in (settings.annotate, settings.train)):
        if section.num_workers != "auto" or max_concurrent is None:  # else it gets its share, whatever the number
            there = placement(section)
            most = min(most, sum(nodes.gpus if there.use_gpu else nodes.cpus) // there.workers)
    return max(1, min(most, len(every)))


def _check_all(root: Storage, todo: list[Trial], at_once: int) -> None:
    """Prepare what trials read, and check every one of them against it."""
    stores = {}
    for trial in todo:
        settings, key = trial.settings, (trial.source.fingerprint, trial.tokenizer)
        workers = placement(settings.train, at_once).workers
        placement(settings.annotate, at_once)
        if key not in stores:
            stores[key] = prepare(root, settings.corpus, trial.source, trial.tokenizer)
        try:
            on = validation_of(settings, stores[key])
            trains = {settings.train.method, settings.loop.initialization} != {"none"}
            with contextlib.redirect_stdout(io.StringIO()):  # the trials warn, each when it starts
                check_sizes(settings, stores[key], training_splits(settings, on), on, workers, trains)
        except ValueError as error:
            raise ValueError(f"trial {trial.title}: {error}") from error


def _trainable(
    config: dict[str, Any],
    trials: dict[int, tuple[str, Settings]],
    at_once: int,
    log: Any,
    environment: dict[str, str],
    directory: str,
) -> None:
    """What Tune runs in a trial's process."""
    # On the driver's node, but in the directory that `ray start` was run in, where relative paths mean others.
    os.chdir(directory)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.update(environment)
    quiet_libraries()
    title, settings = trials[config["trial"]]
    with contextlib.redirect_stdout(_TrialOutput(log, title.partition(" ")[0])):
        say(f"{title.partition(' ')[2]}: starts")
        try:
            run_trial(settings, tune.report, at_once)
        finally:
            log.add.remote(1)


class _TrialOutput(io.TextIOBase):
    """A text stream whose lines the driver shows, each with the trial's number."""

    def __init__(self, log: Any, prefix: str) -> None:
        self._log, self._prefix = log, prefix

    def write(self, text: str) -> int:
        for line in filter(None, text.split("\n")):
            self._log.line.remote(f"{self._prefix} {line}")
        return len(text)


def run_trial(
    settings: Settings,
    tell: Callable[[dict[str, Any]], None],
    at_once: int = 1,
    pretrain: Callable[..., dict[str, Any]] = run_pretrain,
) -> None:
    """Run or go on with a trial's run.

    Args:
        settings: of the run.
        tell: is told of each iteration and of the end (see `report`); what it raises ends the trial.
        at_once: how many trials share the cluster.
        pretrain: does it.
    """
    metric = settings.validate.metric
    try:
        metrics = pretrain(settings, lambda iterations: tell(report(iterations, metric)), at_once)
        tell(report(metrics["iterations"], metric, state="finished", best_iteration=metrics["best_iteration"]))
    except Exception as error:  # whatever it is, the other trials can do without this one
        tell({"news": {"state": "failed", "reason": redacted(one_line(error))}})


def report(iterations: list[dict[str, Any]], metric: str, **news: Any) -> dict[str, Any]:
    """What Tune is told: `iteration` and `score` for its scheduler, `news` of the trial's row for the table."""
    short = [_in_short(entry, metric) for entry in iterations]
    news = {"state": "running", "iterations": short} | news
    return {"iteration": short[-1]["iteration"], "score": best_score(short), "news": news}


def _in_short(entry: dict[str, Any], metric: str) -> dict[str, Any]:
    """What the table needs of an iteration of `metrics.json`."""
    annotated = (entry.get("annotations") or {}).get("pairs")
    return {
        **{name: entry.get(name) for name in ("iteration", "validation", "test")},
        "trained": trained_score(entry, metric) if entry.get("validation") else None,
        # What a method that annotates nothing trains on isn't pairs of one cluster, but as many examples.
        "pairs": annotated if annotated is not None else (entry.get("examples") or {}).get("examples"),
        "seconds": round(sum(seconds or 0.0 for seconds in (entry.get("seconds") or {}).values()), 2),
    }


class ToTable(tune.Callback):
    """Notes in the table what Tune hears of trials."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._trials = {trial.number: trial for trial in table.trials}

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any):
        """Note a report."""
        self._note(trial, result["news"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any):
        """Note that the scheduler stopped a trial, which else reported its own end."""
        row = self._table.rows[self._trials[trial.config["trial"]].name]
        if row["state"] == "running":
            last = row["iterations"][-1]["iteration"]
            self._note(trial, {"state": "stopped", "reason": f"stopped early after iteration {last}"})

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any):
        """Note that a trial failed without a word."""
        reason = "its process died: killed, out of memory, or its node was lost"
        self._note(trial, {"state": "failed", "reason": reason})

    def _note(self, trial: Any, news: dict[str, Any]) -> None:
        self._table.note(self._trials[trial.config["trial"]], news)
