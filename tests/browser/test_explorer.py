"""The explorer's page in a browser, from a file: clicked through, searched, by keys, by address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from playwright.sync_api import Page, expect

from infocse_ray.explorer.page import render
from tests.browser.page import LOOKS, BrowserPage
from tests.unit.explorer.contents import EVIL, content, document


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("explorer") / "explorer.html"
    file.write_bytes(render(content()))
    return file


def title(page: Page) -> str:
    return page.locator("#title").inner_text()


def badges(page: Page) -> list[str]:
    return page.locator("#sentences .badge").all_text_contents()


@pytest.mark.parametrize("browser_page", LOOKS, indirect=True)
def test_it_is_legible_to_all_and_asks_for_nothing(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file)
    for step in range(3):
        assert browser_page.axe_findings() == []
        browser_page.assert_fits()
        if step < 2:
            page.get_by_role("button", name="Next").click()
    page.get_by_text("Table of the").click()
    page.get_by_label("Search").fill("ship")
    assert browser_page.axe_findings() == []
    browser_page.assert_fits()
    browser_page.assert_quiet()


def test_documents_by_buttons_and_keys(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file)
    assert title(page) == "doc-sea"
    expect(page.get_by_role("button", name="Previous")).to_be_disabled()
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#title")).to_have_text("doc court/1+1=2&more")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#title")).to_have_text(EVIL)
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    expect(page.locator("#place")).to_have_text("3 of 3")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#title")).to_have_text("doc court/1+1=2&more")
    page.go_back()
    expect(page.locator("#title")).to_have_text(EVIL)
    page.get_by_label("Search").press("ArrowLeft")  # which moves in what is typed
    assert title(page) == EVIL
    browser_page.assert_quiet()


def test_clusters_and_edges_of_each_iteration(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file)
    assert badges(page) == ["cluster A", "cluster A", "cluster A", "alone·", "cluster A"]
    expect(page.locator("#summary")).to_have_text("5 sentences, 1 cluster of two or more, 3 pairs: 2 kept, 1 chained")
    expect(page.locator("#sentences li").nth(4)).to_contain_text("reads like sentence 1")
    expect(page.locator("#sentences li").nth(2)).to_contain_text("joined with 1 (0.90), 2 (0.50)")
    expect(page.get_by_role("img")).to_have_attribute(
        "aria-label", "2 edges between sentences: 2 and 3 (0.50), 1 and 3 (0.90). A table of all is below."
    )
    assert page.locator("#arcs path").count() == 2
    assert page.locator("#arcs path.new").count() == 1
    page.get_by_text("Table of the 2 edges").click()
    assert page.locator("#edge-rows td").all_text_contents() == [
        *("1 and 3", "0.90", "cluster A", "before"),
        *("2 and 3", "0.50", "cluster A", "new"),
    ]
    assert page.locator("#changes h4").all_inner_texts() == ["+ Gained: 2 pairs", "− Lost: 1 pair"]
    assert page.locator("#changes .kind").all_inner_texts() == [
        "1 and 2 · chained",
        "2 and 3 · kept, 0.50",
        "2 and 4 · kept, 0.10",
    ]
    page.get_by_label("1", exact=True).check(force=True)
    expect(page.locator("#changes")).to_contain_text("Iteration 1 is the first")
    assert badges(page) == ["cluster A", "cluster B", "cluster A", "cluster B", "cluster A"]
    assert "iteration=1" in page.url
    page.keyboard.press("ArrowRight")  # of the choice of iterations, which has the focus
    expect(page.get_by_label("2", exact=True)).to_be_checked()
    assert title(page) == "doc-sea"
    browser_page.assert_quiet()


def test_a_shorter_document_takes_less_room(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file)
    heights = []
    for _ in range(2):
        heights.append([page.locator(which).bounding_box() for which in ("#sentences", "#arcs")])
        page.keyboard.press("ArrowRight")
    (long, long_arcs), (short, short_arcs) = ([box["height"] if box else 0 for box in pair] for pair in heights)
    assert 0 < short < long
    assert short_arcs == pytest.approx(short, abs=2)
    assert long_arcs == pytest.approx(long, abs=2)


def test_search_over_all_documents(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file)
    page.get_by_label("Search").fill("A SHIP")
    expect(page.get_by_text("2 documents found")).to_be_visible()
    assert page.locator("#list strong").all_inner_texts() == ["doc-sea", "doc court/1+1=2&more"]
    assert page.locator("#sentences mark").all_inner_texts() == ["A ship"]
    page.get_by_role("link", name="court").click()
    expect(page.locator("#title")).to_have_text("doc court/1+1=2&more")
    expect(page.locator("#place")).to_have_text("2 of 2")
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    page.get_by_label("Search").fill("nowhere at all")
    expect(page.get_by_text("0 documents found")).to_be_visible()
    page.get_by_label("Search").fill("onerror")
    page.get_by_label("Search").press("Enter")
    expect(page.locator("#title")).to_have_text(EVIL)
    browser_page.assert_quiet()


def test_an_address_leads_to_a_document_and_an_iteration(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file, "doc=doc-sea&iteration=1")
    expect(page.locator("#changes")).to_contain_text("Iteration 1 is the first")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#title")).to_have_text("doc court/1+1=2&more")
    page.reload()
    expect(page.locator("#title")).to_have_text("doc court/1+1=2&more")
    expect(page.get_by_label("1", exact=True)).to_be_checked()
    page.goto(f"{file.as_uri()}#doc=nothing-like-it")
    expect(page.locator("#notes")).to_contain_text("There is no document “nothing-like-it” on this page")
    assert title(page) == "doc-sea"
    browser_page.assert_quiet()


def test_keys_that_are_pressed_in_one_go_all_count(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file)
    page.evaluate(
        "for (let i = 0; i < 2; i++) document.body.dispatchEvent("
        "new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))"
    )
    expect(page.locator("#title")).to_have_text(EVIL)


def test_a_corpus_of_programs_shows_as_text(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#title")).to_have_text(EVIL)
    texts = page.locator("#sentences .text").all_text_contents()
    assert texts[0].startswith("See <script>document.title = 'broken'</script> here.")
    assert texts[1].startswith("</script><img src=x onerror=alert(2)> & \u2028 more")
    assert page.locator("img, script").count() == 2  # its data and its own
    assert page.title() != "broken"
    expect(page.locator("#notes")).to_have_text("The first 2 of its 1,234 sentences are shown.")
    browser_page.assert_quiet()


def test_edges_that_come_out_otherwise_are_said(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file, "doc=doc+court%2F1%2B1%3D2%26more&iteration=2")
    expect(page.locator("#notes")).to_contain_text("give slightly different clusters")
    browser_page.assert_quiet()


def test_clusters_without_edges(browser_page: BrowserPage, tmp_path: Path):
    other = content()
    other["clustering"] = "kmeans"
    for one in other["documents"]:
        for found in one["iterations"].values():
            found["edges"] = []
    (tmp_path / "page.html").write_bytes(render(other))
    page = browser_page.open(tmp_path / "page.html")
    expect(page.locator("#summary")).to_have_text("5 sentences, 1 cluster of two or more, 3 pairs")
    expect(page.locator("#arcs")).to_be_hidden()
    expect(page.get_by_text("Table of the")).to_be_hidden()
    assert page.locator("#changes .kind").all_inner_texts() == ["1 and 2", "2 and 3", "2 and 4"]
    assert browser_page.axe_findings() == []
    browser_page.assert_quiet()


def test_brackets_of_one_sentence_are_in_each_other_and_do_not_cross(browser_page: BrowserPage, tmp_path: Path):
    edges = [[0, 1, 0.9], [0, 3, 0.6], [0, 5, 0.5], [1, 2, 0.7], [2, 5, 0.4], [4, 5, 0.8]]
    found = {"clusters": [0] * 6, "edges": edges}
    nested = content() | {"documents": [document("d", ["A sentence."] * 6, found, found)]}
    (tmp_path / "page.html").write_bytes(render(nested))
    page = browser_page.open(tmp_path / "page.html")
    lines = "[...document.querySelectorAll('#arcs path')].map((one) => [one.dataset.ends, one.getAttribute('d')])"
    drawn = {tuple(map(int, ends.split(","))): re.findall(r"[\d.]+", line) for ends, line in page.evaluate(lines)}
    tops, bottoms = ({ends: float(line[place]) for ends, line in drawn.items()} for place in (1, -2))
    # The farther the other end, the farther outside: above at the upper sentence, below at the lower one.
    assert tops[0, 5] < tops[0, 3] < tops[0, 1]
    assert bottoms[4, 5] < bottoms[2, 5] < bottoms[0, 5]
    # What ends at a sentence is above what begins there.
    assert bottoms[0, 1] < tops[1, 2]


def test_edges_that_come_out_otherwise_count_no_pairs_that_there_are_none_of(browser_page: BrowserPage, tmp_path: Path):
    found = {"clusters": [0, 0, 0, 1], "edges": [[0, 1, 0.9], [1, 3, 0.6], [2, 3, 0.5]], "same": False}
    other = content() | {"documents": [document("d", ["A sentence."] * 4, found, found)]}
    (tmp_path / "page.html").write_bytes(render(other))
    page = browser_page.open(tmp_path / "page.html")
    expect(page.locator("#summary")).to_have_text("4 sentences, 1 cluster of two or more, 3 pairs: 1 kept, 2 chained")


@pytest.mark.parametrize("shift", [0, 1])
def test_excerpts_are_cut_between_letters(browser_page: BrowserPage, tmp_path: Path, shift: int):
    alone = {"clusters": [0], "edges": []}
    text = "x" * shift + "😀" * 60 + " ship" + "x" * shift + "😀" * 60
    (tmp_path / "page.html").write_bytes(render(content() | {"documents": [document("d", [text], alone, alone)]}))
    page = browser_page.open(tmp_path / "page.html")
    for wanted in ("ship", ""):
        page.get_by_label("Search").fill(wanted)
        excerpt = page.locator("#list span").inner_text()
        assert set(excerpt) <= {*"… shipx😀"}
        assert "😀" in excerpt
