"""Adapt a sentence encoder to a corpus without labels (InfoCSE).

The encoder embeds every sentence of the corpus, clusters the sentences inside each document, trains on pairs of
sentences of one cluster, and starts over with what it became, until validation stops growing. The result is
<storage>/<name>/model, a folder for SentenceTransformer(...); figures are in metrics.json beside it.

Runs on a Ray it starts itself, on one that `ray start` started, or under `ray job submit`. The same command goes
on after a crash, and does nothing once the run is finished. --minutes 10 sizes its trainings to about so long.

Example:
  infocse pretrain --name news --encoder.model path/to/encoder
      --corpus.source 'news/*.parquet' --corpus.text body
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infocse_ray.commands.job import run_job
from infocse_ray.settings import Settings

_ESSENTIALS = ("name", "encoder.model", "corpus.source", "corpus.text", "corpus.counterpart", "storage")


def main(argv: Sequence[str] | None = None, prog: str = "infocse pretrain") -> int:
    """Run it; the exit status."""
    run_job(Settings, argv, prog, __doc__ or "", _work, _ESSENTIALS)
    return 0


def _work(settings: Settings) -> dict[str, Any]:
    from infocse_ray.loop.infocse import pretrain

    return pretrain(settings)
