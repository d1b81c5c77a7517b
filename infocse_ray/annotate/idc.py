"""Intra-Document Clustering (IDC): Eq. 2-4 and Alg. 2 of InfoCSE (arXiv 2202.13802).

A node of the graph is a text; whoever calls gives each once (`infocse_ray.corpus.copies`), because copies would be each
other's most similar sentence.

1. Weight every pair of sentences of a document with their inner product, w_ij = <f(s_i), f(s_j)> (Eq. 2).
2. Keep {i, j} if j is among the top-K of row i or i is among the top-K of row j (Eq. 3).
3. The clusters are the connected components of what is kept (Eq. 4).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from infocse_ray.corpus.tokens import offsets_of

_GATHER_ELEMENTS = 2**19  # one padded chunk of vectors: 2 MiB of float32, so that the product reads it from cache
_MASK_ROUNDS = 8  # up to this K, K maxima are cheaper than one stable sort of the row
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


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
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if vectors.ndim != 2:
        raise ValueError(f"vectors must be a matrix [n, d], got shape {tuple(vectors.shape)}")
    if vectors.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"vectors must be float32 or float64, got {vectors.dtype}")
    n, d = vectors.shape
    offsets = _checked_offsets(offsets, n)
    sizes = np.diff(offsets)
    largest = int(sizes.max(initial=0))
    if largest > max_block_elements:
        raise ValueError(f"max_block_elements {max_block_elements} is less than one row of {largest} sentences")
    vectors = vectors.detach().contiguous()
    _check_finite(vectors, offsets)

    width = np.minimum(k, np.maximum(sizes - 1, 0))
    edge_offsets = offsets_of(sizes * width)
    e, device = int(edge_offsets[-1]), vectors.device
    # What padding yields is written to one spare element at the end, which needs no compaction per chunk.
    target = torch.empty(e + 1, dtype=torch.int64, device=device)
    weight = torch.empty(e + 1, dtype=torch.float32, device=device)

    order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes > 1)]
    sizes = sizes[order]
    layout = np.stack([offsets[order], sizes, width[order], edge_offsets[order]])[:, :, None, None]
    layout = torch.from_numpy(layout).to(device)
    copy_slot, copy_column, kept_column = (torch.from_numpy(a).to(device) for a in _duplicates(vectors, offsets, order))
    copy_bounds = copy_slot.cpu().numpy()

    for first, last in _chunks(sizes, d, max_block_elements):
        count, m = last - first, int(sizes[first])
        start, size, row_width, edge = layout[:, first:last]
        begin = int(offsets[order[first]])
        uniform = sizes[last - 1] == m
        local = torch.arange(m, device=device)
        if uniform and offsets[order[last - 1]] - begin == (count - 1) * m:
            block = vectors[begin : begin + count * m].view(count, m, d)
        else:
            # Padding repeats the last sentence of its document: a valid row, masked below.
            rows = start[:, 0] + torch.minimum(local, size[:, 0] - 1)
            block = vectors.index_select(0, rows.view(-1)).view(count, m, d)
        copies = slice(*np.searchsorted(copy_bounds, [first, last]).tolist())
        step = min(m, max_block_elements // (count * m))
        rank = torch.arange(min(k, m - 1), device=device)
        for row in range(0, m, step):
            similarity = torch.bmm(block[:, row : row + step], block.mT)
            if copies.start < copies.stop:
                # The product may round equal columns differently, and a tie must not depend on that.
                slot = copy_slot[copies] - first
                similarity[slot, :, copy_column[copies]] = similarity[slot, :, kept_column[copies]]
            similarity.diagonal(row, 1, 2).fill_(-torch.inf)
            if not uniform:
                similarity.masked_fill_(local >= size, -torch.inf)
            value, index = _first_k(similarity, len(rank))
            i = local[row : row + step, None]
            position = edge + i * row_width + rank
            if not uniform:
                position = torch.where((i < size) & (rank < row_width), position, e)
            target[position] = index + start
            weight[position] = value.float()

    source = np.repeat(np.arange(n), np.repeat(width, np.diff(offsets)))
    return Edges(source, target[:e].cpu().numpy(), weight[:e].cpu().numpy())


def mutual_edges(edges: Edges) -> Edges:
    """The edges whose opposite is there too: each end has the other among its top-K."""
    n = int(max(edges.source.max(initial=0), edges.target.max(initial=0))) + 1
    there = np.isin(edges.source * n + edges.target, edges.target * n + edges.source)
    return Edges(*(column[there] for column in edges))


def undirected_edges(edges: Edges) -> Edges:
    """Every edge once, from its lower row to its higher, in the order of the two.

    Of two opposite edges, whose weights may be rounded differently, it is the one from the lower row.
    """
    low, high = np.minimum(edges.source, edges.target), np.maximum(edges.source, edges.target)
    # The first of each kind is the one from the lower row, as edges are ordered by source.
    _, first = np.unique(low * (int(high.max(initial=0)) + 1) + high, return_index=True)
    return Edges(low[first], high[first], edges.weight[first])


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
    offsets = _checked_offsets(offsets)
    n = int(offsets[-1])
    graph = coo_array((np.ones(len(source), np.float64), (source, target)), shape=(n, n))
    # scipy does not promise the order of its labels.
    return number_clusters(connected_components(graph.tocsr(), directed=False)[1], offsets)


def number_clusters(label: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Number what sentences are labelled with from 0 in every document.

    Args:
        label: int [n], from 0 without gaps; sentences of different documents never have the same.
        offsets: int64 [documents + 1], as for `top_k_edges`.

    Returns:
        int32 [n], cluster ids from 0 in every document, in order of first appearance.

    Raises:
        ValueError: `offsets` do not rise from 0 to n.
    """
    n = len(label)
    offsets = _checked_offsets(offsets, n)
    appears = np.empty(label.max(initial=-1) + 1, np.int64)
    # Of repeated indices the last assignment holds.
    appears[label[::-1]] = np.arange(n)[::-1]
    number = np.zeros(n + 1, np.int64)
    number[appears + 1] = 1
    number = np.cumsum(number)
    earlier = np.repeat(number[offsets[:-1]], np.diff(offsets))
    return (number[appears][label] - earlier).astype(np.int32)


