"""Search a corpus that `infocse embed` embedded, or serve a page to search it with.

The index has the encoder that made it and the texts, so its folder is all that is needed. With --compare_index both
results are shown, those of the encoder before and after, and where each document was in the other list. The page is
served on this machine only, unless --host says otherwise; whoever reaches it reads the documents. For programs --output
gets the results as JSON, of one query or of all that a file has.

Example:
  infocse search --index news-vectors "trains that were late"
  infocse search --index news-vectors --compare_index news-vectors-before --serve
  infocse search --index news-vectors --where "metadata.day >= date '2026-01-31'" "trains that were late"
  infocse search --index news-vectors --like article-17
  infocse search --index news-vectors --queries queries.jsonl --output found
  infocse search --index news-vectors --documents today.jsonl --output related
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_job
from infocse_ray.settings.search import Search

_ESSENTIALS = (
    *("query", "index", "model", "compare_index", "top", "over", "words", "best_sentence", "serve"),
    *("where", "like", "queries", "documents", "output"),
)


def main(argv: Sequence[str] | None = None, prog: str = "infocse search") -> int:
    """Run it; the exit status."""
    run_job(Search, argv, prog, __doc__ or "", _work, _ESSENTIALS, unnamed="query")
    return 0


def _work(settings: Search) -> None:
    from infocse_ray.search.searched import search

    search(settings)
