"""Search: what fewer bits and fewer dimensions lose of an index, and what an approximate search does."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from infocse_ray.benchmarks.named_index import embedding_of
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.embedding.index import Embedding, Over
from infocse_ray.embedding.numbers import truncated, vector_columns, vectors_of
from infocse_ray.embedding.queries import vectors_of_queries
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.search.engine import Engine
from infocse_ray.settings.embed import Stored
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet

_BYTES: dict[Stored, int] = {"fp32": 4, "fp16": 2, "int8": 1}


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    output = Storage.open(arguments.index)
    embedding = embedding_of(arguments.index)
    if embedding.format != "parquet" or embedding.precision != "fp32" or embedding.dimensions is not None:
        raise ValueError(f"--index = {arguments.index!r}: give one of format parquet, precision fp32, all dimensions")
    encoder = embedding.encoder_folder(output).load()
    documents = _read(output, "documents")
    asked = np.random.default_rng(0).permutation(len(documents))[: arguments.queries]
    titles = documents["title"].take(pa.array(asked)).to_pylist()
    queries = vectors_of_queries(encoder, titles)
    rows = [
        _stored(embedding, encoder, documents, queries, asked, precision, dimensions)
        for dimensions in (None, *(d for d in arguments.dimensions if d < embedding.dimension))
        for precision in _BYTES
    ]
    print(f"\nDocuments: {len(documents):,}; queries, each the title of one of them: {len(queries):,}; exact search.")
    table(("stored", "dimensions", "bytes a vector", "R@1", "R@5", "R@10", "first 10 as of fp32"), rows)
    over: Over = "sentences" if embedding.sentences else "documents"
    _approximate(_read(output, over), queries, over, encoder.normalize)
    notes(
        "R@k: share of the titles whose own document is among the first k. First 10 as of fp32: mean share of the "
        "first 10 documents that are those of fp32, all dimensions. Titles are not part of the documents' vectors. One "
        "query at a time; milliseconds are medians."
    )


def _read(output: Storage, over: Over) -> pa.Table:
    folder = output / "vectors" / over
    parts = []
    for name in sorted(folder.files()):
        with open_parquet(folder / name) as file:
            parts.append(file.read().select(["doc_id", "title", "vector"]))
    return pa.concat_tables([part.replace_schema_metadata(None) for part in parts])


def _stored(
    embedding: Embedding,
    encoder: SentenceEncoder,
    documents: pa.Table,
    queries: np.ndarray,
    asked: np.ndarray,
    precision: Stored,
    dimensions: int | None,
) -> tuple[str, ...]:
    """A row of the table: documents stored so, asked for by their titles."""
    import torch

    def cut(vectors: np.ndarray) -> np.ndarray:
        return truncated(torch.from_numpy(vectors), dimensions, encoder.normalize).numpy()

    whole = vectors_of(documents)
    stored = vectors_of(pa.table(vector_columns(cut(whole), precision)))
    found, true = _first_10(cut(queries), stored), _first_10(queries, whole)
    recall = [f"{(found[:, :k] == asked[:, None]).any(1).mean():.4f}" for k in (1, 5, 10)]
    same = np.mean([len({*a} & {*b}) / len(b) for a, b in zip(found.tolist(), true.tolist(), strict=True)])
    numbers = dimensions or embedding.dimension
    bytes_each = numbers * _BYTES[precision] + (4 if precision == "int8" else 0)
    return (precision, str(numbers), f"{bytes_each:,}", *recall, f"{same:.4f}")


def _first_10(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1).clip(1e-12)
    return np.argsort(-(queries @ (vectors / lengths[:, None]).T), axis=1, kind="stable")[:, :10]


def _approximate(rows: pa.Table, queries: np.ndarray, over: Over, cosine: bool) -> None:
    """The index against comparing all, on vectors as the engine keeps them."""
    import lance

    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        dataset = lance.write_dataset(rows, f"{folder}/rows.lance")
        copied = time.perf_counter() - begun
        size = _mib(folder)
        engine = Engine(dataset, cosine)
        exact, exact_ms = _timed(engine, queries, True)
        begun = time.perf_counter()
        engine.build()
        built = time.perf_counter() - begun
        near, near_ms = _timed(engine, queries, False)
        indexed = _mib(folder)
    same = np.mean([len({*a} & {*b}) / len(b) for a, b in zip(near, exact, strict=True)])
    print(f"\n{over.capitalize()}: {len(rows):,}; queries: {len(queries):,}; first 10.")
    table(
        ("search", "MiB on disk", "seconds to make", "ms a query", "recall of the exact first 10"),
        [
            ("exact", f"{size:,.1f}", f"{copied:.1f}", f"{exact_ms:.1f}", "1"),
            ("IVF_SQ", f"{indexed:,.1f}", f"{built:.1f}", f"{near_ms:.1f}", f"{same:.4f}"),
        ],
    )


def _timed(engine: Engine, queries: np.ndarray, exact: bool) -> tuple[list[list[int]], float]:
    found, seconds = [], []
    for query in queries:
        begun = time.perf_counter()
        rows = engine.search(query, 10, exact, row_ids=True)
        seconds.append(time.perf_counter() - begun)
        found.append(rows["_rowid"].to_pylist())
    return found, 1000 * statistics.median(seconds)


def _mib(folder: str) -> float:
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 2**20
