"""MLflow, through its own client: an MLflow run for each run, in the experiment `infocse` if none is named.

MLflow's own environment variables say where: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, MLFLOW_TRACKING_TOKEN, ...
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from infocse_ray.settings.nested import flat
from infocse_ray.tracking.once import Once
from infocse_ray.tracking.remembered import Remembered
from infocse_ray.tracking.sink import Status, TrackedRun
from infocse_ray.tracking.values import plain

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_STATUS: dict[Status, str] = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
_LONGEST_VALUE = 6000
"""Characters of a parameter or tag."""
_A_BATCH = 100
"""Parameters or tags of a request."""
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
"""MLflow's own defaults, minutes for each request, are for scripts that can't go on without it."""
_AWAY = {"TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED"}
_UNTOLD = {"MLFLOW_DISABLE_TELEMETRY": "true"}
"""By default MLflow tells its makers over the network of its use."""


class MLflow(Once):
    """Keeps an MLflow run."""

    name = "mlflow"

    def open(self, run: TrackedRun) -> None:
        """See `Sink`."""
        self._client = _client()
        self._remembered = Remembered(run.folder, self.name)
        tracked = self._found() or self._client.create_run(_experiment(self._client), run_name=run.name)
        self._id = tracked.info.run_id
        self._remembered.begin(self._id)
        self._client.update_run(self._id, status="RUNNING")
        tags = {"infocse.job": run.job, "infocse.folder": str(run.folder)}
        if run.group is not None:
            tags["infocse.group"] = run.group
        there = tracked.data.params
        params = {name: str(value)[:_LONGEST_VALUE] for name, value in flat(run.settings)}
        # A parameter can't be changed; one that is what it was first may have a tag from between.
        tags |= {
            tag: value
            for name, value in params.items()
            if (tag := f"changed.{name}") in tracked.data.tags or there.get(name, value) != value
        }
        self._write(tags=tags, params={name: value for name, value in params.items() if name not in there})

    def is_away(self, error: Exception) -> bool:
        """See `Sink`; the client has an error of its own for a server that doesn't answer, or is too busy to."""
        from mlflow.exceptions import RestException

        code = getattr(error, "error_code", None)
        # A server that answers with an error of its own is there, and would answer so again.
        none = code == "INTERNAL_ERROR" and not isinstance(error, RestException)
        return super().is_away(error) or none or code in _AWAY

    def _log(self, curves: str, tag: str, axis: str, at: int, values: Mapping[str, float]) -> None:
        """See `Once`."""
        self._write({f"{curves}/{tag}/{name}": value for name, value in values.items()}, at)

    def summary(self, scores: Mapping[str, float], words: Mapping[str, str]) -> None:
        """See `Sink`."""
        self._write(scores, tags={f"infocse.{name}": value for name, value in words.items()})

    def _close(self, status: Status) -> None:
        """See `Once`."""
        self._client.set_terminated(self._id, _STATUS[status])

    def _found(self) -> Run | None:
        """The run that an earlier command kept; None where this server has none, or it was deleted."""
        from mlflow.exceptions import MlflowException

        if self._remembered.id is None:
            return None
        try:
            found = self._client.get_run(self._remembered.id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return found if found.info.lifecycle_stage == "active" else None

    def _write(
        self,
        values: Mapping[str, float] | None = None,
        step: int = 0,
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        now = int(1000 * time.time())
        if values:
            metrics = [Metric(plain(name), value, now, step) for name, value in values.items()]
            self._client.log_batch(self._id, metrics)
        for some in _batches((tags or {}).items()):
            self._client.log_batch(self._id, tags=[RunTag(name, value[:_LONGEST_VALUE]) for name, value in some])
        for some in _batches((params or {}).items()):
            self._client.log_batch(self._id, params=[Param(name, value) for name, value in some])


def make_store() -> None:
    """Make the database that MLflow keeps runs in, if it is one of this machine's, and the experiment."""
    from mlflow import get_tracking_uri

    if not get_tracking_uri().startswith(("http:", "https:", "databricks")):
        _experiment(_client())


def _client() -> MlflowClient:
    for variable, value in (_PATIENCE | _UNTOLD).items():
        os.environ.setdefault(variable, value)
    for talkative in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(talkative).setLevel(logging.ERROR)
    from mlflow import MlflowClient

    return MlflowClient()


def _experiment(client: MlflowClient) -> str:
    """The id of the one that runs go to."""
    if (number := os.environ.get("MLFLOW_EXPERIMENT_ID")) is not None:
        return number
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "infocse")
    if (there := client.get_experiment_by_name(name)) is not None:
        return there.experiment_id
    return client.create_experiment(name)


def _batches(pairs: Iterable[tuple[str, str]]) -> Iterable[list[tuple[str, Any]]]:
    every = list(pairs)
    return (every[start : start + _A_BATCH] for start in range(0, len(every), _A_BATCH))
