"""Equal texts of a document are one: in the graph, in the clusters, and in the pairs that are dealt."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infocse_ray.annotate.clusters import cluster_sizes, count_pairs
from infocse_ray.corpus.copies import distinct, without_copies
from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import offsets_of
from infocse_ray.sampling.shards import Shards
from infocse_ray.settings import Annotate
from infocse_ray.storage.folder import Storage
from tests.unit.passes import SPLITS, document_vectors, numbered, written_clusters
from tests.unit.stores import Written, counted, idc, write_annotations, write_store
from tests.unit.trainees import document, ragged, views_of

LONGEST = 14
"""Tokens that the tiny encoder reads of a sentence."""

DOCUMENTS = st.lists(st.lists(st.lists(st.integers(5, 7), max_size=4), max_size=7), max_size=5)


def first_of(sentences: list[list[int]], longest: int) -> list[int]:
    """By hand: the number of the first sentence that begins with the same tokens."""
    texts = [tuple(sentence[:longest]) for sentence in sentences]
    return [texts.index(text) for text in texts]


@settings(max_examples=200)
@given(DOCUMENTS, st.integers(1, 5))
def test_copies_are_equal_as_far_as_they_are_read_and_of_one_document(documents, longest):
    offsets = offsets_of(np.array([len(sentences) for sentences in documents], dtype=np.int64))
    found = distinct(ragged([sentence for sentences in documents for sentence in sentences]), offsets, longest)
    original = found.rows[found.node] - np.repeat(offsets[:-1], np.diff(offsets))
    assert original.tolist() == [n for sentences in documents for n in first_of(sentences, longest)]
    assert (np.diff(found.rows) > 0).all()
    for i, (begin, end) in enumerate(pairwise(found.offsets.tolist())):
        rows = found.rows[begin:end]
        assert ((rows >= offsets[i]) & (rows < offsets[i + 1])).all()
    assert np.flatnonzero(found.first).tolist() == found.rows.tolist()


def test_texts_that_agree_at_a_glance_are_read_whole():
    """Length, middle and last token are the same, and texts of other documents are no copies."""
    sentences = ragged([[5, 6, 7, 8], [9, 6, 7, 8], [5, 6, 7, 8], [5, 6, 7, 8], [5, 6, 7], [5, 6, 7, 8]])
    found = distinct(sentences, np.array([0, 3, 6]), LONGEST)
    assert found.rows.tolist() == [0, 1, 3, 4]
    assert found.offsets.tolist() == [0, 2, 4]
    assert found.node.tolist() == [0, 1, 0, 2, 3, 2]


def test_documents_without_copies_keep_what_is_said_of_their_sentences():
    rows = ragged([[5], [6], [5], [7], [7]])
    documents = Documents(np.array(["a", "b"]), np.array([1, 2]), np.array([0, 3, 5]), rows, np.array([0, 1, 0, 0, 0]))
    once, found = without_copies(documents, LONGEST)
    assert once.clusters is not None
    assert (once.clusters.tolist(), once.offsets.tolist()) == ([0, 1, 0], [0, 2, 3])
    assert once.sentences.values.tolist() == [5, 6, 7]
    same, _ = without_copies(once, LONGEST)
    assert same is once
    assert found.first.tolist() == [True, True, False, True, False]


def with_copies(count=30):
    """Documents with copies, some of which differ where the encoder doesn't read any more; and without them."""
    draw = np.random.default_rng(3)
    repeated, once = [], []
    for i in range(count):
        texts = [draw.integers(5, 60, draw.integers(1, 9)).tolist() for _ in range(draw.integers(2, 7))]
        texts.append(draw.integers(5, 60, LONGEST).tolist())
        body = [*texts]
        for _ in range(draw.integers(1, 6)):
            text = texts[draw.integers(len(texts))]
            body.insert(
                int(draw.integers(len(body) + 1)), [*text, int(draw.integers(60))] if len(text) == LONGEST else text
            )
        firsts = first_of(body, LONGEST)
        repeated.append(Written(f"d{i}", body))
        once.append(Written(f"d{i}", [s for n, s in enumerate(body) if firsts[n] == n]))
    return repeated, once


KINDS = [
    {"k": 1},
    {"k": 2},
    {"clustering": "kmeans", "kmeans_clusters": 3},
]


