"""Intra-Document Clustering (IDC): Eq. 2-4 and Alg. 2 of InfoCSE (arXiv 2202.13802).

A node of the graph is a text; whoever calls gives each once (`infocse_ray.corpus.copies`), because copies would be each
other's most similar sentence.

1. Weight every pair of sentences of a document with their inner product, w_ij = <f(s_i), f(s_j)> (Eq. 2).
2. Keep {i, j} if j is among the top-K of row i or i is among the top-K of row j (Eq. 3).
3. The clusters are the connected components of what is kept (Eq. 4).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from infocse_ray.annotate.blocks import Block, Blocks
from infocse_ray.annotate.clusters import checked_offsets, number_clusters
from infocse_ray.annotate.components import clusters_by_component
from infocse_ray.corpus.tokens import offsets_of


class Edges(NamedTuple):
    """Directed edges, in the order of their source and, within one source, by weight descending."""

    source: np.ndarray
    """int64 [e], row in the flat batch."""
    target: np.ndarray
    """int64 [e], row in the flat batch, always of the source's document."""
    weight: np.ndarray
    """float32 [e], the inner product w_ij of Eq. 2."""


def top_k_edges(vectors: torch.Tensor, offsets: np.ndarray, k: int, max_block_elements: int = 2**24) -> Edges:
    """The top-K neighbours of every sentence among the others of its document (Eq. 2 and 3).

    Args:
        vectors: float32 or float64 [n, d], CPU or CUDA, the sentences of all documents of the batch.
        offsets: int64 [documents + 1]; document i owns the rows offsets[i]:offsets[i + 1], which may be none.
        k: The K of Eq. 3. A sentence of a document of m sentences gets min(k, m - 1) edges. Equal weights
            go to the lower index, and identical vectors always have equal weights.
        max_block_elements: Bound on the elements of one block of similarities.

    Returns:
        The edges, their weights in float32 also where they were compared in float64.

    Raises:
        TypeError: `vectors` are neither float32 nor float64.
        ValueError: k < 1; `vectors` are not a matrix; `offsets` do not rise from 0 to n; a vector is not
            finite or so large that its inner products are not (the message names its document); or one row of
            similarities of the largest document exceeds `max_block_elements`.
    """
    return _edge_table(vectors, offsets, k, max_block_elements).edges()


def _edge_table(vectors: torch.Tensor, offsets: np.ndarray, k: int, max_block_elements: int) -> _EdgeTable:
    """Arguments and errors are those of `top_k_edges`."""
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if vectors.ndim != 2:
        raise ValueError(f"vectors must be a matrix [n, d], got shape {tuple(vectors.shape)}")
    if vectors.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"vectors must be float32 or float64, got {vectors.dtype}")
    offsets = checked_offsets(offsets, len(vectors))
    largest = int(np.diff(offsets).max(initial=0))
    if largest > max_block_elements:
        raise ValueError(f"max_block_elements {max_block_elements} is less than one row of {largest} sentences")
    vectors = vectors.detach().contiguous()
    _check_finite(vectors, offsets)

    blocks = Blocks(vectors, offsets, max_block_elements)
    edges = _EdgeTable(offsets, k, blocks)
    for block in blocks:
        for i in block.rows():
            weight = torch.bmm(block.vectors[:, i], block.vectors.mT)  # Eq. 2: w_ij = <f(s_i), f(s_j)>
            block.share_weights(weight)
            block.exclude(weight, i)
            weight, j = _top_k(weight, min(k, weight.shape[2] - 1))  # Eq. 3: the top-K of row i
            edges.put(block, i, j, weight)
    return edges


def undirected_edges(edges: Edges) -> Edges:
    """Every edge once, from its lower row to its higher, in the order of the two.

    Of two opposite edges, whose weights may be rounded differently, it is the one from the lower row.
    """
    low, high = np.minimum(edges.source, edges.target), np.maximum(edges.source, edges.target)
    # The first of each kind is the one from the lower row, as edges are ordered by source.
    _, first = np.unique(low * (int(high.max(initial=0)) + 1) + high, return_index=True)
    return Edges(low[first], high[first], edges.weight[first])


def graph_edges(vectors: torch.Tensor, offsets: np.ndarray, k: int) -> Edges:
    """The edges of IDC's graph, each once (see `undirected_edges`); arguments and errors are those of `cluster`."""
    return undirected_edges(top_k_edges(vectors, offsets, k))


