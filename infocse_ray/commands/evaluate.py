"""Score an encoder on a corpus, or compare two: every document must find its counterparts among those of all documents.

A counterpart is a text that belongs to the document, such as its headline. A document's vector is the mean of that
of its whole text and of its sentences', unless --reading says else. Prints Recall@5/10/20 and MRR with 95 % intervals,
and writes them and the rank of every question below <storage>/evaluations. Without a counterpart column, one sentence
is taken out of each document, which must find it. With --compare a second encoder answers the same questions: prints
which is better, by how much, and examples; comparison.json there has the verdict, as metrics.json of a run does.

With --suite the questions come from elsewhere: scored sentence pairs (sts), folders in BEIR's layout beside BM25
(beir), tasks of the package mteb (mteb). With --compare the table shows what was forgotten: before, after, difference.

Example:
  infocse evaluate --model runs/news/model --corpus.source news.parquet --corpus.text body \\
      --corpus.counterpart headline --compare sentence-transformers/all-MiniLM-L6-v2
  infocse evaluate --model runs/news/model --compare sentence-transformers/all-MiniLM-L6-v2 \\
      --suite sts,beir --suite_path sts-dev.csv,scifact
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_job
from infocse_ray.settings.evaluate import Evaluate

_ESSENTIALS = (
    *("model", "compare", "corpus.source", "corpus.text", "corpus.counterpart", "reading", "split"),
    *("suite", "suite_path", "tasks"),
)


def main(argv: Sequence[str] | None = None, prog: str = "infocse evaluate") -> int:
    """Run it; the exit status."""
    run_job(Evaluate, argv, prog, __doc__ or "", _work, _ESSENTIALS)
    return 0


def _work(settings: Evaluate) -> None:
    if settings.suite:
        from infocse_ray.suites.judge import judge

        judge(settings)
    else:
        from infocse_ray.loop.scored import evaluate_encoders

        evaluate_encoders(settings)
