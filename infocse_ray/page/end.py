"""The pages that a run with clusters ends with: the explorer, then the report, which links to it."""

from __future__ import annotations

from infocse_ray.explorer.explore import explore_after
from infocse_ray.page.write import end_with_page
from infocse_ray.settings import Settings


def end_with_pages(settings: Settings) -> str | None:
    """Make both; a page that fails is a warning, never a failed run.

    Args:
        settings: of the run, which is finished.

    Returns:
        The report's path or URI; None where it couldn't be written.
    """
    explore_after(settings)
    return end_with_page(settings.storage, settings.name)
