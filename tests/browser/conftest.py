"""The system's Chromium, driven by Playwright: pages are opened and clicked through as a person would."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.page import BrowserPage

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = [
    "--no-sandbox",  # which Chromium has none of as root in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# Of a module, not of the session: while it lives, Playwright keeps an event loop running in this thread, in which
# other tests could start none.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    if (found := next(filter(None, map(shutil.which, _NAMES)), None)) is None:
        pytest.skip(f"there is no browser here: none of {', '.join(_NAMES)} is on the PATH")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def browser_page(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[BrowserPage]:
    """An empty page, light and wide unless the test is parametrised (indirectly) with a `Look`."""
    from tests.browser.page import BrowserPage, Look

    look: Look = getattr(request, "param", Look())
    width, height = look.viewport
    context = chromium.new_context(
        color_scheme="dark" if look.scheme == "dark" else "light",
        viewport={"width": width, "height": height},
        reduced_motion="reduce",
    )
    yield BrowserPage(context.new_page())
    context.close()
