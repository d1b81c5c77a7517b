"""The best documents by blocks are the best of all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infocse_ray.suites.best import Best, merged


@pytest.mark.parametrize("elements", [1, 10_000])
def test_blocks_find_what_a_full_search_finds(elements: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("infocse_ray.suites.best._ELEMENTS", elements)
    draw = torch.Generator().manual_seed(0)
    queries, documents = torch.randn(7, 8, generator=draw), torch.randn(50, 8, generator=draw)
    best = Best(queries, 5)
    for part in documents.split([3, 1, 30, 16]):
        best.add(part)
    scores, rows = (queries @ documents.T).topk(5)
    assert torch.equal(best.rows, rows)
    torch.testing.assert_close(best.scores, scores)


def test_fewer_documents_than_asked_for():
    best = Best(torch.eye(2), 5)
    best.add(torch.tensor([[0.1, 0.9]]))
    assert best.rows.tolist() == [[0], [0]]


def test_merged_blocks():
    first = np.array([[0.9, 0.1], [0.5, 0.4]]), np.array([["a", "b"], ["a", "b"]], object)
    second = np.array([[0.5], [0.45]]), np.array([["c"], ["c"]], object)
    scores, found = merged([first, second], 2)
    assert found.tolist() == [["a", "c"], ["a", "c"]]
    assert scores.tolist() == [[0.9, 0.5], [0.5, 0.45]]
