"""Adapt a sentence encoder to a corpus without labels (InfoCSE).

The encoder embeds every sentence of the corpus, clusters the sentences inside each document and trains on pairs of
sentences from one cluster. This is repeated with the trained encoder until validation no longer improves. The result is
<storage>/<name>/model, a folder for SentenceTransformer(...); figures are in metrics.json beside it.

It starts Ray itself, or uses the one that `ray start` started, or runs under `ray job submit`. After a crash the same
command resumes; once the run is finished it does nothing. --minutes 10 fits training into about ten minutes.

Example:
  infocse pretrain --name news --encoder.model path/to/encoder \\
      --corpus.source 'news/*.parquet' --corpus.text body
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infocse_ray.commands.job import run_job
from infocse_ray.settings import Settings
from infocse_ray.settings.unread import by_pretrain

_ESSENTIALS = ("name", "encoder.model", "corpus.source", "corpus.text", "corpus.counterpart", "storage")


def main(argv: Sequence[str] | None = None, prog: str = "infocse pretrain") -> int:
    """Run it; the exit status."""
    run_job(Settings, argv, prog, __doc__ or "", _work, _ESSENTIALS, unread=by_pretrain)
    return 0


def _work(settings: Settings) -> dict[str, Any]:
    from infocse_ray.loop.infocse import pretrain
    from infocse_ray.page.end import end_with_pages

    metrics = pretrain(settings)
    end_with_pages(settings)
    return metrics
