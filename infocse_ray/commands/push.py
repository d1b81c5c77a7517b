"""Put an encoder into a repository of the Hugging Face hub: a run's model, or what `infocse export` wrote.

Before anything is sent the folder is loaded, its card checked and its files listed; what is no part of an encoder
(checkpoints, states of training, tables, logs) is refused. The token is taken from the variable HF_TOKEN.

Examples:
  infocse push --model runs/news/model --repo me/news-encoder --dry_run
  infocse push --model runs/news/model --repo me/news-encoder --private
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_job
from infocse_ray.settings.push import Push

_ESSENTIALS = ("model", "repo", "private", "revision", "dry_run")


def main(argv: Sequence[str] | None = None, prog: str = "infocse push") -> int:
    """Run it; the exit status."""
    run_job(Push, argv, prog, __doc__ or "", _work, _ESSENTIALS)
    return 0


def _work(settings: Push) -> None:
    from infocse_ray.export.push import push

    push(settings)
