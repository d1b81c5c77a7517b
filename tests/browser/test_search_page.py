"""The search page in a browser: two encoders side by side, by mouse and keyboard, with hostile documents."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from infocse_ray.errors import NoSuchDocument
from infocse_ray.search.hit import Hit
from infocse_ray.search.server import SearchServer
from infocse_ray.settings.search import Search

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from tests.browser.page import LOOKS, BrowserPage

EVIL = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
TITLES = {"a": "The old harbour", "b": "Tides and waves", "c": EVIL, "d": "A judge", "e": "Bread"}


class Listed:
    """An index that gives its documents in one order, whatever is asked."""

    approximate = False
    words, bm25 = 0.0, None
    best_sentence, best = 0.0, None
    passage = None
    metadata = None
    number = None

    def __init__(self, name: str, order: str) -> None:
        self.name, self.order = name, order

    def __len__(self) -> int:
        return len(self.order)

    def search(self, query: str, top: int, exact: bool, where: str | None) -> list[Hit]:
        return [
            Hit(
                rank,
                doc,
                self.number,
                TITLES[doc],
                f"{TITLES[doc]} {query} " + "and more of it " * 30,
                1 - rank / 10,
                self.bm25,
                best_sentence=self.best,
                metadata=self.metadata,
            )
            for rank, doc in enumerate(self.order[:top], 1)
        ]

    def like(self, doc_id: str, top: int, exact: bool, where: str | None) -> list[Hit]:
        if doc_id not in TITLES:
            raise NoSuchDocument(doc_id)
        return [hit for hit in self.search("it", 9, exact, where) if hit.doc_id != doc_id][:top]

    def title_of(self, doc_id: str) -> str:
        return TITLES[doc_id]

    def with_passages(self, query: str, hits: list[Hit]) -> list[Hit]:
        return [hit._replace(passage=self.passage) for hit in hits]


@pytest.fixture
def url() -> Iterator[str]:
    sides = [Listed("all-MiniLM-L6-v2", "abcde"), Listed("runs/news/model", "cabed")]
    settings = Search(index="i", serve=True, port=0, top=3)
    with SearchServer(sides, settings) as server:  # pyright: ignore[reportArgumentType]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("browser_page", LOOKS, indirect=True)
def test_results_stand_side_by_side_and_say_what_moved(browser_page: BrowserPage, url: str):
    page = browser_page.page
    page.goto(url)
    assert browser_page.axe_findings() == []
    page.get_by_label("Query").fill("high <b>water</b>")
    page.keyboard.press("Enter")
    before, after = page.get_by_role("region", name="Before"), page.get_by_role("region", name="After")
    after.locator("li").last.wait_for()
    assert after.locator("h3").all_inner_texts() == [TITLES[doc] for doc in "cab"]
    assert before.locator(".moved").all_inner_texts() == ["▼ down to 2", "▼ down to 3", "▲ up to 1"]
    assert after.locator(".moved").all_inner_texts() == ["▲ up from 3", "▼ down from 1", "▼ down from 2"]
    assert "3 results for “high <b>water</b>”" in page.get_by_role("status").inner_text()
    assert "<b>water</b>" in after.locator("p").first.inner_text()
    assert page.title() != "owned"
    assert browser_page.axe_findings() == []
    browser_page.assert_fits()
    browser_page.assert_quiet(url)


def test_the_keyboard_is_enough(browser_page: BrowserPage, url: str):
    page = browser_page.page
    page.goto(f"{url}?q=tide")
    page.locator("#sides li").first.wait_for()
    page.locator("h1").click()
    page.keyboard.press("j")
    page.keyboard.press("j")
    focused = page.locator("#sides li:focus")
    assert focused.locator("h3").inner_text() == TITLES["b"]
    assert page.locator("#sides li.twin h3").all_inner_texts() == [TITLES["b"]]
    page.keyboard.press("o")
    assert focused.locator(".moved").inner_text() == "▼ down from 2", "it is the one in the other list"
    page.keyboard.press("k")
    assert focused.locator("h3").inner_text() == TITLES["a"]
    page.keyboard.press("/")
    page.keyboard.type(" again")
    page.keyboard.press("Enter")
    page.get_by_text("3 results for “tide again”").wait_for()
    page.go_back()
    page.get_by_text("3 results for “tide”").wait_for()
    browser_page.assert_quiet(url)


def test_words_are_shown_where_they_count(browser_page: BrowserPage, url: str, monkeypatch):
    page = browser_page.page
    page.goto(f"{url}?q=tide")
    assert page.locator(".similarity").first.inner_text() == "similarity 0.900"
    monkeypatch.setattr(Listed, "words", 0.4)
    monkeypatch.setattr(Listed, "bm25", 7.25)
    page.reload()
    page.get_by_text("similarity 0.900, words 7.3").first.wait_for()
    assert "exact search by vectors and words, which count 0.4" in page.locator("#about").inner_text()
    browser_page.assert_fits()


@pytest.mark.parametrize("browser_page", LOOKS, indirect=True)
def test_the_sentence_that_fits_best_is_shown_and_marked_in_the_text(browser_page: BrowserPage, url: str, monkeypatch):
    page = browser_page.page
    monkeypatch.setattr(Listed, "passage", "more of it and more")
    page.goto(f"{url}?q=%3Cb%3Etide%3C/b%3E")
    first = page.locator("#sides li").first
    assert first.locator("p").first.inner_text() == "… more of it and more"
    first.get_by_text("All of it").click()
    assert first.locator("mark").all_inner_texts() == ["more of it and more"]
    whole = first.locator("details p").inner_text()
    assert whole.startswith("<b>tide</b> and more of it and more")
    assert browser_page.axe_findings() == []
    browser_page.assert_fits()
    monkeypatch.setattr(Listed, "passage", "The old harbour")  # which is the title
    page.reload()
    assert page.locator("#sides li p").first.inner_text().startswith("<b>tide</b> and more")


@pytest.mark.parametrize("browser_page", LOOKS, indirect=True)
def test_metadata_is_shown_and_only_addresses_of_the_web_can_be_followed(
    browser_page: BrowserPage, url: str, monkeypatch
):
    page = browser_page.page
    metadata = {
        "url": f"https://example.org/{'long/' * 60}",
        "evil": "javascript:document.title='owned'",
        "<b>name</b>": EVIL,
        "tags": ["sea", "harbour"],
        "year": 2026,
        "none": None,
    }
    monkeypatch.setattr(Listed, "metadata", metadata)
    page.goto(f"{url}?q=tide")
    first = page.locator("#sides li").first
    first.wait_for()
    assert first.locator("dt").all_inner_texts() == ["url", "evil", "<b>name</b>", "tags", "year"]
    assert first.locator("dd").all_inner_texts()[2:] == [EVIL, "sea, harbour", "2026"]
    [link] = first.locator("dd a").all()
    assert link.get_attribute("href") == metadata["url"]
    assert link.get_attribute("rel") == "noopener noreferrer"
    assert page.title() != "owned"
    assert browser_page.axe_findings() == []
    browser_page.assert_fits()
    browser_page.assert_quiet(url)


@pytest.mark.parametrize("browser_page", LOOKS, indirect=True)
def test_each_document_leads_to_those_that_are_similar(browser_page: BrowserPage, url: str):
    page = browser_page.page
    page.goto(f"{url}?q=tide")
    links = page.get_by_role("link", name="Documents similar to")
    links.first.wait_for()
    assert links.count() == 6
    page.locator("#side-0 ~ ol .like").nth(2).click()
    page.get_by_text(f"3 documents similar to “{EVIL}” (c)").wait_for()
    assert page.locator("#query").input_value() == ""
    assert page.locator("#sides li h3").all_inner_texts()[:3] == ["The old harbour", "Tides and waves", "A judge"]
    assert page.title() == f"Similar to {EVIL} – Search"
    assert browser_page.axe_findings() == []
    browser_page.assert_fits()
    page.locator("#side-0 ~ ol .like").first.click()
    page.get_by_text("3 documents similar to “The old harbour” (a)").wait_for()
    page.go_back()
    page.get_by_text(f"3 documents similar to “{EVIL}” (c)").wait_for()
    page.fill("#query", "tide")
    page.keyboard.press("Enter")
    page.get_by_text("3 results for “tide”").wait_for()
    page.go_back()
    page.get_by_text(f"3 documents similar to “{EVIL}” (c)").wait_for()
    page.goto(f"{url}?like={'a' * 30}%20%26b")
    page.get_by_text("No results: one of the two indexes has no such document").wait_for()
    page.go_back()
    page.get_by_text(f"3 documents similar to “{EVIL}” (c)").wait_for()


def test_results_are_shown_again_behind_a_query_that_failed(browser_page: BrowserPage, url: str, monkeypatch):
    page = browser_page.page
    page.goto(f"{url}?like=c")
    page.get_by_text("3 documents similar to").wait_for()
    monkeypatch.setattr(Listed, "with_passages", None)
    page.fill("#query", "tide")
    page.keyboard.press("Enter")
    page.get_by_text("No results: the search failed").wait_for()
    page.go_back()
    page.get_by_text("3 documents similar to").wait_for()
    assert page.locator("#sides li").count() == 6


def test_a_long_title_is_cut_above_the_results(browser_page: BrowserPage, url: str, monkeypatch):
    monkeypatch.setitem(TITLES, "x" * 900, "y" * 3_000)
    page = browser_page.page
    page.goto(f"{url}?like={'x' * 900}")
    page.get_by_text(f"similar to “{'y' * 180} …” ({'x' * 180} …)").wait_for()
    assert page.title() == f"Similar to {'y' * 180} … – Search"


def test_sentences_lead_to_none(browser_page: BrowserPage, url: str, monkeypatch):
    monkeypatch.setattr(Listed, "number", 2)
    page = browser_page.page
    page.goto(f"{url}?q=tide")
    page.locator("#sides li").first.wait_for()
    assert page.locator(".like").count() == 0


def test_a_search_that_is_refused_says_so(browser_page: BrowserPage, url: str):
    page = browser_page.page
    page.goto(f"{url}?q={'x' * 10_001}")
    page.get_by_text("No results: give a query of 1 to 5,000 characters").wait_for()
    assert page.locator("#sides li").count() == 0
