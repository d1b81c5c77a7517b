"""Cluster ids of a batch of documents: numbering and counting them.

The sentences of all documents lie one after another; document i owns the rows offsets[i]:offsets[i + 1].
"""

import numpy as np

from infocse_ray.corpus.tokens import offsets_of


def number_clusters(label: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Number what sentences are labelled with from 0 in every document.

    Args:
        label: int [n], from 0 without gaps; sentences of different documents never have the same.
        offsets: int64 [documents + 1], each document's rows.

    Returns:
        int32 [n], cluster ids from 0 in every document, in order of first appearance.

    Raises:
        ValueError: `offsets` do not rise from 0 to n.
    """
    n = len(label)
    offsets = checked_offsets(offsets, n)
    appears = np.empty(label.max(initial=-1) + 1, np.int64)
    # Of repeated indices the last assignment holds.
    appears[label[::-1]] = np.arange(n)[::-1]
    number = np.zeros(n + 1, np.int64)
    number[appears + 1] = 1
    number = np.cumsum(number)
    earlier = np.repeat(number[offsets[:-1]], np.diff(offsets))
    return (number[appears][label] - earlier).astype(np.int32)


def count_pairs(clusters: np.ndarray, offsets: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Unordered pairs of sentences that share a cluster: the sum of c(c - 1)/2 over a document's clusters.

    Args:
        clusters: int [n], as `number_clusters` returns them.
        offsets: int64 [documents + 1], each document's rows.
        rows: int64 [m], the sentences that count, such as those that are no copies; None: all.

    Returns:
        int64 [documents].

    Raises:
        ValueError: `offsets` do not rise from 0 to n.
    """
    offsets = checked_offsets(offsets, len(clusters))
    sizes = _sizes_by_slot(clusters, offsets, rows)
    before = offsets_of(sizes * (sizes - 1) // 2)
    return np.diff(before[offsets])


def cluster_sizes(clusters: np.ndarray, offsets: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """The size of every cluster of the batch, by document and then by cluster id.

    Args:
        clusters: int [n], as `number_clusters` returns them.
        offsets: int64 [documents + 1], each document's rows.
        rows: as for `count_pairs`; a cluster without any is left out.

    Returns:
        int64 [clusters].

    Raises:
        ValueError: `offsets` do not rise from 0 to n.
    """
    sizes = _sizes_by_slot(clusters, checked_offsets(offsets, len(clusters)), rows)
    return sizes[sizes > 0]


def _sizes_by_slot(clusters: np.ndarray, offsets: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """int64 [n]: cluster c of a document is counted at the document's offset + c, as c < its sentences."""
    slot = np.repeat(offsets[:-1], np.diff(offsets)) + clusters
    return np.bincount(slot if rows is None else slot[rows], minlength=len(clusters))


def checked_offsets(offsets: np.ndarray, n: int | None = None) -> np.ndarray:
    """The offsets as int64.

    Raises:
        ValueError: they do not rise from 0 (to n, if that is given).
    """
    offsets = np.asarray(offsets, dtype=np.int64)
    if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0:
        raise ValueError("offsets must be a vector that starts at 0")
    if (np.diff(offsets) < 0).any():
        raise ValueError(f"offsets decrease after document {int(np.argmax(np.diff(offsets) < 0))}")
    if n is not None and offsets[-1] != n:
        raise ValueError(f"offsets must end at the number of sentences {n}, got {offsets[-1]}")
    return offsets
