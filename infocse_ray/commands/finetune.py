"""Fine-tune a sentence encoder on labelled examples: documents and their counterparts (headlines, queries, ...).

A document's vector, the mean of its sentences' vectors, is trained to find its counterpart among those of the batch's
other documents. Labels are the column that corpus.counterpart names, or the files that corpus.labels names; documents
without are no trouble. At most finetune.epochs passes, until validation stops growing; the best encoder comes back,
in <storage>/<name>/model, a folder for SentenceTransformer(...); figures are in metrics.json beside it.

encoder.model is any encoder, what pretrain made of one among them. Settings of training without labels (annotate,
loop, train.method and its own) are not used; train.similarity is.

The same command goes on after a crash, and does nothing once the run is finished.

Example:
  infocse finetune --name news-1000 --encoder.model runs/news/model --corpus.source 'news/*.parquet'
      --corpus.text body --corpus.counterpart headline --labels.train_size 1000
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infocse_ray.commands.job import run_job
from infocse_ray.settings import Settings

_ESSENTIALS = ("name", "encoder.model", "corpus.source", "corpus.text", "corpus.counterpart", "labels.train_size")


def main(argv: Sequence[str] | None = None, prog: str = "infocse finetune") -> int:
    """Run it; the exit status."""
    run_job(Settings, argv, prog, __doc__ or "", _work, _ESSENTIALS)
    return 0


def _work(settings: Settings) -> dict[str, Any]:
    from infocse_ray.loop.plusplus import finetune

    return finetune(settings)
