"""Look at the pairs an encoder would train on: what IDC makes of a corpus with it, before any training.

Takes some documents of the corpus, clusters each and compares kinds of pairs. `edges` and `chained` (of one cluster,
but no edge between them) are what InfoCSE trains on. `unrelated` is the share that is less alike than 1 in 20 pairs of
different documents: positives that can hardly be told from negatives. Then some of the trained pairs, from the least to
the most alike. Try other values of --k, --mutual and --min_edge_quantile before a long run.

Example:
  infocse pairs --model path/to/encoder --corpus.source news.parquet --corpus.text body --k 2
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_job
from infocse_ray.settings.commands import LookAtPairs

_ESSENTIALS = ("model", "corpus.source", "corpus.text", "k", "documents", "show")


def main(argv: Sequence[str] | None = None, prog: str = "infocse pairs") -> int:
    """Run it; the exit status."""
    run_job(LookAtPairs, argv, prog, __doc__ or "", _work, _ESSENTIALS)
    return 0


def _work(settings: LookAtPairs) -> None:
    from infocse_ray.annotate.shown import show_pairs

    show_pairs(settings)
