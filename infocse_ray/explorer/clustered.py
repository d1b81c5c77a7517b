"""Some documents clustered again, by the code and in the company that they were annotated by and in.

What the annotate stage wrote has clusters and no edges. Sentences are embedded in the same batches as then, whole
ranges of documents though only some are looked at, so that vectors are the same to the bit on the same kind of
processor; and the clusters that come of the edges are compared with those that were written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from infocse_ray.annotate.annotations import all_clustered
from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.documents import TrainingDocuments, joined
from infocse_ray.annotate.idc import connected_clusters, graph_edges
from infocse_ray.annotate.kmeans import GlobalClusters
from infocse_ray.corpus.store import Documents, shard_name
from infocse_ray.explorer.drawn import MOST_SENTENCES
from infocse_ray.explorer.histogram import count_pairs_by_cosine
from infocse_ray.settings import Annotate
from infocse_ray.stages.stage import Stage


class Graph(NamedTuple):
    """The texts of some documents, one after the other, with edges and clusters."""

    offsets: np.ndarray
    """int64 [documents + 1]; document i owns the texts offsets[i]:offsets[i + 1]."""
    vectors: torch.Tensor
    """float32 [n, d]."""
    ends: np.ndarray
    """int64 [e, 2], texts, the first below the second, ascending."""
    weights: np.ndarray
    """float32 [e], how alike the ends are."""
    clusters: np.ndarray
    """int32 [n], from 0 in every document."""

    def of(self, document: int) -> Graph:
        """That of one document, whose texts are counted from 0."""
        begin, stop = self.offsets[document : document + 2].tolist()
        edges = slice(*np.searchsorted(self.ends[:, 0], [begin, stop]).tolist())
        offsets, ends = np.array([0, stop - begin]), self.ends[edges] - begin
        return Graph(offsets, self.vectors[begin:stop], ends, self.weights[edges], self.clusters[begin:stop])


class ClusterAgain(NamedTuple):
    """The work of an actor (see `Work`): look at some documents of a group of shards."""

    documents: TrainingDocuments
    keys: list[int]
    """Of the documents."""
    settings: Annotate
    annotated: Stage
    """What annotated them."""

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """What is found of each document that is looked at: its `key`, and what `_seen` returns."""
        together = joined([documents for shard in shards for documents in self._annotated(shard)])
        written = together.clusters
        assert written is not None
        wanted = np.isin(together.keys, self.keys)
        nodes, distinct = annotator.without_copies(together)
        rows = []
        for first, last, vectors in annotator.vectors(nodes, wanted):
            graph = self._graph(vectors, nodes.offsets[first : last + 1] - nodes.offsets[first])
            for document in (first + np.flatnonzero(wanted[first:last])).tolist():
                sentences = slice(*together.offsets[document : document + 2].tolist())
                text = distinct.node[sentences] - nodes.offsets[document]
                seen = _seen(graph.of(document - first), text, written[sentences])
                rows.append({"key": int(together.keys[document]), **seen})
        return rows

    def _annotated(self, shard: int) -> list[Documents]:
        """The row groups of a shard, as the encoder reads them, with the clusters that the stage wrote."""
        return all_clustered(self.documents.read(shard), self.annotated.folder / shard_name(shard))

    def _graph(self, vectors: torch.Tensor, offsets: np.ndarray) -> Graph:
        if self.settings.clustering == "kmeans":
            clusters = GlobalClusters(self.annotated.folder / "centroids.npy")(vectors, offsets)
            return Graph(offsets, vectors, np.empty((0, 2), np.int64), np.empty(0, np.float32), clusters)
        edges = graph_edges(vectors, offsets, self.settings.k)
        ends = np.stack([edges.source, edges.target], axis=1)
        return Graph(offsets, vectors, ends, edges.weight, connected_clusters(edges.source, edges.target, offsets))


def _seen(graph: Graph, text: np.ndarray, written: np.ndarray) -> dict[str, Any]:
    """What is shown of a document: of its first `MOST_SENTENCES` sentences.

    Args:
        graph: of its texts.
        text: int [sentences], the number of each sentence's text.
        written: int32 [sentences], the clusters that were trained on.

    Returns:
        `clusters`, as they were written; `edges`, of each the numbers of both sentences, from 0, and the weight;
        `copies`, of each sentence that is one its number and that of the first with its text; `same`, whether the
        graph gives the clusters that were written; `pairs`, see `count_pairs_by_cosine`.
    """
    sentence = np.unique(text, return_index=True)[1]
    texts = int(np.searchsorted(sentence, MOST_SENTENCES))
    shown = (graph.ends < texts).all(axis=1)
    ends, weights = graph.ends[shown], graph.weights[shown].astype(np.float64).round(4)
    original = sentence[text[:MOST_SENTENCES]]
    return {
        "clusters": written[:MOST_SENTENCES].tolist(),
        "edges": [[*sentence[pair].tolist(), weight] for pair, weight in zip(ends, weights.tolist(), strict=True)],
        "copies": [[number, first] for number, first in enumerate(original.tolist()) if number != first],
        "same": bool(np.array_equal(graph.clusters[text], written)),
        "pairs": count_pairs_by_cosine(graph.vectors[:texts], written[sentence[:texts]], ends).tolist(),
    }
