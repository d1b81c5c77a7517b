"""The report page in a browser: light and dark, on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from infocse_ray.page.write import write_comparison, write_page
from infocse_ray.storage.folder import Storage
from tests.browser.page import LOOKS, BrowserPage
from tests.unit.page.runs import write_run


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of a run, and of two compared."""
    root = Storage.open(str(tmp_path_factory.mktemp("runs")))
    for name in ("news", "small"):
        write_run(root, name)
    return [Path(file.path) for file in (write_page(root, "news"), write_comparison(root, ["news", "small"]))]


@pytest.mark.parametrize("browser_page", LOOKS, indirect=True)
def test_it_is_quiet_and_accessible_and_fits(browser_page: BrowserPage, pages: list[Path]):
    for file in pages:
        page = browser_page.open(file)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert browser_page.axe_findings() == []
        browser_page.assert_fits()
    browser_page.assert_quiet()


def test_the_keyboard_reaches_sections_and_figures(browser_page: BrowserPage, pages: list[Path]):
    page = browser_page.open(pages[0])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
    page.locator("nav a", has_text="Training curves").focus()
    page.keyboard.press("Enter")
    assert page.locator("#training h2").bounding_box()["y"] < 300  # pyright: ignore[reportOptionalSubscript]
    page.locator("#training summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#training figure").first.locator("td").first.is_visible()
    browser_page.assert_quiet()


def test_texts_of_a_corpus_run_nothing(browser_page: BrowserPage, pages: list[Path]):
    page = browser_page.open(pages[0])
    assert page.locator("script").count() == 0
    assert page.get_by_text('<script>alert("x")</script>').count() >= 3
    browser_page.assert_quiet()
