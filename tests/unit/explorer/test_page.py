"""The page as a file: it holds everything, and no text of a corpus gets out of its data."""

from __future__ import annotations

import base64
import hashlib
import json
from html.parser import HTMLParser
from typing import Any

import pytest

from infocse_ray.explorer.page import embedded, render
from tests.unit.explorer.contents import EVIL, content


class Elements(HTMLParser):
    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._inside = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = f"{tag}#{dict(attrs).get('id', '')}"

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside] = self.texts.get(self._inside, "") + data


@pytest.fixture(scope="module")
def page() -> Elements:
    return Elements(render(content() | {"name": "<b>news</b>"}))


def test_the_data_come_out_as_they_went_in(page: Elements):
    assert json.loads(page.texts["script#data"])["documents"] == content()["documents"]


def test_no_text_becomes_an_element(page: Elements):
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert not {"img", "b"} & {tag for tag, _ in page.tags}
    assert page.texts["title#"] == "Clusters of <b>news</b>"


@pytest.mark.parametrize("text", ["</script>", EVIL, "<!-- <script>", "\u2028 & \u2029", "é 漢 \x00"])
def test_json_in_a_script_element_has_no_letter_of_html(text: str):
    written = embedded({text: [text]})
    assert not {*"<>&\u2028\u2029"} & {*written}
    assert json.loads(written) == {text: [text]}


def test_nothing_is_asked_of_a_network(page: Elements):
    links = {value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")}
    assert links == {"data:,", "report.html", "#document"}


def test_the_policy_lets_this_script_and_style_in_and_no_other(page: Elements):
    metas: list[dict[str, Any]] = [attributes for tag, attributes in page.tags if tag == "meta"]
    [policy] = [one["content"] for one in metas if one.get("http-equiv") == "Content-Security-Policy"]
    for kind in ("script", "style"):
        digest = hashlib.sha256(page.texts[f"{kind}#"].encode()).digest()
        assert f"{kind}-src 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_small():
    assert len(render(content() | {"documents": []})) < 50_000
