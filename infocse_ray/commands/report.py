"""Make the report page of a run again, or one page that compares several runs.

Every run ends with its page, <storage>/NAME/report.html: verdict, scores, training curves, whitening, corpus, time,
settings. A run that isn't finished has a page of what there is so far. Of several runs the page is
<storage>/report-NAME+NAME.html. A page is one file, which needs no network.

Examples:
  infocse report news --storage runs
  infocse report news news-large --storage s3://bucket/runs
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_at_once
from infocse_ray.settings.report import ReportPage

_ESSENTIALS = ("names", "storage")


def main(argv: Sequence[str] | None = None, prog: str = "infocse report") -> int:
    """Run it; the exit status."""
    run_at_once(ReportPage, argv, prog, __doc__ or "", _work, _ESSENTIALS, unnamed="names")
    return 0


def _work(settings: ReportPage) -> None:
    from infocse_ray.page.write import write_comparison, write_page
    from infocse_ray.runtime.progress import say
    from infocse_ray.storage.folder import Storage

    root = Storage.of_runs(settings.storage)
    if not root.exists():
        raise ValueError(f"storage = {settings.storage!r}: no such folder; name the one that runs were started with")
    several = len(settings.names) > 1
    file = write_comparison(root, settings.names) if several else write_page(root, settings.names[0])
    say(f"report: {file}")
