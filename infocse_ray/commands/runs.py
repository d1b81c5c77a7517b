"""List the runs in a storage: command, state, time of the last change, size, and the verdict of finished ones.

A run is `finished`; `under way`, with the driver (the process that leads it) named; or `stopped`, and then the command
that started it resumes it. The last lines give the size of the whole storage and of the folders that runs share.

Example:
  infocse runs --storage s3://bucket/runs
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_at_once
from infocse_ray.settings.commands import ListRuns


def main(argv: Sequence[str] | None = None, prog: str = "infocse runs") -> int:
    """Run it; the exit status."""
    run_at_once(ListRuns, argv, prog, __doc__ or "", _work, ("storage",))
    return 0


def _work(settings: ListRuns) -> None:
    from infocse_ray.loop.listed import list_runs

    list_runs(settings)
