"""What the other browser tests rely on: that the page they look through takes down what went wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from tests.browser.page import LOOKS, BrowserPage, Look


def _page(folder: Path, body: str) -> Path:
    file = folder / "page.html"
    file.write_text(f'<!doctype html><html lang="en"><title>Page</title><main><h1>Page</h1>{body}</main></html>')
    return file


def test_a_quiet_page_passes(browser_page: BrowserPage, tmp_path: Path):
    browser_page.open(_page(tmp_path, "<p>Text</p>"))
    browser_page.assert_quiet()
    browser_page.assert_fits()
    assert browser_page.axe_findings() == []


@pytest.mark.parametrize(
    "body",
    [
        "<script>console.error('wrong')</script>",
        "<script>throw new Error('wrong')</script>",
        "<script>fetch('http://127.0.0.1:9/asked').catch(() => 0)</script>",
        "<img src='http://127.0.0.1:9/asked' alt='A picture'>",
    ],
)
def test_what_goes_wrong_is_taken_down(browser_page: BrowserPage, tmp_path: Path, body: str):
    browser_page.open(_page(tmp_path, body)).wait_for_timeout(100)
    with pytest.raises(AssertionError):
        browser_page.assert_quiet()


def test_axe_and_width_are_looked_at(browser_page: BrowserPage, tmp_path: Path):
    browser_page.open(_page(tmp_path, "<button></button><div style='width: 3000px'>wide</div>"))
    assert any("button-name" in finding for finding in browser_page.axe_findings())
    with pytest.raises(AssertionError, match="3"):
        browser_page.assert_fits()


@pytest.mark.parametrize("browser_page", LOOKS, indirect=True)
def test_scheme_and_viewport(browser_page: BrowserPage, tmp_path: Path, request: pytest.FixtureRequest):
    look = request.node.callspec.params["browser_page"]
    assert isinstance(look, Look)
    page = browser_page.open(_page(tmp_path, ""), "doc=a")
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == (look.scheme == "dark")
    assert page.evaluate("window.innerWidth") == look.viewport[0]
    assert page.evaluate("location.hash") == "#doc=a"