def connected_clusters(source: np.ndarray, target: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The connected components of the edges, whichever way they point (Eq. 4).

    Args:
        source: int64 [e], row in the flat batch.
        target: int64 [e], row in the flat batch, of the same document as its source.
        offsets: int64 [documents + 1], as for `top_k_edges`.

    Returns:
        int32 [n], cluster ids from 0 in every document, in order of first appearance.

    Raises:
        ValueError: `offsets` do not rise from 0, or an edge has an end outside of the batch.
    """
    offsets = checked_offsets(offsets)
    n = int(offsets[-1])
    graph = coo_array((np.ones(len(source), np.float64), (source, target)), shape=(n, n))
    # scipy does not promise the order of its labels.
    return number_clusters(connected_components(graph.tocsr(), directed=False)[1], offsets)


def cluster(vectors: torch.Tensor, offsets: np.ndarray, k: int, max_block_elements: int = 2**24) -> np.ndarray:
    """Intra-Document Clustering of a batch of documents (Alg. 2): `top_k_edges`, then `connected_clusters`.

    Args:
        vectors: as for `top_k_edges`, like `offsets`, `k` and `max_block_elements`.
        offsets: likewise.
        k: likewise.
        max_block_elements: likewise.

    Returns:
        int32 [n], cluster ids from 0 in every document, in order of first appearance. Errors are those of
        `top_k_edges`.
    """
    table = _edge_table(vectors, offsets, k, max_block_elements)
    if vectors.device.type == "cuda":
        return clusters_by_component(*table.ends(), checked_offsets(offsets))
    edges = table.edges()
    return connected_clusters(edges.source, edges.target, offsets)


def _check_finite(vectors: torch.Tensor, offsets: np.ndarray) -> None:
    """Refuses what could give an inner product that is not finite, by |<x, y>| <= |x||y|."""
    # One pass over the batch clears nearly every batch: its norm bounds the norm of each row.
    norm = torch.linalg.vector_norm(vectors)
    if torch.isfinite(norm * norm):
        return
    square = torch.linalg.vector_norm(vectors, dim=1).square()
    bad = torch.nonzero(~torch.isfinite(square)).view(-1).cpu().numpy()
    if len(bad):
        document = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        raise ValueError(f"a vector of document {document} is not finite or its square is not")


class _EdgeTable:
    """Every sentence's edges, in the order of sentences, filled block by block."""

    def __init__(self, offsets: np.ndarray, k: int, blocks: Blocks) -> None:
        sizes = np.diff(offsets)
        width = np.minimum(k, np.maximum(sizes - 1, 0))  # edges of each sentence of a document
        self._source = np.repeat(np.arange(offsets[-1]), np.repeat(width, sizes))
        begin = offsets_of(sizes * width)[:-1]
        self._begins, self._widths = (blocks.by_document(values[blocks.order]) for values in (begin, width))
        # What padding yields is written to one spare element at the end, which needs no compaction per block.
        self._spare = len(self._source)
        self._target = torch.empty(self._spare + 1, dtype=torch.int64, device=self._begins.device)
        self._weight = torch.empty(self._spare + 1, dtype=torch.float32, device=self._begins.device)

    def put(self, block: Block, rows: slice, target: torch.Tensor, weight: torch.Tensor) -> None:
        """Add edges of some rows of a block, [documents, rows, K] each; a target is its index in the document."""
        device = target.device
        i = torch.arange(rows.start, rows.stop, device=device)[:, None]
        rank = torch.arange(target.shape[2], device=device)
        width = self._widths[block.slots]
        place = self._begins[block.slots] + i * width + rank
        if block.padded:
            place = torch.where((i < block.size) & (rank < width), place, self._spare)
        self._target[place] = target + block.begin
        self._weight[place] = weight.float()

    def ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Source and target of all of them, int64 [e] each, on the device."""
        return torch.from_numpy(self._source).to(self._target.device), self._target[:-1]

    def edges(self) -> Edges:
        """All of them."""
        return Edges(self._source, self._target[:-1].cpu().numpy(), self._weight[:-1].cpu().numpy())


def _top_k(similarity: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest of the last axis, descending, and their indices; ties to the lower. Spoils its input."""
    if k > _mask_rounds(similarity.shape[-1]):
        value, index = similarity.sort(dim=-1, descending=True, stable=True)
        return value[..., :k], index[..., :k]
    maxima = []
    for _ in range(k):
        if maxima:
            similarity.scatter_(-1, maxima[-1][1], -torch.inf)
        maxima.append(similarity.max(dim=-1, keepdim=True))  # of equal maxima, documented to give the first
    return torch.cat([v for v, _ in maxima], -1), torch.cat([i for _, i in maxima], -1)


def _mask_rounds(row: int) -> int:
    """Up to this K, K maxima are cheaper than one stable sort of a row of so many similarities."""
    return min(64, max(8, row // 4))
