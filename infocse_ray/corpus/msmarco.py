"""The Web Document corpus of the paper: documents of MS MARCO with the queries of TREC 2019's track, as released.

1. `msmarco-docs.tsv`: document id, URL, title, body; no header. A document is the body only, without its title.
2. `msmarco-doc*-qrels.tsv` (`query 0 document relevance`, relevant from 1) and `msmarco-doc*-queries.tsv` (query id,
   text): a document's queries are its counterparts; of several, each is a label.
3. A document with a query by the qrels of a `docdev` file is valid, with all its queries. The others are drawn by the
   hash of their id: test with probability corpus.test_fraction, else train; without a docdev file, valid too.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

from infocse_ray.corpus.kind import CorpusPlan, refuse_columns
from infocse_ray.corpus.labels import LabelTable, LabelWriter
from infocse_ray.corpus.read import Line, Piece, SourceRow, naming, open_lines, parse_tab_line, plain_name
from infocse_ray.corpus.schema import draw_split
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Corpus
from infocse_ray.storage.redact import redacted

_NAMES = {"tsv": "msmarco-docs.tsv", "queries": "msmarco-doc*-queries.tsv", "qrels": "msmarco-doc*-qrels.tsv"}
FILES = f"{', '.join(_NAMES.values())} (also .gz, .xz, .zst)"


def part_of(path: str) -> str:
    """`tsv`: documents; `queries`; `qrels`: which query is which document's."""
    return next((part for part, pattern in _NAMES.items() if fnmatch(plain_name(path), pattern)), "")


def _is_dev(path: str) -> bool:
    return "docdev" in plain_name(path)


def plan(corpus: Corpus, files: dict[str, list[str]]) -> CorpusPlan:
    """Queries and qrels go together; without both, no document has a counterpart, which is said."""
    refuse_columns(corpus)
    columns = {"id": "docid", "text": "body"}
    missing = [part for part in ("queries", "qrels") if part not in files]
    if len(missing) == 1:
        (there,) = {"queries", "qrels"} - set(missing)
        raise ValueError(
            redacted(f"corpus.source = {corpus.source!r}: {files[there][0]} but no {_NAMES[missing[0]]}; add it, or ")
            + "leave both out for a corpus without labels"
        )
    if missing:
        say(f"corpus.source: neither {_NAMES['queries']} nor {_NAMES['qrels']}: no document has a counterpart")
        return CorpusPlan(columns)
    columns["counterpart"] = "query"
    if any(map(_is_dev, files["qrels"])):
        columns["split"] = "docdev"
    return CorpusPlan(columns)


def labels(companions: list[Piece], corpus: Corpus) -> LabelTable:
    """Queries by document id."""
    writer = LabelWriter()
    queries: dict[str, str] = {}
    places: dict[str, tuple[str, int]] = {}
    for piece in (piece for piece in companions if piece.kind == "queries"):
        for _, number, line in _lines(piece):
            cells, reason = parse_tab_line(line)
            if cells is None or len(cells) < 2 or not (query_id := cells[0].strip()):
                writer.line(None, piece.uri, number, reason or "query not of 2 columns")
            elif not (text := " ".join(" ".join(cells[1:]).split())):
                writer.line(None, piece.uri, number, "query without text")
            elif query_id in queries and queries[query_id] != text:
                writer.line(None, piece.uri, number, "query of an id that another has")
            else:
                queries[query_id] = text
                places.setdefault(query_id, (piece.uri, number))
    for piece in (piece for piece in companions if piece.kind == "qrels"):
        for _, number, line in _lines(piece):
            cells, reason = parse_tab_line(line)
            match " ".join(cells or ()).split():
                case [query_id, _, doc_id, relevance] if _is_whole(relevance):
                    if int(relevance) <= 0:
                        places.pop(query_id, None)  # judged, and rightly no label
                    elif query_id not in queries:
                        writer.line(doc_id, piece.uri, number, "qrels line of a missing query")
                    else:
                        places.pop(query_id, None)
                        writer.add(doc_id, doc_id, queries[query_id], "valid" if _is_dev(piece.uri) else None)
                        writer.line(doc_id, piece.uri, number, "qrels line of a missing document", label=True)
                case _:
                    writer.line(None, piece.uri, number, reason or "qrels line not of `query 0 document relevance`")
    for uri, number in places.values():
        writer.line(None, uri, number, "query without a qrels line")
    return writer.labels()


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < 10


def _lines(piece: Piece) -> Iterator[Line]:
    with naming(piece.uri):
        yield from open_lines(piece)


def rows(piece: Piece, columns: dict[str, str], corpus: Corpus, labels: LabelTable | None) -> Iterator[SourceRow]:
    """A document a line; a tab in the body is white space like others."""
    for start, number, line in _lines(piece):
        cells, reason = parse_tab_line(line)
        if cells is None or len(cells) < 4:
            yield SourceRow(start, None, reason or "document not of 4 columns", number)
            continue
        doc_id = cells[0].strip()
        values: dict[str, Any] = {"id": doc_id, "text": "\t".join(cells[3:])}
        label = labels.find(doc_id) if labels is not None else None
        if label is not None:
            values["counterpart"] = label.counterparts
        if "split" in columns:
            values["split"] = label.split if label is not None and label.split else _drawn(doc_id, corpus)
        yield SourceRow(start, values, None, number)


def _drawn(doc_id: str, corpus: Corpus) -> str:
    """The split of a document that no dev query is of, where the dev queries are the validation."""
    return draw_split(doc_id, 0.0, corpus.test_fraction)
