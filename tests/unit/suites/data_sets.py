"""Data sets in BEIR's layout, and sentence pairs, for tests."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import make_documents, write_jsonl


def write_set(folder: Path, count: int = 30, split: str = "test") -> list[dict]:
    """Documents of two topics each, of which every one has a query; returns them."""
    documents = make_documents(count)
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": d["id"], "title": d["sentences"][0], "text": " ".join(d["sentences"][1:])} for d in documents]
    write_jsonl(folder / "corpus.jsonl", corpus)
    write_jsonl(folder / "queries.jsonl", [{"_id": f"q{d['id']}", "text": d["counterpart"]} for d in documents])
    lines = [f"q{d['id']}\t{d['id']}\t1" for d in documents]
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return documents


def append(file: Path, *rows: dict | str) -> None:
    with file.open("a") as stream:
        stream.writelines((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def write_pairs(file: Path) -> Path:
    """Thirty pairs with scores from 0 to 4."""
    rows = [f"{d['sentences'][0]}\t{d['sentences'][1]}\t{n % 5}" for n, d in enumerate(make_documents(30))]
    file.write_text("\n".join(rows))
    return file
