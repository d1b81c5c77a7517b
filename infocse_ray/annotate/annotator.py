"""One encoder on one device, and what becomes of the sentences of documents there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from infocse_ray.annotate.beside import one_behind
from infocse_ray.annotate.engine import TORCH, Engine
from infocse_ray.corpus.copies import Distinct, without_copies
from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import Tokens, bounded_ranges
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE, Precision, embed

Clustering = Callable[[torch.Tensor, np.ndarray], np.ndarray]
"""Vectors float32 [n, d] and offsets int64 [documents + 1] -> int32 [n], clusters from 0 in every document."""


class Annotator:
    """Embeds documents with one encoder on one device, and counts what that takes."""

    def __init__(
        self, encoder: EncoderFolder, precision: Precision, device: torch.device, engine: Engine = TORCH
    ) -> None:
        self.encoder = engine.ready(encoder.load(), precision, device)
        self.tokens = self.padded = 0

    def embed(self, sentences: Tokens) -> torch.Tensor:
        """float32 [n, d] on the device; give it at most SENTENCES_AT_ONCE, or a document."""
        part = embed(self.encoder, sentences)
        self.tokens += part.tokens
        self.padded += part.padded
        return part.vectors

    def without_copies(self, documents: Documents) -> tuple[Documents, Distinct]:
        """Documents with each text once, as the encoder reads it, and which sentences these are; any thread's."""
        return without_copies(documents, self.encoder.room())

    def vectors(
        self, documents: Documents, wanted: np.ndarray | None = None
    ) -> Iterator[tuple[int, int, torch.Tensor]]:
        """Ranges of documents, first and after the last, with the vectors of all their sentences.

        On a GPU the next range is being embedded by then: make of the vectors what is needed on the host, and let go.

        Args:
            documents: any.
            wanted: bool [documents]; ranges without any of these are left out, the others embedded as they would be
                with them. None: all.
        """
        return one_behind(self._ranges(documents, wanted), self.encoder.device)

    def _ranges(self, documents: Documents, wanted: np.ndarray | None) -> Iterator[tuple[int, int, torch.Tensor]]:
        for first, last in bounded_ranges(documents.offsets, SENTENCES_AT_ONCE):
            if wanted is not None and not wanted[first:last].any():
                continue
            begin, end = documents.offsets[first], documents.offsets[last]
            yield first, last, self.embed(documents.sentences.take(np.arange(begin, end)))

    def clusters_of_nodes(self, nodes: Documents, clustering: Clustering) -> np.ndarray:
        """Clusters inside each document, int32 [sentences], each sentence embedded as a text of its own."""
        out = np.empty(len(nodes.sentences), dtype=np.int32)
        for first, last, vectors in self.vectors(nodes):
            begin, end = nodes.offsets[first], nodes.offsets[last]
            out[begin:end] = clustering(vectors, nodes.offsets[first : last + 1] - begin)
        return out

    def clusters(self, documents: Documents, clustering: Clustering) -> tuple[np.ndarray, np.ndarray]:
        """Clusters inside each document; copies of a sentence are embedded once, and share its cluster.

        Returns:
            int32 [sentences], cluster ids numbered from 0 inside each document; and bool [sentences], which are no copy
            of an earlier one.
        """
        nodes, distinct = self.without_copies(documents)
        return self.clusters_of_nodes(nodes, clustering)[distinct.node], distinct.first
