"""InfoCSE++: adapt a sentence encoder to a corpus of which a few documents are labelled.

Each round trains without labels, as pretrain does, and then fine-tunes the result, as finetune does; the next round
starts from the fine-tuned encoder. The rounds end when the fine-tuned validation score no longer improves. The result
is the best fine-tuned encoder, <storage>/<name>/model, a folder for SentenceTransformer(...); every round's zero-shot
and fine-tuned scores are in metrics.json beside it. With --plusplus.label_share 0.5 half of the examples of InfoCSE's
training are labelled ones, too; one round of it may be enough.

Each phase of each round is a stage: after a crash the same command resumes. It reuses what pretrain did with the same
settings in the same storage, and does nothing once the run is finished.

Example:
  infocse plusplus --name news-plusplus --encoder.model path/to/encoder \\
      --corpus.source 'news/*.parquet' --corpus.text body --corpus.counterpart headline --labels.train_size 1000
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infocse_ray.commands.job import run_job
from infocse_ray.settings import Settings
from infocse_ray.settings.unread import by_plusplus

_ESSENTIALS = ("name", "encoder.model", "corpus.source", "corpus.text", "corpus.counterpart", "labels.train_size")


def main(argv: Sequence[str] | None = None, prog: str = "infocse plusplus") -> int:
    """Run it; the exit status."""
    run_job(Settings, argv, prog, __doc__ or "", _work, _ESSENTIALS, unread=by_plusplus)
    return 0


def _work(settings: Settings) -> dict[str, Any]:
    from infocse_ray.loop.plusplus import plusplus
    from infocse_ray.page.end import end_with_pages

    metrics = plusplus(settings)
    end_with_pages(settings)
    return metrics
