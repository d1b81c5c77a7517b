"""List the runs of a storage: command, state, when it was last written, size, and the verdict of finished ones.

A run is `finished`; `under way`, with the driver that is at work on it; or `stopped`: the command that started it goes
on. At the end is what all of it takes, and the folders that runs share.

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
