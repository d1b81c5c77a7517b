"""The explorer's page in a browser, from a file: clicked through, searched, by keys, by address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from playwright.sync_api import Page, expect

from infocse_ray.explorer.page import render
from tests.browser.page import LOOKS, PHONE, BrowserPage, Look
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


def written(folder: Path, *documents: dict[str, Any]) -> Path:
    """A page of these documents."""
    (folder / "page.html").write_bytes(render(content() | {"documents": [*documents]}))
    return folder / "page.html"


def test_a_document_of_many_clusters_and_pairs(browser_page: BrowserPage, tmp_path: Path):
    size = 4 * 28
    none = {"clusters": [*range(size)], "edges": []}
    many = {"clusters": [n // 4 for n in range(size)], "edges": [[n, n + 1, 0.5] for n in range(size) if n % 4 < 3]}
    page = browser_page.open(written(tmp_path, document("d", [f"Sentence {n}." for n in range(size)], none, many)))
    letters = badges(page)[::4]
    assert letters[:2] + letters[24:] == [f"cluster {name}" for name in ("A", "B", "Y", "Z", "AA", "AB")]
    style = "([which, property]) => [...document.querySelectorAll(which)].map((one) => getComputedStyle(one)[property])"
    colours = page.evaluate(style, ["#sentences .badge", "backgroundColor"])[::4]
    assert len({*colours}) == 8
    assert colours[8:16] == colours[:8], "each has one"
    assert page.evaluate(style, ["#arcs path", "stroke"])[::3] == colours
    assert page.locator("#changes h4").all_inner_texts() == ["+ Gained: 168 pairs", "− Lost: 0 pairs"]
    assert page.locator("#changes li").count() == 51
    expect(page.locator("#changes li").last).to_have_text("and 118 pairs more")
    said = page.get_by_role("img").get_attribute("aria-label")
    assert said is not None
    assert said.startswith("84 edges between sentences: 1 and 2 (0.50), ")
    assert said.endswith(" and more. A table of all is below.")
    assert said.count(" (0.50)") == 20
    browser_page.assert_quiet()


def test_brackets_that_overlap_are_beside_each_other_and_say_how_similar_where_there_is_room(
    browser_page: BrowserPage, tmp_path: Path
):
    found = {"clusters": [0] * 4, "edges": [[0, 1, 1.0], [1, 2, 0.0], [0, 2, 0.25], [1, 3, 0.5]]}
    page = browser_page.open(written(tmp_path, document("d", ["A sentence."] * 4, found, found)))
    arcs = page.locator("#arcs path").all()
    left = {one.get_attribute("data-ends"): one.evaluate("one => one.getBBox().x") for one in arcs}
    assert left["0,1"] == left["1,2"] > left["0,2"] > left["1,3"]
    widths = [float(one.get_attribute("stroke-width") or 0) for one in arcs]
    assert sorted(widths) == [1.0, 1.6, 2.3, 3.5], "the more similar, the thicker"
    assert arcs[0].locator("title").text_content() == "1 and 2: 1.00"
    assert sorted(page.locator("#arcs text").all_text_contents()) == ["0.00", "0.25", "0.50", "1.00"]
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator("#arcs text")).to_have_count(0)
    assert page.locator("#arcs").evaluate("one => one.getBoundingClientRect().width") <= 84
    browser_page.assert_quiet()


def test_a_sentence_under_the_mouse_has_its_edges_alone_bright(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file)
    faint = page.locator("#arcs path.faint")
    page.locator("#sentences li").nth(1).hover()
    expect(faint).to_have_count(1)
    expect(faint).to_have_attribute("data-ends", "0,2")
    page.locator("h1").hover()
    expect(faint).to_have_count(0)


def test_a_new_edge_is_dashed_and_of_the_first_iteration_none_is(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file)
    expect(page.locator("#arcs path.new")).to_have_attribute("data-ends", "1,2")
    assert page.locator("#arcs path.new").evaluate("one => getComputedStyle(one).strokeDasharray") != "none"
    page.get_by_label("1", exact=True).check(force=True)
    expect(page.locator("#arcs path.new")).to_have_count(0)
    assert page.locator("#edge-rows tr td:last-child").all_text_contents() == ["–", "–"]


def test_where_one_is_is_said_by_title_list_and_links(browser_page: BrowserPage, file: Path):
    page = browser_page.open(file)
    assert page.title() == "doc-sea · Clusters of news"
    expect(page.locator("#rule")).to_have_text("An edge joins a sentence and the sentence most similar to it.")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#list a[aria-current]")).to_have_text(re.compile("^doc court"))
    page.keyboard.press("Alt+ArrowRight")  # which goes through the browser's history
    assert page.title() == "doc court/1+1=2&more · Clusters of news"
    page.get_by_label("1", exact=True).check(force=True)
    for link in page.locator("#list a").all():
        assert "iteration=1" in (link.get_attribute("href") or "")
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "document"
    assert page.title() == "doc court/1+1=2&more · Clusters of news", "the address is as it was"


@pytest.mark.parametrize("browser_page", [Look(viewport=PHONE)], indirect=True)
def test_what_is_found_is_shown_where_it_is_in_a_text(browser_page: BrowserPage, tmp_path: Path):
    alone = {"clusters": [0, 1], "edges": []}
    file = written(
        tmp_path,
        document("d", ["The first.", f"{'Far ' * 20}behind sails a ship. {'And ' * 20}"], alone, alone),
        document("e ship", ["İİİİ ships.", "שלום."], alone, alone),  # letters that are longer as small ones
    )
    page = browser_page.open(file)
    expect(page.get_by_role("link", name="e ship")).to_be_hidden()
    page.get_by_label("Search").fill("ship")
    expect(page.get_by_role("link", name="e ship")).to_be_visible()
    excerpt = page.locator("#list span").first
    assert re.fullmatch("… .{30}ship.{56} …", excerpt.inner_text())
    assert page.locator("#list mark").all_inner_texts() == ["ship", "ship"]
    page.get_by_role("link", name="e ship").click()
    expect(page.locator("#sentences li").first).to_contain_text("İİİİ ships.")
    expect(page.locator("#sentences mark")).to_have_count(0)
    expect(page.locator("#sentences .text").last).to_have_css("direction", "rtl")
    page.get_by_label("Search").fill("e ship")
    expect(page.get_by_text("1 document found")).to_be_visible()


def test_the_list_shows_the_document_that_the_page_does(browser_page: BrowserPage, tmp_path: Path):
    alone = {"clusters": [0], "edges": []}
    file = written(tmp_path, *(document(f"d{n}", ["A sentence."], alone, alone) for n in range(60)))
    page = browser_page.open(file, "doc=d50&iteration=2")
    expect(page.get_by_role("link", name="d50")).to_be_in_viewport()
    expect(page.get_by_role("link", name="d1", exact=False).first).not_to_be_in_viewport()
    assert page.evaluate("window.scrollY") == 0
