"""What preparing costs: a reading and a merging task's work in one process, and the bytes that come of it."""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from transformers import AutoTokenizer

from infocse_ray.benchmarks.corpora import MAX_LENGTH, corpus_of
from infocse_ray.benchmarks.measure import in_fresh_process
from infocse_ray.benchmarks.report import notes, spread, table
from infocse_ray.corpus.prepare import ShardWriter, tokenise_pieces
from infocse_ray.corpus.read import open_lines
from infocse_ray.corpus.source import find_source
from infocse_ray.corpus.store import documents_of, shard_name
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.encoder.tokenizer import tokenizer_json
from infocse_ray.settings import Corpus
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet


class Prepared(NamedTuple):
    """A corpus prepared once, into one shard."""

    tokenising: float
    """Seconds, reading and splitting included."""
    writing: float
    """Seconds, sorting included."""
    documents: int
    sentences: int
    tokens: int
    cut_tokens: int
    """As many as are left of sentences cut at MAX_LENGTH, special tokens included."""
    row_bytes: int
    """In memory, on their way through the shuffle."""
    store_bytes: int


def prepare_once(corpus: Corpus, model: str) -> Prepared:
    """What one task of each kind does with the whole corpus."""
    # A vCPU's worth, as in Ray's tasks: tokenizers would take all cores there are.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = AutoTokenizer.from_pretrained(model)
    source = find_source(corpus)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        of = (CorpusTokenizer(tokenizer_json(tokenizer)), 1, None, Storage.open(folder))
        tables = list(tokenise_pieces(source.pieces, source.columns, corpus, [], *of))
    tokenising = time.perf_counter() - begun
    rows = pa.concat_tables(tables)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        ShardWriter(Storage.open(folder), Storage.open(folder) / "lines")(0, rows)
        writing = time.perf_counter() - begun
        file = Storage.open(folder) / "documents" / shard_name(0)
        with open_parquet(file) as shard:
            documents = documents_of(shard.read())
        size = Path(file.path).stat().st_size
    lengths = np.diff(documents.sentences.offsets)
    added = tokenizer.num_special_tokens_to_add()
    return Prepared(
        tokenising=tokenising,
        writing=writing,
        documents=len(documents.keys),
        sentences=len(lengths),
        tokens=int(lengths.sum()),
        cut_tokens=int(np.minimum(lengths + added, MAX_LENGTH).sum()),
        row_bytes=rows.nbytes,
        store_bytes=size,
    )


def _line_bytes(corpus: Corpus) -> list[tuple[str, int]]:
    """What the lines of the files are in bytes, as they are and by gzip; nothing of Parquet."""
    source = find_source(corpus)
    if source.kind not in ("jsonl", "tsv"):
        return []
    parts = [b"".join(line.data for line in open_lines(piece)) for piece in source.pieces]
    packed = sum(len(gzip.compress(part, 6)) for part in parts)
    return [("lines of the files, bytes", sum(map(len, parts))), ("the same by gzip, bytes", packed)]


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = corpus_of(arguments, folder)
        runs = [in_fresh_process(prepare_once, corpus, arguments.model) for _ in range(arguments.repeats)]
        sizes = _line_bytes(corpus)
    one = runs[0]
    rates = {
        "reading, splitting, tokenising": [run.documents / run.tokenising for run in runs],
        "sorting, writing a shard": [run.documents / run.writing for run in runs],
    }
    table(
        ("one core", "documents/s, median", "runs"),
        [(name, f"{statistics.median(values):,.0f}", spread(values)) for name, values in rates.items()],
    )
    table(
        ("", "all", "a document", "a token"),
        [
            (name, f"{amount:,}", f"{amount / one.documents:,.1f}", f"{amount / one.tokens:.2f}")
            for name, amount in (
                ("sentences", one.sentences),
                ("tokens", one.tokens),
                (f"tokens, cut at {MAX_LENGTH} with the special ones", one.cut_tokens),
                *sizes,
                ("rows in the shuffle, bytes", one.row_bytes),
                ("token store, bytes", one.store_bytes),
            )
        ],
    )
    notes(
        f"{one.documents:,} documents, {one.tokens / one.sentences:.1f} tokens a sentence, "
        f"{one.cut_tokens / one.sentences:.1f} cut at {MAX_LENGTH}. Each run is a fresh process that does what a "
        "reading and a merging task of the prepare stage do, with the corpus as one shard; Ray, the shuffle and the "
        "network are not in it."
    )
