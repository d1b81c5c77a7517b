"""What a finished run came to, shown to those who never got it: a server was away, or nobody had asked for it then."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from infocse_ray.errors import DamagedFile
from infocse_ray.loop.manifest import Manifest, folder_in
from infocse_ray.runtime.failures import one_line
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import read_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.tracking.remembered import Remembered
from infocse_ray.tracking.tracking import Tracking, check_sinks

_SECONDS = 15.0
"""How long a sink is waited for: the run is finished, and the same command tries again."""


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
    untold = [name for name in named if not Remembered(folder, name).knows(identity)]
    if not untold:
        return
    only = settings.tracking.model_copy(update={"sinks": untold})
    settings = settings.model_copy(update={"tracking": only})
    try:
        check_sinks(settings)
        # Without a note that can be written every command would begin a tracked run of its own.
        Storage.for_runs(settings.storage)
    except (ValueError, OSError) as error:
        say(f"note: {', '.join(untold)}: isn't shown what the run came to: {one_line(error)}")
        return
    say(f"{', '.join(untold)}: is shown what the run came to, which it hasn't been told")
    with Tracking(settings, job, folder, seconds=_SECONDS) as tracking:
        for name, entry in manifest.stages.items():
            with contextlib.suppress(FileNotFoundError, DamagedFile):  # it was removed since
                tracking.stage(name, read_stage(folder_in(Storage.of_runs(settings.storage), entry["folder"])))
        tracking.summary(metrics, identity)
