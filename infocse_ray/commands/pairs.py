"""Look at the pairs that an encoder would be trained on, before any training.

Takes some documents of the corpus, clusters the sentences of each (intra-document clustering, IDC) and compares kinds
of pairs. InfoCSE trains on two: `edges`, and `chained` pairs, which are in one cluster but linked only through other
sentences. `unrelated` is the share of pairs that are less similar than 1 in 20 pairs from different documents: such
positives can hardly be told from negatives. Then it prints some of the trained pairs, from the least to the most
similar. Try other values of --k before a long run.

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
