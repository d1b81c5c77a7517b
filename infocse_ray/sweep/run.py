"""Run a sweep: Ray Tune starts trials side by side, as many as the cluster has places for.

1. All trials are settled and checked, the corpus is prepared; only then the first starts.
2. A trial's process holds no core and no GPU: its stages ask for theirs when they run, as those of a run do.
3. What came of a trial is kept as soon as it is known; the same command skips trials that are settled, and the others
   go on from their stages. Nothing is restored from Tune's own state, which is thrown away.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from infocse_ray.corpus.prepare import prepare
from infocse_ray.loop.checks import check_sizes, training_splits, validation_of
from infocse_ray.loop.identity import initialization_of
from infocse_ray.loop.inputs import Inputs, check
from infocse_ray.report.plots import require_matplotlib
from infocse_ray.runtime.cluster import connect, placement
from infocse_ray.runtime.libraries import quiet_libraries
from infocse_ray.runtime.placement import possible_nodes
from infocse_ray.runtime.progress import Board, say
from infocse_ray.settings import Settings
from infocse_ray.stages.lease import Lease
from infocse_ray.storage.folder import Storage
from infocse_ray.sweep.config import Sweep
from infocse_ray.sweep.ledger import Ledger
from infocse_ray.sweep.plan import Plan, Trial, plan_trials
from infocse_ray.sweep.trials import best_score, reason_of, run_trial


class Work(NamedTuple):
    """What is to be run."""

    config: Sweep
    plan: Plan
    trials: list[Trial]
    """Those that aren't settled, in the order they start."""
    ledger: Ledger
    scheduler: ASHAScheduler | None


def sweep(
    config: Sweep,
    execute: Callable[[Work], None] | None = None,
    find: Callable[[Settings], Inputs] = check,
) -> int:
    """Run the trials; the result is in `<storage>/<name>/`: sweep.md, sweep.json, sweep.png and best.yaml.

    Args:
        config: what to run.
        execute: runs the trials and notes in the ledger what comes of them; by default Ray Tune.
        find: finds a run's corpus and loads its encoders.

    Returns:
        How many trials failed.

    Raises:
        ValueError: one line that names what doesn't fit; no trial has started.
        RunInUse: another driver is at work on the sweep.
    """
    plan = plan_trials(config, find)
    folder = Storage.open(config.storage) / config.name
    if (folder / "manifest.json").exists():
        raise ValueError(f"name = {config.name!r}: {folder} is a run; give the sweep another name")
    if config.only == "plan":
        show_plan(Ledger(folder, config, plan))
        return 0
    require_matplotlib()
    Storage.for_runs(config.storage)
    with Lease(folder / "driver.lease", f"name = {config.name!r}") as lease:
        lease.take()
        ledger = Ledger(folder, config, plan)
        todo = [trial for trial in plan.running if not ledger.settled(trial)]
        say(f"{len(plan.trials)} trials, {len(plan.trials) - len(todo)} of them done; table: {folder / 'sweep.md'}")
        ledger.write()
        if todo:
            (execute or with_tune)(Work(config, plan, todo, ledger, scheduler_for(ledger)))
        return _conclude(ledger)


def _conclude(ledger: Ledger) -> int:
    states = [ledger.state(trial) for trial in ledger.plan.trials]
    failed = states.count("failed")
    parts = [f"{states.count('finished')} of {len(states)} trials are finished"]
    parts += [f"{stopped} stopped early"] if (stopped := states.count("stopped")) else []
    parts += [f"{failed} failed, and the same command tries them again"] if failed else []
    best = f", the best: {ledger.folder / 'best.yaml'}" if "finished" in states else ""
    say(f"{'; '.join(parts)}. Table: {ledger.folder / 'sweep.md'}{best}")
    return failed


def show_plan(ledger: Ledger) -> None:
    """Print every trial and its state."""
    for trial in ledger.plan.running:
        state = ledger.state(trial)
        if state == "failed":
            state = f"failed, to be tried again: {ledger.records[trial.name]['reason']}"
        elif not ledger.settled(trial):
            state = "to do" if state == "to do" else "to go on"
        say(f"{ledger.title(trial)}: {state}")
    done = sum(ledger.settled(trial) for trial in ledger.plan.trials)
    say(f"{len(ledger.plan.trials)} trials, {done} done; to go: {len(ledger.plan.trials) - done}")


class _Past(NamedTuple):
    """Stands for a trial of an earlier command: a scheduler looks at the id alone."""

    trial_id: str


def scheduler_for(ledger: Ledger) -> ASHAScheduler | None:
    """What stops trials early, knowing the scores of those that are settled; None if nothing does."""
    asha = ledger.config.asha
    if asha.grace_iterations is None:
        return None
    scheduler = ASHAScheduler(
        time_attr="iteration",
        metric="score",
        mode="max",
        max_t=max(trial.settings.loop.max_iterations for trial in ledger.plan.trials),
        grace_period=asha.grace_iterations,
        reduction_factor=asha.reduction_factor,
    )
    for trial in ledger.plan.trials:
        if not ledger.settled(trial):
            continue
        record, past = ledger.records[trial.name], _Past(trial.name)
        scheduler.on_trial_add(None, past)  # pyright: ignore[reportArgumentType]
        for upto, entry in enumerate(record["iterations"], 1):
            score = best_score({"iterations": record["iterations"][:upto]}, ledger.metric)
            scheduler.on_trial_result(None, past, {"iteration": entry["iteration"], "score": score})  # pyright: ignore
    return scheduler


