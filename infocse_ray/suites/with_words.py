"""An encoder and BM25 in one ranking, by reciprocal rank fusion of what each of them found best.

It needs no weight, so nothing is fitted to a data set; `infocse search` has a weight instead, learnt from the corpus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from infocse_ray.search.fusion import reciprocal_ranks_fused
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet
from infocse_ray.suites.measures import Found


def write_found(file: Storage, found: Mapping[str, Found]) -> None:
    """Write what queries found, by query: `query_id`, `doc_id` and `score`."""
    rows = [(query, doc, score) for query, documents in found.items() for doc, score in documents.items()]
    queries, docs, scores = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {"query_id": pa.array(queries, pa.string()), "doc_id": pa.array(docs, pa.string())}
    table = pa.table(columns | {"score": pa.array(scores, pa.float64())})
    write_parquet(file, table, [len(table)])


def read_found(file: Storage) -> dict[str, dict[str, float]]:
    """What `write_found` wrote."""
    with open_parquet(file) as opened:
        columns = opened.read().to_pydict()
    found: dict[str, dict[str, float]] = {}
    for query, doc, score in zip(*(columns[name] for name in ("query_id", "doc_id", "score")), strict=True):
        found.setdefault(query, {})[doc] = score
    return found


def fused_found(queries: list[str], rankings: Sequence[Mapping[str, Found]]) -> dict[str, dict[str, float]]:
    """All that any ranking found, with what their ranks come to.

    Args:
        queries: the ids.
        rankings: what each found, by query; a query that found nothing may be missing.
    """
    found: dict[str, dict[str, float]] = {}
    for query in queries:
        each = [ranking.get(query, {}) for ranking in rankings]
        docs = list(dict.fromkeys(doc for documents in each for doc in documents))
        scores = np.array([[documents.get(doc, np.nan) for doc in docs] for documents in each])
        found[query] = dict(zip(docs, reciprocal_ranks_fused(scores).tolist(), strict=True))
    return found
