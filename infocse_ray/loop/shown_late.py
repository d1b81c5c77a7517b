"""What a finished run came to, shown to those who never got it: a server was away, or nobody had asked for it then."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from infocse_ray.errors import DamagedFile
from infocse_ray.loop.manifest import Manifest, folder_in
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import read_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.tracking.remembered import Remembered
from infocse_ray.tracking.tracking import Tracking


def show_late(
    settings: Settings, job: str, folder: Storage, manifest: Manifest, metrics: Mapping[str, Any], identity: str
) -> None:
    """Show its stages and final scores; those of training's steps that nobody saw stay unseen.

    Args:
        settings: of the run.
        job: what ran.
        folder: of the run.
        manifest: of the run.
        metrics: the content of `metrics.json`.
        identity: of the run's inputs and settings.
    """
    # TensorBoard's files lie in the run's folder, and were written as it went on.
    named = [name for name in settings.tracking.sinks if name != "tensorboard"]
    untold = [name for name in named if Remembered(folder, name).told != identity]
    if not untold:
        return
    say(f"{', '.join(untold)}: is shown what the run came to, which it hasn't been told")
    only = settings.tracking.model_copy(update={"sinks": untold})
    with Tracking(settings.model_copy(update={"tracking": only}), job, folder) as tracking:
        for name, entry in manifest.stages.items():
            with contextlib.suppress(FileNotFoundError, DamagedFile):  # it was removed since
                tracking.stage(name, read_stage(folder_in(Storage.of_runs(settings.storage), entry["folder"])))
        tracking.summary(metrics, identity)
