"""A page in a headless browser that takes down what a finished page must not do: fail, or ask for anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Page, Request

PHONE, DESK = (390, 844), (1280, 900)
"""Viewports: width and height in CSS pixels."""


class Look(NamedTuple):
    """How the browser shows a page."""

    scheme: str = "light"
    viewport: tuple[int, int] = DESK


LOOKS = [
    pytest.param(Look(scheme, viewport), id=f"{scheme}-{viewport[0]}")
    for scheme in ("light", "dark")
    for viewport in (DESK, PHONE)
]
"""For `@pytest.mark.parametrize("browser_page", LOOKS, indirect=True)`."""


class BrowserPage:
    """A page, and what happened on it.

    Attributes:
        page: Playwright's.
        errors: what the console called an error or a warning, and exceptions that no script caught.
        requests: URLs that were asked for, other than those of files and of data.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(("file://", "data:")):
            self.requests.append(request.url)

    def open(self, file: Path, fragment: str = "") -> Page:
        """Open a file of this machine, from file://, at `#fragment` if one is given."""
        self.page.goto(file.absolute().as_uri() + (f"#{fragment}" if fragment else ""))
        return self.page

    def assert_quiet(self, served: str | None = None) -> None:
        """Nothing failed, and no request left the page, except to `served`: a URL's beginning, of a local server."""
        assert self.errors == []
        assert [url for url in self.requests if served is None or not url.startswith(served)] == []

    def assert_fits(self) -> None:
        """The page as a whole is no wider than the window; what must be wider scrolls by itself."""
        width, window = self.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert width <= window, f"the page is {width} px wide in a window of {window} px"

    def axe_findings(self) -> list[str]:
        """What axe-core finds serious or critical on the page as it is now: rule, help, and the elements."""
        found: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        return [
            f"{one['id']}: {one['help']}: {[node['html'] for node in one['nodes']]}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
