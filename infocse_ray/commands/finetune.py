"""Fine-tune a sentence encoder on labelled examples: documents and their counterparts (headlines, queries, ...).

A document's vector, the mean of its sentences' vectors, is trained to find its counterpart among those of the batch's
other documents. The labels are in the column that corpus.counterpart names, or in the files of corpus.labels; documents
without labels are allowed. Training takes at most finetune.epochs passes and stops when validation no longer improves.
The best encoder is in <storage>/<name>/model, a folder for SentenceTransformer(...), with metrics.json beside it.

encoder.model is any encoder, such as the result of `infocse pretrain`. Settings of training without labels (annotate,
loop, plusplus, train.method, train.distillation and the section of a method) are not used, nor are train.batch_size,
learning_rate, warmup_steps, max_steps and max_tokens, nor validate.every, every_tokens and patience, in whose place
finetune has its own; train.similarity is.

After a crash the same command resumes; once the run is finished it does nothing.

Example:
  infocse finetune --name news-1000 --encoder.model runs/news/model --corpus.source 'news/*.parquet' \\
      --corpus.text body --corpus.counterpart headline --labels.train_size 1000
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infocse_ray.commands.job import run_job
from infocse_ray.settings import Settings
from infocse_ray.settings.unread import by_finetune

_ESSENTIALS = ("name", "encoder.model", "corpus.source", "corpus.text", "corpus.counterpart", "labels.train_size")


def main(argv: Sequence[str] | None = None, prog: str = "infocse finetune") -> int:
    """Run it; the exit status."""
    run_job(Settings, argv, prog, __doc__ or "", _work, _ESSENTIALS, unread=by_finetune)
    return 0


def _work(settings: Settings) -> dict[str, Any]:
    from infocse_ray.loop.plusplus import finetune
    from infocse_ray.page.write import end_with_page

    metrics = finetune(settings)
    end_with_page(settings.storage, settings.name)
    return metrics
