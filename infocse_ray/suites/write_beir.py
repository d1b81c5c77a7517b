"""A labelled corpus in BEIR's layout: documents to be found, their counterparts as the queries that must find them."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from infocse_ray.corpus.documents import Rejected, document_of
from infocse_ray.corpus.registry import KINDS
from infocse_ray.corpus.schema import stable_hash
from infocse_ray.corpus.source import find_source
from infocse_ray.runtime.progress import Bar, say
from infocse_ray.settings import Corpus
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted
from infocse_ray.suites.beir_layout import CORPUS, QRELS, QUERIES

_SPLITS = {"train": "train", "valid": "dev", "test": "test"}
"""What BEIR calls the splits."""
ALL = "all"
"""The file in qrels/ with the judgements of all splits."""


def empty_folder(uri: str) -> Storage:
    """The folder that a data set is to be written to.

    Raises:
        ValueError: it is none, can't be written or won't last, or there are files in it.
        NoSpace, StorageUnavailable: it can't be written now.
    """
    folder = Storage.for_runs(uri, "beir")
    if folder.files():
        raise ValueError(redacted(f"beir = {uri!r}: there are files in it; name a new folder"))
    return folder


def write_beir(corpus: Corpus, folder: Storage) -> Counter[str]:
    """Write every good document, as one process reads them: rows that a run would set aside are left out here, too.

    A document given as text has that text; of one given as sentences each is a paragraph, so that they stay apart.
    A counterpart that several documents have is one query, for which each is relevant; a held-out split that has one of
    them has all its judgements, for the others are there to be found as well; that of training has its own alone, for
    nothing held out is to be trained on. What is kept in memory are hashes of ids and of
    each split's queries, some 100 bytes each.

    Args:
        corpus: where the documents are.
        folder: gets corpus.jsonl, queries.jsonl and qrels/train.tsv, dev.tsv, test.tsv (of the splits that there are)
            and all.tsv.

    Returns:
        How many documents, queries and judgements were written, and how many rows were left out.

    Raises:
        ValueError: no document has a counterpart.
        UnreadableFile: a file can't be read.
    """
    counts: Counter[str] = Counter()
    known: set[int] = set()
    asked: dict[str, set[int]] = {_SPLITS["valid"]: set(), _SPLITS["test"]: set()}
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as opened:
        local = Path(temporary)
        (local / QRELS).mkdir()
        files: dict[str, IO[str]] = {}

        def write(name: str, line: str) -> None:
            if name not in files:
                files[name] = opened.enter_context((local / name).open("w", encoding="utf-8", newline="\n"))
                if name.startswith(QRELS):
                    files[name].write("query-id\tcorpus-id\tscore\n")
            files[name].write(line + "\n")

        for values, document in _documents(corpus, counts):
            doc_id = " ".join(document["doc_id"].split())  # a tab or a line break would end the id in qrels
            if (key := stable_hash(doc_id)) in known:
                counts["left out"] += 1
                continue
            known.add(key)
            given = "sentences" not in values
            text = values["text"] if given else "\n\n".join(document["sentences"])
            write(CORPUS, json.dumps({"_id": doc_id, "title": "", "text": text}, ensure_ascii=False))
            counts["documents"] += 1
            for counterpart in document["counterparts"]:
                query = f"query-{stable_hash(counterpart) & (2**64 - 1):016x}"
                if (key := stable_hash(query)) not in known:
                    known.add(key)
                    write(QUERIES, json.dumps({"_id": query, "text": counterpart}, ensure_ascii=False))
                    counts["queries"] += 1
                split = _SPLITS[document["split"]]
                if split in asked:
                    asked[split].add(key)
                else:
                    write(f"{QRELS}/{split}.tsv", f"{query}\t{doc_id}\t1")
                write(f"{QRELS}/{ALL}.tsv", f"{query}\t{doc_id}\t1")
                counts["judgements"] += 1
        for line in _judgements(files.get(f"{QRELS}/{ALL}.tsv")):
            key = stable_hash(line.partition("\t")[0])
            for split, queries in asked.items():
                if key in queries:
                    write(f"{QRELS}/{split}.tsv", line)
        opened.close()
        if not counts["queries"]:
            raise ValueError(
                "beir: no document has a counterpart, which would be its query; name the column with "
                "corpus.counterpart, or leave beir out"
            )
        for name in files:
            with pa.memory_map(str(local / name)) as content:
                (folder / name).write_bytes(content.read_buffer())
    say(
        f"BEIR's layout in {folder}: {counts['documents']:,} documents, {counts['queries']:,} queries, "
        f"{counts['judgements']:,} judgements; {counts['left out']:,} rows left out"
    )
    return counts


def _judgements(file: IO[str] | None) -> Iterator[str]:
    """The lines of qrels that are written so far, if any, without the one that names the columns."""
    if file is not None:
        file.flush()
        with open(file.name, encoding="utf-8", newline="\n") as written:
            next(written)
            for line in written:
                yield line.removesuffix("\n")


def _documents(corpus: Corpus, counts: Counter[str]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The good rows as they were read, and the documents they make."""
    source, kind = find_source(corpus), KINDS[corpus.kind]
    labels = kind.labels(source.companions, corpus) if kind.labels and source.companions else None
    bar = Bar("writing BEIR's layout", None, "rows")
    for piece in source.pieces:
        for row in kind.rows(piece, source.columns, corpus, labels):
            bar.add(1)
            try:
                if row.values is None:
                    raise Rejected(row.reason)
                yield row.values, document_of(row.values, corpus)
            except Rejected:
                counts["left out"] += 1
    bar.close()
