"""Find what no run of a storage refers to: stages, corpora, encoders, evaluations, what is half-written, with its size.

Nothing is changed without --yes. With --runs NAME the run itself goes too, and what only it referred to. What a driver
at work holds or may need is never removed. What `infocse prepare` and `infocse evaluate` left belongs to no run: it is
listed, and would be made again.

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
    """Run it; the exit status, 1 where something is in use by now."""
    return 1 if run_at_once(Clean, argv, prog, __doc__ or "", _work, _ESSENTIALS) else 0


def _work(settings: Clean) -> int:
    from infocse_ray.loop.unreferred import clean

    return clean(settings)
