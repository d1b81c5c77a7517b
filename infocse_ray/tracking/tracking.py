"""The sinks of a run, held by its driver: workers need neither their packages, nor their credentials, nor a way out.

Steps come from worker 0 by the progress board, stages from the manifest, final scores with `metrics.json`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from infocse_ray.runtime.failures import one_line
from infocse_ray.runtime.libraries import installed
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Settings
from infocse_ray.stages.metrics import Begun, Points
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage, goes_with_job
from infocse_ray.tracking.lane import Lane
from infocse_ray.tracking.sink import Sink, Status, TrackedRun, Trained
from infocse_ray.tracking.values import final_scores, finite, settings_tree, summary_values, verdict_words

_SECONDS: dict[Status, float] = {"finished": 60.0, "failed": 20.0, "stopped": 10.0}
"""How long the end of a run waits for a sink."""


def check_sinks(settings: Settings) -> None:
    """Refuse, before work starts, sinks that can't work here.

    Raises:
        ValueError: a package is missing, W&B has no key, or what they write wouldn't last; one line with the fix.
    """
    for name in settings.tracking.sinks:
        if name != "tensorboard" and not installed([name]):
            raise ValueError(
                f"tracking.sinks = {name}: its package is missing; pip install 'infocse-ray[{name}]' where the driver "
                "runs, or leave it out"
            )
        if (variable := _writes_here(name)) is not None and goes_with_job(os.getcwd()):
            raise ValueError(
                f"tracking.sinks = {name}: without {variable} it writes into the folder that Ray unpacked this job "
                f"into and will delete; set {variable} where the driver runs, before `ray start`, or leave it out"
            )
        if name == "wandb" and not _wandb_is_allowed():
            raise ValueError(
                "tracking.sinks = wandb: Weights & Biases has no key here; set WANDB_API_KEY, run `wandb login`, or "
                "set WANDB_MODE=offline"
            )


def _writes_here(name: str) -> str | None:
    """The variable that says where a sink writes, where it isn't set and the sink writes into the working directory."""
    variable = {"mlflow": "MLFLOW_TRACKING_URI", "wandb": "WANDB_DIR"}.get(name)
    if variable is None or os.environ.get(variable):
        return None
    return variable if name == "mlflow" or _wandb_mode() == "offline" else None


def _wandb_is_allowed() -> bool:
    """Whether W&B won't ask for a key, which a thread can't type."""
    if _wandb_mode() != "online" or os.environ.get("WANDB_API_KEY"):
        return True
    import wandb

    api = getattr(wandb, "api", None)  # deprecated: once it is gone, W&B has to say by itself that there is no key
    return api is None or bool(api.api_key)


def _wandb_mode() -> str:
    return os.environ.get("WANDB_MODE") or "online"


def make_stores(every: Iterable[Settings]) -> None:
    """Make, before several runs do so at the same time, what their sinks keep on this machine; a failure is a warning.

    MLflow makes the tables of a new database step by step, and two processes that do it at once can leave it broken.
    """
    if not any("mlflow" in settings.tracking.sinks for settings in every):
        return
    from infocse_ray.tracking.mlflow import make_store

    try:
        make_store()
    except Exception as error:  # whatever it raises, the runs go on without it
        say(f"warning: tracking: mlflow: {one_line(error)}; the runs go on all the same")


def tracking_environment() -> dict[str, str]:
    """The environment variables that sinks read: for processes of a run that Ray starts without them."""
    return {name: value for name, value in os.environ.items() if name.startswith(("MLFLOW_", "WANDB_"))}


class Tracking:
    """Shows a run while the `with` block lasts; none of its calls waits for a sink, or raises what one raises."""

    def __init__(self, settings: Settings, job: str, run: Storage, seconds: float | None = None) -> None:
        """Begin.

        Args:
            settings: of the run, with `tracking`.
            job: what runs, such as `pretrain`.
            run: its folder.
            seconds: how long the end waits for sinks; None: by how it ends.
        """
        self._seconds = seconds
        tracked = TrackedRun(settings.name, job, run, settings_tree(settings), settings.tracking.group)
        self._lanes = [(sink, Lane(sink, tracked)) for sink in map(_sink, settings.tracking.sinks)]

    def __enter__(self) -> Tracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A request to stop is no `Exception`.
        status: Status = "finished" if kind is None else "failed" if isinstance(error, Exception) else "stopped"
        until = time.monotonic() + (_SECONDS[status] if self._seconds is None else self._seconds)
        for _, lane in self._lanes:
            lane.end(status)
        for _, lane in self._lanes:
            lane.wait(until)

    def training(self, name: str, stage: Stage) -> Callable[[Begun | Points], None]:
        """What shows a training.

        Args:
            name: of the round it is of, such as `iteration_1`.
            stage: unfinished.
        """
        trained = Trained(name, stage)

        def show(news: Begun | Points) -> None:
            if isinstance(news, Begun):
                self._call(lambda sink: sink.begin(trained, news.first))
            elif values := finite(news.values):
                self._call(lambda sink: sink.points(trained, news.group, news.step, values))

        return show

    def stage(self, name: str, stage: Stage) -> None:
        """Show what a finished stage, of this name in the run, counted, took and found."""
        values = finite(summary_values(stage.summary or {}))
        self._call(lambda sink: sink.stage(name, stage, values))

    def summary(self, metrics: Mapping[str, Any], identity: str) -> None:
        """Show what the run came to.

        Args:
            metrics: the content of `metrics.json`.
            identity: of the run's inputs and settings: who knows it by then needn't be told again.
        """
        scores, words = finite(final_scores(metrics)), verdict_words(metrics)

        def show(sink: Sink) -> None:
            sink.summary(scores, words)
            sink.came_to = identity

        self._call(show)

    def _call(self, call: Callable[[Sink], None]) -> None:
        for sink, lane in self._lanes:
            lane.put(lambda sink=sink: call(sink))


def _sink(name: str) -> Sink:
    if name == "mlflow":
        from infocse_ray.tracking.mlflow import MLflow

        return MLflow()
    if name == "wandb":
        from infocse_ray.tracking.wandb import WandB

        return WandB()
    from infocse_ray.tracking.tensorboard import TensorBoard

    return TensorBoard()
