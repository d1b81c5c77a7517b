"""Many queries, or documents that ask, from a file, and a file of what they found: for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from infocse_ray.corpus.read import READ_ERRORS, Piece, open_lines, parse_json_line, reader_of
from infocse_ray.corpus.sentences import given_sentences
from infocse_ray.search.hit import Hit
from infocse_ray.search.metadata import as_json
from infocse_ray.settings.text import is_utf8
from infocse_ray.storage.errors import explanation
from infocse_ray.storage.redact import redacted

RESULTS = "results.jsonl"
_QUERIES = "JSON Lines (.jsonl) with `text`, and perhaps `_id` or `id`, or text (.txt) with a query a line"
_DOCUMENTS = (
    "JSON Lines (.jsonl) with `text`, a text or a list of sentences, and perhaps `_id` or `id`, or text (.txt) with a "
    "document a line"
)
_One = TypeVar("_One")


class Query(NamedTuple):
    """One of a file."""

    query_id: str
    text: str | None
    """None: `query_id` is a document's, to which others are similar."""


class Document(NamedTuple):
    """One of a file, to which others are similar."""

    doc_id: str
    text: str | list[str]
    """Or its sentences."""


def read_queries(uri: str) -> list[Query]:
    """Read a file of queries.

    Args:
        uri: JSON Lines as BEIR's queries.jsonl, or text with a query a line; also .gz, .xz, .zst. Where a line has
            no id, it is its number, from 1.

    Raises:
        ValueError: one line: it isn't there, or is another kind of file, a line is no query, or there is none.
        StorageUnavailable: the object store failed beyond all retries.
    """
    return [Query(*one) for one in _read(uri, "queries", "query", _QUERIES, _one_text)]


def read_documents(uri: str) -> list[Document]:
    """Read a file of documents, as `read_queries` does; the text of a line of JSON may be a list of sentences."""
    return [Document(*one) for one in _read(uri, "documents", "document", _DOCUMENTS, _text_or_sentences)]


def _read(
    uri: str, setting: str, unit: str, kinds: str, usable: Callable[[object], _One | None]
) -> list[tuple[str, _One]]:
    """Id and text of each line that isn't empty."""
    where = redacted(f"{setting} = {uri!r}")
    if (kind := reader_of(uri)) not in ("jsonl", "text"):
        raise ValueError(f"{where}: give {kinds}")
    read: dict[str, _One] = {}
    try:
        for line in open_lines(Piece(uri, kind, 0, 0, 2**62)):
            its, text = _row(line.data, kind == "jsonl")
            its, text = str(line.number) if its is None else its, usable(text)
            if its in read:
                raise ValueError(f"{where}: line {line.number}: another {unit} has the id {its!r}")
            if text is None:
                raise ValueError(f"{where}: line {line.number} is no {unit}; give {kinds}")
            read[its] = text
    except FileNotFoundError:
        raise ValueError(f"{where}: no such file") from None
    except READ_ERRORS as error:
        raise explanation(error, where) or ValueError(redacted(f"{where}: can't be read: {error}")) from error
    if not read:
        raise ValueError(f"{where}: has no {unit}; give {kinds}")
    return list(read.items())


def _row(data: bytes, as_json: bool) -> tuple[str | None, object]:
    """Id of a line, None where it has none, and its text, whatever that is."""
    if not as_json:
        try:
            return None, data.decode("utf-8-sig").strip() or None
        except UnicodeDecodeError:
            return None, None
    row: dict[str, Any] = parse_json_line(data)[0] or {}
    its = row.get("_id", row.get("id"))
    return None if its is None else str(its), row.get("text")


def _one_text(text: object) -> str | None:
    return text if isinstance(text, str) and text.strip() and is_utf8(text) else None


def _text_or_sentences(text: object) -> str | list[str] | None:
    if not isinstance(text, list):
        return _one_text(text)
    sentences = [one for one in text if isinstance(one, str) and is_utf8(one)]
    return sentences if len(sentences) == len(text) and given_sentences(sentences) else None


def lines_of(queries: Iterable[Query], results: Iterable[list[Hit]]) -> Iterator[bytes]:
    """A line of JSON for each result: `query_id`, `query`, then what the result has (`Hit`), but its passage.

    Where a document asked, `query` is null.
    """
    for query, hits in zip(queries, results, strict=True):
        for hit in hits:
            found = hit._asdict()
            del found["passage"]
            if hit.metadata is None:
                del found["metadata"]
            else:
                found["metadata"] = as_json(hit.metadata)
            row = {"query_id": query.query_id, "query": query.text, **found}
            yield (json.dumps(row, ensure_ascii=False) + "\n").encode()
