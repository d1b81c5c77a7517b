"""K-means over the whole corpus instead of IDC: the baseline of the paper's Table 3, as in DeepCluster.

1. Actors embed a sample of the corpus' sentences, drawn by hash, and write the vectors.
2. One task fits the centroids on them: SciPy's k-means++ and Lloyd's iterations, over the whole sample at once
   (30 over 50,000 vectors of 384 take 3 s on a core, so mini-batches aren't worth another library).
3. Sentences of a document that are nearest to the same centroid are a cluster, by one product where the vectors are; of
   two centroids that are as near but for rounding it is either.
"""

from __future__ import annotations

import io
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.cluster.vq import kmeans2

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.clusters import number_clusters
from infocse_ray.annotate.documents import TrainingDocuments, joined
from infocse_ray.annotate.pipeline import Written, through_phases
from infocse_ray.corpus.store import drawn_sentences
from infocse_ray.corpus.tokens import Tokens, owners
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE
from infocse_ray.storage.checksums import read_sealed, sealed
from infocse_ray.storage.folder import Storage

_ITERATIONS = 30


def share_of(documents: TrainingDocuments, sample: int) -> float:
    """Of all training sentences, what makes about `sample`; 1 where there are no more than that."""
    return min(1.0, sample / max(1.0, documents.sentences))


class SampleSentences(NamedTuple):
    """Writes the vectors of the sentences drawn from a group of shards (see `Phased`)."""

    documents: TrainingDocuments
    folder: Storage
    share: float
    seed: int

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """Write the group's piece if it is missing; return how many shards and drawn `sentences` it is of."""
        return through_phases(self, annotator, shards)

    def read(self, annotator: Annotator, shards: list[int]) -> _Drawn | Written:
        """The sentences."""
        target = self.folder / f"from-{shards[0]:06d}.npy"
        if target.exists():
            return Written([{"shards": len(shards), "sentences": len(load_array(target))}])
        read = [documents for shard in shards for documents in self.documents.read(shard)]
        none = np.empty((0, annotator.encoder.dimension), np.float32)
        if not any(len(documents.keys) for documents in read):
            return _Drawn(target, len(shards), None, none)
        together = joined(read)
        drawn = drawn_sentences(together, self.share, self.seed)
        return _Drawn(target, len(shards), together.sentences.take(drawn), none)

    def embed(self, annotator: Annotator, group: _Drawn) -> _Drawn:
        """Their vectors."""
        if group.sentences is None:
            return group
        rows = np.arange(len(group.sentences))
        parts = [rows[i : i + SENTENCES_AT_ONCE] for i in range(0, len(rows), SENTENCES_AT_ONCE)]
        vectors = [annotator.embed(group.sentences.take(part)).cpu().numpy() for part in parts]
        return group._replace(vectors=np.concatenate([group.vectors, *vectors]))

    def write(self, group: _Drawn) -> list[dict[str, Any]]:
        """The piece."""
        save_array(group.target, group.vectors)
        return [{"shards": group.shards, "sentences": len(group.vectors)}]


class _Drawn(NamedTuple):
    """The sentences drawn from a group of shards, on their way."""

    target: Storage
    shards: int
    sentences: Tokens | None
    """None: there is no document."""
    vectors: np.ndarray
    """float32 [sentences, d], once they are embedded."""


def fit_sample(sample: Storage, target: Storage, clusters: int, seed: int) -> None:
    """Fit centroids on the vectors in the folder `sample` and write them; the vectors are not needed after that."""
    vectors = np.concatenate([load_array(sample / name) for name in sorted(sample.files())])
    save_array(target, fit_centroids(vectors, clusters, seed))


def fit_centroids(vectors: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """K-means centroids.

    Args:
        vectors: float32 [n, d].
        clusters: how many.
        seed: of the first centroids (k-means++).

    Returns:
        float32 [clusters, d]. Where there are no more distinct vectors than that, they are the centroids.

    Raises:
        ValueError: there are no vectors, or some are not finite.
    """
    if len(distinct := np.unique(vectors, axis=0)) <= clusters:
        return distinct
    with warnings.catch_warnings():
        # A cluster that loses all its sentences keeps its centroid.
        warnings.filterwarnings("ignore", message="One of the clusters is empty")
        # Sums of many float32 would lose digits.
        wide, random = vectors.astype(np.float64), np.random.default_rng(seed)
        # `seed` is what SciPy before 1.15 calls `rng`, and later ones take too.
        centroids, _ = kmeans2(wide, clusters, iter=_ITERATIONS, minit="++", seed=random)  # pyright: ignore[reportCallIssue]
    return centroids.astype(np.float32)


class GlobalClusters:
    """Clusters of the sentences of each document that are nearest to the same centroid; a `Clustering`."""

    def __init__(self, centroids: Storage) -> None:
        self._file = centroids
        self._centroids: torch.Tensor | None = None

    def __call__(self, vectors: torch.Tensor, offsets: np.ndarray) -> np.ndarray:
        """Vectors float32 [n, d] and offsets int64 [documents + 1] -> int32 [n], clusters from 0 in every document.

        Raises:
            ValueError: vectors are not finite.
        """
        if self._centroids is None:
            self._centroids = torch.from_numpy(load_array(self._file)).to(vectors.device, vectors.dtype)
        if not torch.isfinite(vectors).all():
            raise ValueError("vectors are not finite")
        # |x - c|^2 is smallest where <x, c> - |c|^2 / 2 is largest.
        near = torch.addmm(self._centroids.square().sum(1), vectors, self._centroids.T, beta=-0.5)
        nearest = near.argmax(1).cpu().numpy()
        document = owners(offsets)
        label = np.unique(document * len(self._centroids) + nearest, return_inverse=True)[1]
        return number_clusters(label, offsets)


def save_array(target: Storage, array: np.ndarray) -> None:
    """Write an array as .npy, whole, with a digest behind it that readers of .npy don't see."""
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=False)
    target.write_bytes(sealed(sink.getvalue()))


def load_array(source: Storage) -> np.ndarray:
    """Read what `save_array` wrote.

    Raises:
        DamagedFile: it isn't as it was written.
    """
    return np.load(io.BytesIO(read_sealed(source)), allow_pickle=False)
