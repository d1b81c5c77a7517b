"""Make a finished run's cluster explorer again: a page that shows what was put together, iteration by iteration.

`infocse pretrain`, `plusplus` and `demo` end with it: <storage>/<name>/explorer.html, one file that a browser opens
without a network, with some 200 documents drawn by the run's seed. This command adds documents by id, or draws more.
Sentences are embedded again by the encoder that annotated each iteration; the run itself isn't changed, but for its
report.html, which links to the explorer and has its figures.

Example:
  infocse explorer news --storage runs --ids article-17,article-99
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_job
from infocse_ray.settings.explorer import ExploreRun


def main(argv: Sequence[str] | None = None, prog: str = "infocse explorer") -> int:
    """Run it; the exit status."""
    run_job(ExploreRun, argv, prog, __doc__ or "", _work, ("name", "storage", "ids", "documents"), unnamed="name")
    return 0


def _work(settings: ExploreRun) -> None:
    from infocse_ray.explorer.explore import explore
    from infocse_ray.page.write import end_with_page

    explore(settings)
    end_with_page(settings.storage, settings.name)