def cluster(
    vectors: torch.Tensor, offsets: np.ndarray, k: int, max_block_elements: int = 2**24, mutual: bool = False
) -> np.ndarray:
    """Intra-Document Clustering of a batch of documents (Alg. 2): `top_k_edges`, then `connected_clusters`.

    Args:
        vectors: as for `top_k_edges`, like `offsets`, `k` and `max_block_elements`.
        offsets: likewise.
        k: likewise.
        max_block_elements: likewise.
        mutual: keep an edge only if it is among the top-K of both its ends, rather than of either (Eq. 3).

    Returns:
        int32 [n], cluster ids from 0 in every document, in order of first appearance. Errors are those of
        `top_k_edges`.
    """
    edges = top_k_edges(vectors, offsets, k, max_block_elements)
    if mutual:
        edges = mutual_edges(edges)
    return connected_clusters(edges.source, edges.target, offsets)


def count_pairs(clusters: np.ndarray, offsets: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Unordered pairs of sentences that share a cluster: the sum of c(c - 1)/2 over a document's clusters.

    Args:
        clusters: int [n], as `connected_clusters` returns them.
        offsets: int64 [documents + 1], as for `top_k_edges`.
        rows: int64 [m], the sentences that count, such as those that are no copies; None: all.

    Returns:
        int64 [documents].

    Raises:
        ValueError: `offsets` do not rise from 0 to n.
    """
    offsets = _checked_offsets(offsets, len(clusters))
    sizes = _sizes_by_slot(clusters, offsets, rows)
    before = offsets_of(sizes * (sizes - 1) // 2)
    return np.diff(before[offsets])


def count_together(clusters: np.ndarray, offsets: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Sentences in clusters of two or more, int64 [documents]; arguments and errors are those of `count_pairs`."""
    offsets = _checked_offsets(offsets, len(clusters))
    sizes = _sizes_by_slot(clusters, offsets, rows)
    before = offsets_of(np.where(sizes > 1, sizes, 0))
    return np.diff(before[offsets])


def cluster_sizes(clusters: np.ndarray, offsets: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """The size of every cluster of the batch, by document and then by cluster id.

    Args:
        clusters: int [n], as `connected_clusters` returns them.
        offsets: int64 [documents + 1], as for `top_k_edges`.
        rows: as for `count_pairs`; a cluster without any is left out.

    Returns:
        int64 [clusters].

    Raises:
        ValueError: `offsets` do not rise from 0 to n.
    """
    sizes = _sizes_by_slot(clusters, _checked_offsets(offsets, len(clusters)), rows)
    return sizes[sizes > 0]


def _sizes_by_slot(clusters: np.ndarray, offsets: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """int64 [n]: cluster c of a document is counted at the document's offset + c, as c < its sentences."""
    slot = np.repeat(offsets[:-1], np.diff(offsets)) + clusters
    return np.bincount(slot if rows is None else slot[rows], minlength=len(clusters))


def _checked_offsets(offsets: np.ndarray, n: int | None = None) -> np.ndarray:
    offsets = np.asarray(offsets, dtype=np.int64)
    if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0:
        raise ValueError("offsets must be a vector that starts at 0")
    if (np.diff(offsets) < 0).any():
        raise ValueError(f"offsets decrease after document {int(np.argmax(np.diff(offsets) < 0))}")
    if n is not None and offsets[-1] != n:
        raise ValueError(f"offsets must end at the number of sentences {n}, got {offsets[-1]}")
    return offsets


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


def _chunks(sizes: np.ndarray, d: int, max_block_elements: int) -> Iterator[tuple[int, int]]:
    """Ranges of documents, sorted by size descending, to pad to their first and multiply at once."""
    first, ascending = 0, -sizes
    while first < len(sizes):
        m = int(sizes[first])
        # Within an eighth of the largest: at most a quarter of the product is padding.
        similar = int(np.searchsorted(ascending, -(m - m // 8), side="right"))
        fit = min(max_block_elements // (m * m), _GATHER_ELEMENTS // (m * max(d, 1)))
        last = min(similar, first + max(fit, 1))
        yield first, last
        first = last


def _first_k(similarity: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest of the last axis, descending, and their indices; ties to the lower. Spoils its input."""
    if k > _MASK_ROUNDS:
        value, index = similarity.sort(dim=-1, descending=True, stable=True)
        return value[..., :k], index[..., :k]
    found = []
    for _ in range(k):
        if found:
            similarity.scatter_(-1, found[-1][1], -torch.inf)
        found.append(similarity.max(dim=-1, keepdim=True))  # of equal maxima, documented to give the first
    return torch.cat([v for v, _ in found], -1), torch.cat([i for _, i in found], -1)


def _duplicates(
    vectors: torch.Tensor, offsets: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sentences whose vector occurs earlier in their document.

    Returns:
        int64 each: the document's rank in `order`, ascending; the sentence's index in its document; and the
        index of the first sentence with the same vector.
    """
    d = vectors.shape[1]
    document = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    # Two components tell most vectors apart, so whole rows are read only for the few that agree on them.
    # Adding zero turns -0 into 0, which equals it but has other bytes.
    sample = (vectors[:, :: max(1, d // 2)].cpu() + 0.0).numpy()
    key = document.astype(np.uint64)
    for column in sample.view(np.dtype(f"u{sample.itemsize}")).T:
        key = key * _HASH_FACTOR + column
    ordered = np.sort(key)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    row = np.flatnonzero(np.isin(key, repeated)) if len(repeated) else np.zeros(0, np.int64)
    if len(row):
        whole = (vectors[torch.from_numpy(row).to(vectors.device)].cpu() + 0.0).numpy()
        whole = np.concatenate([document[row, None].view(np.uint8), whole.view(np.uint8)], axis=1)
        _, seen, inverse = np.unique(whole.view(f"V{whole.shape[1]}")[:, 0], return_index=True, return_inverse=True)
        kept = row[seen][inverse]
        row, kept = row[kept != row], kept[kept != row]
    else:
        kept = row
    rank = np.empty(len(offsets) - 1, np.int64)
    rank[order] = np.arange(len(order))
    slot, begin = rank[document[row]], offsets[document[row]]
    by_slot = np.argsort(slot, kind="stable")
    return slot[by_slot], (row - begin)[by_slot], (kept - begin)[by_slot]