@pytest.mark.parametrize("section", KINDS, ids=str)
def test_copies_have_their_texts_cluster_and_change_no_other(passes, tmp_path, section):
    kind = Annotate.model_validate(section)
    repeated, once = (
        write_store(Storage.open(str(tmp_path / name)), documents, 4)
        for name, documents in zip(("repeated", "once"), with_copies(), strict=True)
    )
    if kind.clustering == "kmeans":
        # Centroids are of sentences as often as they are there; take those of one corpus for both.
        passes.annotate(once, tmp_path / "b", kind)
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "centroids.npy").write_bytes((tmp_path / "b" / "centroids.npy").read_bytes())
    summary = passes.annotate(repeated, tmp_path / "a", kind)
    expected = passes.annotate(once, tmp_path / "b", kind)
    clusters, alone = written_clusters(repeated, tmp_path / "a"), written_clusters(once, tmp_path / "b")
    copies = 0
    for shard in range(repeated.shards):
        for table in repeated.read(shard, SPLITS):
            for key, body in zip(table["key"].to_pylist(), table["sentences"].to_pylist(), strict=True):
                firsts = first_of(body, LONGEST)
                assert [clusters[key][n] for n in firsts] == clusters[key]
                assert [c for n, c in enumerate(clusters[key]) if firsts[n] == n] == alone[key]
                copies += sum(n != first for n, first in enumerate(firsts))
    assert summary["copies"] == copies > 30
    assert expected["copies"] == 0
    same = ("documents", "clusters", "pairs", "cluster_sizes")
    assert {name: summary.get(name) for name in same} == {name: expected.get(name) for name in same}
    if kind.clustering != "kmeans":
        assert summary["tokens"] == expected["tokens"], "a copy was embedded"
    # What was counted then is what a resumed run reads.
    assert passes.annotate(repeated, tmp_path / "a", kind) == summary


def test_a_copy_takes_nobodys_edge(passes, tmp_path):
    """Without its copies a sentence's best edge is to another text: not in a cluster of their own."""
    texts = [[5, 6, 7], [20, 21], [40, 41, 42], [50]]
    store = write_store(Storage.open(str(tmp_path / "s")), [Written("d", [t for t in texts for _ in range(2)])], 1)
    passes.annotate(store, tmp_path / "out", Annotate(k=1))
    [(_, vectors)] = document_vectors(store, passes.encoder)
    product = (vectors[::2] @ vectors[::2].T).astype(np.float64)
    np.fill_diagonal(product, -np.inf)
    label = list(range(4))
    for i, j in enumerate(product.argmax(1).tolist()):
        label = [label[i] if x == label[j] else x for x in label]
    [clusters] = written_clusters(store, tmp_path / "out").values()
    assert clusters == [c for c in numbered(label) for _ in range(2)]
    assert max(clusters) < 3


def documents_of_pairs(folder):
    """Annotated documents with copies, one of which is in another cluster than its text."""
    bodies = [
        ([[5], [6], [5], [7], [6]], [0, 0, 0, 1, 0]),
        ([[5], [5]], [0, 0]),
        ([[8], [9], [8], [8], [10]], [0, 0, 1, 0, 1]),
        ([[1] * LONGEST + [5], [1] * LONGEST + [6], [9]], [0, 0, 0]),
        ([[8], [9], [10]], [0, 0, 0]),
        ([[8], [8], [9], [10]], [0, 1, 2, 2]),
    ]
    documents = [Written(f"d{n}", body, clusters) for n, (body, clusters) in enumerate(bodies)]
    return write_annotations(Storage.open(str(folder)), documents, 2, 2, group=2), documents


def by_hand(document: Written) -> list[frozenset]:
    """Pairs of different texts of one cluster; a text is in its first one's cluster."""
    cluster: dict[tuple, int] = {}
    for sentence, number in zip(document.sentences, document.clusters, strict=True):
        cluster.setdefault(tuple(sentence[:LONGEST]), number)
    return [frozenset(pair) for pair in combinations(cluster, 2) if cluster[pair[0]] == cluster[pair[1]]]


def test_pairs_are_of_different_texts_each_once(tmp_path):
    source, documents = documents_of_pairs(tmp_path)
    method = idc(cosine=True)
    total = 0
    for written in documents:
        opened = method.open(document(written.sentences, list(written.clusters)))
        (examples,) = opened.examples.tolist()
        found = [[tuple(text) for _, text in views_of(method, opened, n, seed=n)] for n in range(examples)]
        assert Counter(frozenset(example) for example in found) == Counter(by_hand(written))
        total += examples
    assert int(counted(source, method).by_lane.sum()) == total > 5


@settings(max_examples=100)
@given(st.lists(st.integers(0, 8), max_size=6), st.integers(0, 2**32 - 1))
def test_counts_of_some_sentences_are_those_by_hand(sizes, seed):
    draw, offsets = np.random.default_rng(seed), offsets_of(np.array(sizes, dtype=np.int64))
    clusters = [numbered(draw.integers(0, 3, size).tolist()) for size in sizes]
    flat = np.array([c for document in clusters for c in document], dtype=np.int32)
    rows = np.flatnonzero(draw.random(len(flat)) < 0.6)
    here = [[int(flat[row]) for row in rows if begin <= row < end] for begin, end in pairwise(offsets.tolist())]
    amounts = [Counter(document) for document in here]
    assert count_pairs(flat, offsets, rows).tolist() == [sum(n * (n - 1) // 2 for n in a.values()) for a in amounts]
    assert cluster_sizes(flat, offsets, rows).tolist() == [a[c] for a in amounts for c in sorted(a)]


def test_what_annotating_counts_is_what_is_dealt(passes, tmp_path):
    store = write_store(Storage.open(str(tmp_path / "store")), with_copies()[0], 4)
    summary = passes.annotate(store, tmp_path / "out", Annotate(k=1))
    source = Shards(store.folder / "documents", "f", store.shards, 4, SPLITS)
    source = source._replace(annotations=Storage.open(str(tmp_path / "out")))
    assert summary["pairs"] == counted(source, idc()).by_lane.sum() > 50
