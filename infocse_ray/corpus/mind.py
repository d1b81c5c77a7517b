"""The News corpus of the paper: articles of the Microsoft News Dataset (MIND, Wu et al. 2020), as released.

1. `news.tsv` has eight columns and no header: news id, category, subcategory, title, abstract, URL, title entities,
   abstract entities. A quote is a letter like others.
2. MIND's crawler (`scrapy crawl msn -o msn.json`) writes the bodies, a JSON array with an item a line; run again it
   appends another array. An item's `nid` is the last part of the URL, `body` a list of pieces of text.
3. A body is a document, its news id the document's, its title the headline to find; nothing else of the row is used.

The folders train, dev and test of MIND hold overlapping news and are periods of clicks, not splits of news: give all,
the splits are drawn. Crawled bodies may be in files .json, .jsonl or .jl, of any name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from infocse_ray.corpus.kind import CorpusPlan, refuse_columns
from infocse_ray.corpus.labels import LabelTable, LabelWriter
from infocse_ray.corpus.read import Piece, SourceRow, naming, open_lines, parse_json_line, parse_tab_line, plain_name
from infocse_ray.settings import Corpus
from infocse_ray.storage.redact import redacted

_BODIES = (".json", ".jsonl", ".jl")
FILES = f"the crawler's bodies ({', '.join(_BODIES)}) and news.tsv (all also .gz, .xz, .zst)"
_NEWS_COLUMNS = 8


def part_of(path: str) -> str:
    """`jsonl`: bodies; `news`: ids, titles and URLs."""
    name = plain_name(path)
    return "news" if name == "news.tsv" else "jsonl" if name.endswith(_BODIES) else ""


def plan(corpus: Corpus, files: dict[str, list[str]]) -> CorpusPlan:
    """Without news.tsv a body has neither an id nor a headline, so that it is an error."""
    refuse_columns(corpus)
    if "news" not in files:
        raise ValueError(
            redacted(f"corpus.source = {corpus.source!r}: bodies but no news.tsv; add the one they were crawled for, ")
            + "it has their ids and headlines"
        )
    return CorpusPlan({"id": "news id", "text": "body", "counterpart": "title"}, arrays=False)


def labels(companions: list[Piece], corpus: Corpus) -> LabelTable:
    """Headlines by the `nid` of the crawler; news of one URL are one document, under the id that comes first."""
    writer = LabelWriter()
    for piece in companions:
        with naming(piece.uri):
            for _, number, line in open_lines(piece):
                cells, reason = parse_tab_line(line)
                if cells is None or len(cells) != _NEWS_COLUMNS:
                    writer.line(None, piece.uri, number, reason or f"news not of {_NEWS_COLUMNS} columns")
                    continue
                news_id, title, nid = cells[0].strip(), cells[3].strip(), _nid_of(cells[5])
                if not news_id or not nid:
                    writer.line(news_id or None, piece.uri, number, "news without an id or a URL")
                    continue
                known = nid in writer
                doc_id = writer.add(nid, news_id, title or None)
                if not known:  # the news of train, dev and test overlap
                    writer.line(doc_id, piece.uri, number, "news without a crawled body", label=True)
                if not title:
                    writer.line(doc_id, piece.uri, number, "news without a title")
    return writer.labels()


def _nid_of(url: str) -> str:
    """The name that the crawler gives a page: of .../mind/AAGH0ET.html and of .../ar-AAGH0ET?ocid=x, AAGH0ET."""
    return url.strip().partition("?")[0].rpartition("/")[2].partition(".")[0].rpartition("-")[2]


def rows(piece: Piece, columns: dict[str, str], corpus: Corpus, labels: LabelTable | None) -> Iterator[SourceRow]:
    """An item a line, whatever of the array's brackets and commas is on it."""
    assert labels is not None
    with naming(piece.uri):
        for start, number, line in open_lines(piece):
            # `][` where a second array was appended to the first.
            item = line.strip().strip(b"[],")
            if not item:
                continue
            values, reason = parse_json_line(item)
            if values is None:
                yield SourceRow(start, None, reason, number)
            elif not isinstance(nid := values.get("nid"), str) or not nid:
                yield SourceRow(start, None, "no nid", number)
            elif (label := labels.find(nid)) is None:
                yield SourceRow(start, None, "nid not in news.tsv", number)
            else:
                text = _text_of(values.get("body"))
                values = {"id": label.doc_id, "text": text, "counterpart": label.counterparts}
                yield SourceRow(start, values, None, number)


def _text_of(body: object) -> object:
    """A crawled body as one text; what is no text stays what it is.

    The crawler takes the text nodes of a page: a link ends one inside a sentence. Pages put white space or a
    punctuation mark there; where neither is, a paragraph ended, and a sentence with it.
    """
    if not isinstance(body, list) or not all(isinstance(node, str) for node in body):
        return body
    text = ""
    for node in body:
        inside = not text or text[-1].isspace() or re.match(r"[\s,.;:!?%)\]}’”…]|['\"](?:\s|$)", node)
        text += node if inside else "\n\n" + node
    return text
