"""Documents clustered again: the clusters that were annotated, by edges that are those of IDC."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from infocse_ray.annotate import annotator
from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.annotate.idc import connected_clusters, graph_edges
from infocse_ray.corpus.store import TokenStore
from infocse_ray.explorer import clustered
from infocse_ray.explorer.clustered import ClusterAgain
from infocse_ray.explorer.histogram import KINDS, count_pairs_by_cosine, histogram
from infocse_ray.settings import Annotate
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from tests.unit.passes import SPLITS, Passes, document_vectors, small_store, written_clusters
from tests.unit.stores import Written, write_store

SECTIONS = [
    {},
    {"k": 2},
    {"clustering": "kmeans", "kmeans_clusters": 3},
]


class Again:
    """Annotates a store, and looks at documents of it."""

    def __init__(self, passes: Passes, folder: Path, section: dict[str, Any], store: TokenStore, other: Any = None):
        self.settings = Annotate.model_validate(section)
        self.encoder, self.folder = passes.encoder, folder / "annotations"
        self.documents = TrainingDocuments(store, SPLITS, other)
        summary = passes.annotate(store, self.folder, self.settings, 1, other)
        self.stage = Stage("annotate", "f", Storage.open(str(self.folder)), summary)
        self.annotator = Annotator(passes.encoder, "fp32", torch.device("cpu"))
        self.written = written_clusters(store, self.folder)

    def look(self, keys: list[int]) -> dict[int, dict[str, Any]]:
        work = ClusterAgain(self.documents, keys, self.settings, self.stage)
        return {row["key"]: row for group in self.documents.groups() for row in work(self.annotator, group)}


@pytest.mark.parametrize("section", SECTIONS, ids=str)
@pytest.mark.parametrize("own_tokens", [True, False])
def test_the_clusters_are_those_that_were_annotated(passes, tmp_path, section, own_tokens):
    other = None if own_tokens else small_store(tmp_path / "other", shift=9)
    again = Again(passes, tmp_path, section, small_store(tmp_path / "own"), other)
    found = again.look(list(again.written))
    assert {key: row["clusters"] for key, row in found.items()} == again.written
    assert all(row["same"] for row in found.values())
    if again.settings.clustering == "kmeans":
        assert not any(row["edges"] for row in found.values())
        return
    for row in found.values():
        ends = np.array([[*edge[:2]] for edge in row["edges"]] + row["copies"], dtype=np.int64).reshape(-1, 2)
        clusters = connected_clusters(ends[:, 0], ends[:, 1], np.array([0, len(row["clusters"])]))
        assert clusters.tolist() == row["clusters"]
        assert all(low < high for low, high, _ in row["edges"])


def test_edges_are_those_of_the_document_alone(passes, tmp_path):
    store = small_store(tmp_path / "own")
    again = Again(passes, tmp_path, {"k": 2}, store)
    found = again.look(list(again.written))
    for key, vectors in document_vectors(store, passes.encoder):
        if len(np.unique(vectors, axis=0)) < len(vectors):
            continue
        edges = graph_edges(torch.from_numpy(vectors), np.array([0, len(vectors)]), 2)
        got = np.array(found[key]["edges"])
        assert got[:, :2].astype(int).tolist() == np.stack([edges.source, edges.target], axis=1).tolist()
        np.testing.assert_allclose(got[:, 2], edges.weight, atol=1e-3)
        pairs = len(vectors) * (len(vectors) - 1) // 2
        assert np.sum(found[key]["pairs"]) == pairs
        together = sum(a == b for i, a in enumerate(again.written[key]) for b in again.written[key][:i])
        assert np.sum(found[key]["pairs"], axis=1).tolist() == [len(got), together - len(got), pairs - together]


def test_no_more_is_embedded_than_the_documents_company(passes, tmp_path, monkeypatch):
    monkeypatch.setattr(annotator, "SENTENCES_AT_ONCE", 20)
    store = write_store(
        Storage.open(str(tmp_path / "own")),
        [Written(f"d{i}", [[5 + (7 * i + j) % 60, 9] for j in range(8)]) for i in range(20)],
        1,
    )
    again = Again(passes, tmp_path, {}, store)
    keys = list(again.written)
    [row] = again.look([keys[10]]).values()
    assert row["clusters"] == again.written[keys[10]]
    assert row["same"]
    some = again.annotator.tokens
    assert again.look([]) == {}
    assert again.annotator.tokens == some
    again.look(keys)
    assert 0 < some <= (again.annotator.tokens - some) / 5


def test_copies_are_named_and_are_no_pairs(passes, tmp_path):
    sentences = [[5, 6], [7], [5, 6], [8, 9], [7]]
    again = Again(passes, tmp_path, {}, write_store(Storage.open(str(tmp_path / "s")), [Written("d", sentences)], 1))
    [row] = again.look(list(again.written)).values()
    assert row["copies"] == [[2, 0], [4, 1]]
    assert not {2, 4} & {end for edge in row["edges"] for end in edge[:2]}
    assert np.sum(row["pairs"]) == 3
    assert row["same"]


def test_of_a_long_document_the_first_sentences(passes, tmp_path, monkeypatch):
    monkeypatch.setattr(clustered, "MOST_SENTENCES", 4)
    sentences = [[5 + (11 * i) % 50, 5 + i] for i in range(9)]
    again = Again(
        passes, tmp_path, {"k": 3}, write_store(Storage.open(str(tmp_path / "s")), [Written("d", sentences)], 1)
    )
    [row] = again.look(list(again.written)).values()
    assert row["clusters"] == next(iter(again.written.values()))[:4]
    assert row["edges"]
    assert max(high for _, high, _ in row["edges"]) < 4
    assert np.sum(row["pairs"]) == 6
    assert row["same"]


def test_what_comes_out_otherwise_is_said(passes, tmp_path):
    again = Again(passes, tmp_path, {}, small_store(tmp_path / "own"))
    torch.manual_seed(1)
    for weight in again.annotator.encoder.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    found = again.look(list(again.written))
    assert not all(row["same"] for row in found.values())
    assert {key: row["clusters"] for key, row in found.items()} == again.written
    # Pairs are told apart by the clusters that were trained on, as these are shown.
    others = [row for row in found.values() if not row["same"] and not row["copies"]]
    assert others
    for row in others:
        clusters, linked = row["clusters"], {(a, b) for a, b, _ in row["edges"]}
        pairs = {(a, b) for b in range(len(clusters)) for a in range(b)} - linked
        assert sum(row["pairs"][2]) == sum(clusters[a] != clusters[b] for a, b in pairs)


def test_pairs_by_cosine():
    vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    counts = count_pairs_by_cosine(vectors, np.array([0, 0, 0, 1]), np.array([[0, 1], [0, 2]]))
    made = histogram(counts)
    assert len(made["bin_edges"]) == 41
    edges = list(pairwise(made["bin_edges"]))

    def bins(kind: str) -> dict[tuple[float, float], int]:
        return {edges[place]: count for place, count in enumerate(made[kind]) if count}

    assert set(made) == {"bin_edges", *KINDS}
    assert bins("kept") == {(0.95, 1.0): 1, (0.0, 0.05): 1}
    assert bins("chained") == {(0.0, 0.05): 1}
    assert bins("dropped") == {(-1.0, -0.95): 2, (0.0, 0.05): 1}
