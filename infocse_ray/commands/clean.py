"""List, and remove, what no run in a storage refers to: stages, corpora, encoders, evaluations, unfinished files.

Documents that were given from Python are among it. Nothing is changed without --yes. With --runs NAME that run is
removed too, together with what only it referred to. Nothing that a running driver (the process that leads a run) uses
or may need is removed. What `infocse prepare` and `infocse evaluate` wrote, and the corpus that `infocse embed`
tokenised, belong to no run: they are listed, and the same command would make them again. The output of `infocse embed`
is never removed, unless it is in a run that is.

Examples:
  infocse clean
  infocse clean --storage runs --runs news-old --yes
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_at_once
from infocse_ray.settings.commands import Clean

_ESSENTIALS = ("storage", "runs", "yes")


def main(argv: Sequence[str] | None = None, prog: str = "infocse clean") -> int:
    """Run it; the exit status, 1 where something is in use."""
    return 1 if run_at_once(Clean, argv, prog, __doc__ or "", _work, _ESSENTIALS) else 0


def _work(settings: Clean) -> int:
    from infocse_ray.loop.unreferred import clean

    return clean(settings)
