"""Corpora that no choice here was made on, for `infocse reproduce --config untuned`.

Whoever tunes on four corpora fits them; these four say how far that goes. Each is JSON Lines of `text` or `sentences`,
and of the `counterpart` that a document must find.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from infocse_ray.benchmarks.manual_pages import manual_pages
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.corpus.read import read_rows
from infocse_ray.corpus.source import find_source
from infocse_ray.demo.docstrings import write_docstrings
from infocse_ray.settings import Corpus

ARTICLE_SENTENCES = (6, 30)
"""Least of an article, and after how many it is cut."""
PURCHASES = 5
"""Least that a person has bought before what must be found."""
DOCSTRINGS = 1_500


def run(arguments: argparse.Namespace) -> None:
    """Write the corpora into a folder, and say how many documents each has."""
    to = Path(arguments.to)
    to.mkdir(parents=True, exist_ok=True)
    made = {
        "manual": manual_pages(arguments.manual),
        "wikipedia": islice(without_titles(_rows(arguments.wikipedia, "title")), arguments.articles),
        "purchases": purchases(_rows(arguments.purchases, "target", sentences="history", id="user")),
    }
    counts = {name: _write(to / f"{name}.jsonl", rows) for name, rows in made.items()}
    docstrings = to / "docstrings.jsonl"
    write_docstrings(docstrings, DOCSTRINGS, processes=os.cpu_count() or 1)
    counts["docstrings"] = len(docstrings.read_bytes().splitlines())
    table(("corpus", "documents"), [(name, f"{count:,}") for name, count in counts.items()])
    notes("Manual pages and docstrings are those of this machine, so that another one's corpora are others.")


def without_titles(articles: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Of articles, whose counterpart is the title: with "it" for every word of the title in the sentences."""
    least, most = ARTICLE_SENTENCES
    for article in articles:
        title = re.sub(r"\s*\(.*\)$", "", article["counterpart"]).strip()
        words = [word for word in re.findall(r"\w+", title) if len(word) > 2]
        if not words or len(article["sentences"]) < least:
            continue
        hidden = re.compile(rf"\b({'|'.join(map(re.escape, [title, *words]))})\b", re.IGNORECASE)
        sentences = [hidden.sub("it", sentence) for sentence in article["sentences"][:most]]
        yield {"id": article["id"], "sentences": sentences, "counterpart": article["counterpart"]}


def purchases(people: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Of people, whose sentences are what they bought and the counterpart what came next: those with five or more."""
    for person in people:
        if len(person["sentences"]) >= PURCHASES:
            yield {key: person[key] for key in ("id", "sentences", "counterpart")}


def _rows(file: str, counterpart: str, sentences: str = "sentences", id: str | None = None) -> Iterator[dict[str, Any]]:
    source = find_source(Corpus(source=file, counterpart=counterpart, sentences=sentences, id=id))
    for piece in source.pieces:
        for row in read_rows(piece, source.columns, by_line=False):
            if row.values:
                yield row.values


def _write(file: Path, rows: Iterable[dict[str, Any]]) -> int:
    lines = [json.dumps(row) + "\n" for row in rows]
    if not lines:
        raise ValueError(f"{file.name}: what was named has no such document; give another file or folder")
    file.write_text("".join(lines), encoding="utf-8")
    return len(lines)
