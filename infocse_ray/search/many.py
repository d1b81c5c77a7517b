"""Many queries, from a file, and a file of what they found: for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from infocse_ray.corpus.read import READ_ERRORS, Piece, open_lines, parse_json_line, reader_of
from infocse_ray.search.index import Hit
from infocse_ray.search.metadata import as_json
from infocse_ray.settings.text import is_utf8
from infocse_ray.storage.errors import explanation
from infocse_ray.storage.redact import redacted

RESULTS = "results.jsonl"
_KINDS = "JSON Lines (.jsonl) with `text`, and perhaps `_id` or `id`, or text (.txt) with a query a line"


class Query(NamedTuple):
    """One of a file."""

    query_id: str
    text: str | None
    """None: `query_id` is a document's, to which others are similar."""


def read_queries(uri: str) -> list[Query]:
    """Read a file of queries.

    Args:
        uri: JSON Lines as BEIR's queries.jsonl, or text with a query a line; also .gz, .xz, .zst. Where a line has
            no id, it is its number, from 1.

    Raises:
        ValueError: one line: it isn't there, or is another kind of file, a line is no query, or there is none.
        StorageUnavailable: the object store failed beyond all retries.
    """
    where = redacted(f"queries = {uri!r}")
    if (kind := reader_of(uri)) not in ("jsonl", "text"):
        raise ValueError(f"{where}: give {_KINDS}")
    queries: dict[str, Query] = {}
    try:
        for line in open_lines(Piece(uri, kind, 0, 0, 2**62)):
            query_id, text = _query(line.data, kind == "jsonl")
            query_id = str(line.number) if query_id is None else query_id
            if query_id in queries:
                raise ValueError(f"{where}: line {line.number}: another query has the id {query_id!r}")
            if text is None:
                raise ValueError(f"{where}: line {line.number} is no query; give {_KINDS}")
            queries[query_id] = Query(query_id, text)
    except FileNotFoundError:
        raise ValueError(f"{where}: no such file") from None
    except READ_ERRORS as error:
        raise explanation(error, where) or ValueError(redacted(f"{where}: can't be read: {error}")) from error
    if not queries:
        raise ValueError(f"{where}: has no query; give {_KINDS}")
    return list(queries.values())


def _query(data: bytes, as_json: bool) -> tuple[str | None, str | None]:
    """Id and text of a line; None where it has none."""
    if not as_json:
        try:
            return None, data.decode("utf-8-sig").strip() or None
        except UnicodeDecodeError:
            return None, None
    row: dict[str, Any] = parse_json_line(data)[0] or {}
    query_id, text = row.get("_id", row.get("id")), row.get("text")
    usable = isinstance(text, str) and text.strip() and is_utf8(text)
    return None if query_id is None else str(query_id), text if usable else None


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
