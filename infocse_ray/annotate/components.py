"""Connected components where the edges are, on any device: labels go over edges, and labels' labels are taken.

1. Every row's label is a row of its component, at first itself. Both ends of an edge give the labels of both, and the
   rows that these name, the lower of the two (hooking).
2. Then every row takes its label's label, twice (pointer jumping): so labels come from afar in a few rounds, a chain
   of n rows taking about log n.
3. When nothing changes, the label is the component's first row, by which components are numbered.

Shiloach and Vishkin, An O(log n) Parallel Connectivity Algorithm, 1982. The host only learns whether it is done.
"""

from __future__ import annotations

import numpy as np
import torch

_ROUNDS = 4
"""Between two looks at whether anything changed. Most graphs of a document's sentences take no more."""


def first_of_component(source: torch.Tensor, target: torch.Tensor, n: int) -> torch.Tensor:
    """The lowest row of each row's component.

    Args:
        source: int64 [e], rows.
        target: int64 [e], rows; edges count whichever way they point.
        n: rows.

    Returns:
        int64 [n], on the edges' device.
    """
    label = torch.arange(n, device=source.device)
    while n:
        before = label
        for _ in range(_ROUNDS):
            ends = label[source], label[target]
            lower = torch.minimum(*ends)
            label = label.clone()
            for rows in (*ends, source, target):
                label.scatter_reduce_(0, rows, lower, "amin")
            label = label[label]
            label = label[label]
        if torch.equal(label, before):
            break
    return label


def clusters_by_component(source: torch.Tensor, target: torch.Tensor, offsets: np.ndarray) -> np.ndarray:
    """The components of the edges inside documents, numbered in each.

    Args:
        source: int64 [e], row in the flat batch.
        target: int64 [e], row in the flat batch, of the same document as its source.
        offsets: int64 [documents + 1]; document i owns the rows offsets[i]:offsets[i + 1].

    Returns:
        int32 [n], cluster ids from 0 in every document, in order of first appearance.
    """
    n, device = int(offsets[-1]), source.device
    first = first_of_component(source, target, n)
    earlier = torch.zeros(n + 1, dtype=torch.int64, device=device)
    earlier[1:] = (first == torch.arange(n, device=device)).cumsum(0)
    begins = torch.from_numpy(np.repeat(offsets[:-1], np.diff(offsets))).to(device)
    return (earlier[first] - earlier[begins]).int().cpu().numpy()
