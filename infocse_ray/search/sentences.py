"""How similar a document's best sentence is to a query (MaxP: Dai & Callan 2019, SIGIR, arXiv 1905.09217).

A long document's vector is of all that it says; who asks means one thing that it says. Of an index that has sentences'
vectors the candidates of a query, not all documents, are looked at sentence by sentence.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pyarrow as pa

from infocse_ray.embedding.numbers import vectors_of

_KEY = "key"


class SentenceVectors:
    """The sentences of an index, by their documents."""

    def __init__(self, dataset: Any, cosine: bool) -> None:
        """Take the sentences' dataset; its documents' keys are indexed if they aren't.

        Args:
            dataset: of Lance, with columns `key`, the document's, and `vector`.
            cosine: whether similarity is the cosine; else the inner product.
        """
        self._dataset, self._cosine = dataset, cosine
        if not any(index.field_names == [_KEY] for index in dataset.describe_indices()):
            # In a storage that can only be read every query looks through all keys.
            with contextlib.suppress(OSError):
                dataset.create_scalar_index(_KEY, "BTREE")

    def best(self, vector: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The similarity of each document's best sentence.

        Args:
            vector: float32 [d], of the query.
            keys: int64 [n], of documents, each once.

        Returns:
            float32 [n]; NaN where the index has no sentence of a document.
        """
        best = np.full(len(keys), np.nan, np.float32)
        if not len(keys):
            return best
        wanted = f"{_KEY} IN ({','.join(map(str, keys))})"
        order = np.argsort(keys)
        # Some at a time: documents may have ten thousand sentences each.
        for batch in self._dataset.to_batches(columns=[_KEY, "vector"], filter=wanted):
            there = pa.Table.from_batches([batch])
            row = order[np.searchsorted(keys, there[_KEY].to_numpy(), sorter=order)]
            np.fmax.at(best, row, similarities(vectors_of(there), vector, self._cosine))
        return best


def similarities(vectors: np.ndarray, query: np.ndarray, cosine: bool) -> np.ndarray:
    """Of n vectors, float32 [n, d], and a query, float32 [d]: float32 [n]."""
    similarity = vectors @ query
    if not cosine:
        return similarity
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    return similarity / np.maximum(lengths, np.finfo(np.float32).tiny)