def with_tune(work: Work) -> None:
    """Run the trials with Ray Tune.

    Raises:
        ValueError: a trial doesn't fit the corpus or the cluster; none has started.
    """
    connect()
    at_once = concurrent_trials(work.config, [trial.settings for trial in work.trials])
    _check_all(work, at_once)
    say(f"{len(work.trials)} trials to run, {at_once} at a time")
    # Results go to the ledger, interrupts to the job, errors to the table.
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
    os.environ.setdefault("TUNE_PRINT_ALL_TRIAL_ERRORS", "0")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the newer output has a box even where it is to say nothing
    os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")  # a failure has no score
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as scratch, _TrialLog("sweep", "trials", len(work.trials)) as log:
        trainable = tune.with_parameters(
            _trainable,
            trials={trial.name: (trial, work.ledger.title(trial)) for trial in work.trials},
            at_once=at_once,
            log=log.handle,
        )
        tune.Tuner(
            # On this node, where paths mean the same, and without a core: a trial that held one could wait for ever
            # for stages that need them all.
            tune.with_resources(trainable, {f"node:{_this_node()}": 0.001}),
            param_space={"trial": tune.grid_search([trial.name for trial in work.trials])},
            tune_config=tune.TuneConfig(max_concurrent_trials=at_once, scheduler=work.scheduler),
            run_config=tune.RunConfig(
                name="trials", storage_path=scratch, callbacks=[_ToLedger(work)], verbose=0, log_to_file=False
            ),
        ).fit()


def concurrent_trials(config: Sweep, every: list[Settings]) -> int:
    """How many trials run at a time so that each has the workers it asks for.

    A trial holds places only while a stage of it runs, and that asks for no more of them: so whatever the number,
    trials wait for each other but not in a circle. More at a time than there are places for would only wait.
    """
    most, nodes = config.max_concurrent or len(every), possible_nodes()
    for settings in every:
        for section in (settings.annotate, settings.train):
            there = placement(section)
            places = sum(nodes.gpus if there.use_gpu else nodes.cpus)
            if section.num_workers == "auto" and config.max_concurrent is not None:
                continue  # gets its share of what there is, whatever the number
            most = min(most, places // there.workers)
    return max(1, min(most, len(every)))


def _check_all(work: Work, at_once: int) -> None:
    """Prepare what trials read, and check every one of them against it."""
    root = Storage.open(work.config.storage)
    corpus = work.trials[0].settings.corpus  # that of all trials
    stores = {tokenizer: prepare(root, corpus, source, tokenizer) for source, tokenizer in work.plan.corpora}
    for trial in work.trials:
        settings, workers = trial.settings, placement(trial.settings.train, at_once).workers
        placement(settings.annotate, at_once)
        for store in stores.values():
            try:
                on = validation_of(settings, store)
                splits = training_splits(settings, on)
                trains = {settings.train.strategy, initialization_of(settings)} != {"none"}
                with contextlib.redirect_stdout(io.StringIO()):  # the trials warn, each when it starts
                    check_sizes(settings, store, splits, on, workers, trains)
            except ValueError as error:
                raise ValueError(f"trial {trial.title}: {error}") from error


def _this_node() -> str:
    here = ray.get_runtime_context().get_node_id()
    return next(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == here)


def _trainable(config: dict[str, Any], trials: dict[str, tuple[Trial, str]], at_once: int, log: Any) -> None:
    """What Tune runs in a trial's process."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    quiet_libraries()
    trial, title = trials[config["trial"]]
    with contextlib.redirect_stdout(_Lines(log, title.partition(" ")[0])):  # pyright: ignore[reportArgumentType]
        say(f"{trial.title}: starts")
        run_trial(trial, tune.report, at_once)


class _Lines:
    """A text stream that sends whole lines to the driver, each with the trial's number."""

    def __init__(self, log: Any, prefix: str) -> None:
        self._log, self._prefix, self._begun = log, prefix, ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._log.line.remote(f"{self._prefix} {line}")
        return len(text)

    def flush(self) -> None:
        """Lines go when they are whole."""


class _TrialLog(Board):
    """Shows the trials' own lines; how many are done, on a terminal alone, for each says so with a line."""

    def _show(self) -> None:
        self.say_lines()


class _ToLedger(tune.Callback):
    """Notes in the ledger what Tune hears of trials."""

    def __init__(self, work: Work) -> None:
        self._ledger = work.ledger
        self._trials = {trial.name: trial for trial in work.trials}

    def _of(self, trial: Any) -> Trial:
        return self._trials[trial.config["trial"]]

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any):
        """Note a report."""
        if "record" in result:
            self._ledger.note(self._of(trial), result["record"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any):
        """Note that the scheduler stopped a trial, which else reported its own end."""
        if self._ledger.state(mine := self._of(trial)) == "running":
            self._ledger.note(mine, stopped(self._ledger.records[mine.name]))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any):
        """Note that a trial's process failed."""
        error = trial.get_pickled_error() or trial.get_error() or "unknown"
        self._ledger.note(self._of(trial), {"state": "failed", "reason": reason_of(error)})


def stopped(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a trial that was running when the scheduler stopped it."""
    last = record["iterations"][-1]["iteration"]
    return record | {"state": "stopped", "reason": f"stopped early after iteration {last}"}
