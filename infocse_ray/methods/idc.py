"""InfoCSE's own pairs (Eq. 4 and 5 of arXiv 2202.13802): two sentences of one cluster of a document.

1. Sentences sorted by cluster; a cluster of c sentences has c(c-1)/2 unordered pairs (Eq. 4), numbered in a row. Of
   copies, sentences of a document that are equal as the encoder reads them, only the first counts: a pair of two would
   be a sentence and itself, and pairs with each of them the same pair again.
2. A number is turned back into its pair by arithmetic, so that no pair is listed.
3. Eq. 1: the anchor is to find its positive among all sentences of other documents in the batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from infocse_ray.annotate.clusters import count_pairs, count_together
from infocse_ray.corpus.copies import distinct
from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import offsets_of
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.contrast import Contrast, Encoded, Side, View, own
from infocse_ray.methods.method import Counted, Document, Plain
from infocse_ray.settings import Train

_REST = 16
"""Sentences of the rest of a cluster that its mean is made of at most, drawn anew each time: a cluster may have
thousands."""


class PairedDocument:
    """A document's unordered in-cluster pairs of different texts, by number."""

    def __init__(self, document: Document, longest: int, second_view: bool = False) -> None:
        """Number the pairs.

        Args:
            document: annotated.
            longest: tokens a sentence is cut to.
            second_view: deal the anchor twice.
        """
        assert document.clusters is not None
        self._document, self._longest, self._second_view = document, longest, second_view
        rows = _texts(document, longest)
        clusters = document.clusters[rows]
        self._order = rows[np.argsort(clusters, kind="stable")]
        sizes = np.bincount(clusters)
        self._starts = offsets_of(sizes)
        self._pairs_before = offsets_of(sizes * (sizes - 1) // 2)

    @property
    def examples(self) -> int:
        """Pairs of the document."""
        return int(self._pairs_before[-1])

    def pair(self, number: int) -> tuple[int, int]:
        """Pair `number` as two sentence numbers, 0 <= number < examples."""
        cluster = int(np.searchsorted(self._pairs_before, number, side="right")) - 1
        rest = number - int(self._pairs_before[cluster])
        # Within a cluster the pairs are (0,1), (0,2), (1,2), (0,3), ...: pair (i, j) is number j(j-1)/2 + i.
        j = (1 + math.isqrt(1 + 8 * rest)) // 2
        i = rest - j * (j - 1) // 2
        start = int(self._starts[cluster])
        return int(self._order[start + i]), int(self._order[start + j])

    def views(self, number: int, random: np.random.Generator) -> list[View]:
        """Anchor, partner, and with `second_view` the anchor again; which of the two is the anchor is chance."""
        pair = self.pair(number)
        anchor, partner = (
            self._document.sentence(n, self._longest) for n in (pair if random.random() < 0.5 else pair[::-1])
        )
        return [View(anchor, 0), View(partner, 1)] + ([View(anchor, 2)] if self._second_view else [])


class ClusteredDocument:
    """A document whose texts that are not alone in their cluster are examples, each with the rest of it."""

    def __init__(self, document: Document, longest: int) -> None:
        assert document.clusters is not None
        self._document, self._longest = document, longest
        self._rows = _texts(document, longest)
        self._clusters = document.clusters[self._rows]
        self._together = np.flatnonzero(np.bincount(self._clusters)[self._clusters] > 1)

    @property
    def examples(self) -> int:
        """Texts in clusters of two or more."""
        return len(self._together)

    def views(self, number: int, random: np.random.Generator) -> list[View]:
        """The sentence, then the rest of its cluster, or a part of it drawn anew each time where that is large."""
        anchor = int(self._together[number])
        rest = np.flatnonzero(self._clusters == self._clusters[anchor])
        rest = rest[rest != anchor]
        if len(rest) > _REST:
            rest = np.sort(random.choice(rest, _REST, replace=False))
        texts = [self._document.sentence(int(self._rows[n]), self._longest) for n in (anchor, *rest)]
        return [View(text, int(place > 0)) for place, text in enumerate(texts)]


def _texts(document: Document, longest: int) -> np.ndarray:
    """int64: the document's sentences that are no copy of an earlier one."""
    return distinct(document.sentences, np.array([0, len(document.sentences)]), longest).rows


class Idc(Plain):
    """InfoCSE. Views are cut to `encoder.max_length`, there is no head, similarity is the run's.

    Past the paper: with `positive = cluster` an example is a sentence and the mean of the vectors of the rest of its
    cluster; with `self_and_partner`, a pair whose positive is the mean of the partner's vector and the anchor's own
    under other dropout. Where similarity is the cosine, these means are scaled to length 1.
    """

    annotated = True
    none = "no two different sentences in one cluster"

    def __init__(self, train: Train, spec: EncoderSpec) -> None:
        """Check that an anchor has another view where it is to have one.

        Raises:
            ValueError: the encoder has no dropout.
        """
        if train.positive == "self_and_partner" and not spec.drops:
            raise ValueError(
                f"train.positive = self_and_partner: this {spec.kind} encoder has no dropout, so that an anchor's "
                "second view is the anchor; use sentence or cluster"
            )
        self.positive, self.temperature = train.positive, train.temperature
        self.cosine = train.similarity == "cosine"
        self.longest = spec.sentence_tokens

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        return ("idc", self.positive, self.temperature, self.cosine)

    def count_identity(self) -> tuple[Any, ...]:
        """Name and what the count depends on."""
        return ("idc", self.positive == "cluster", self.longest)

    @property
    def annotated_count(self) -> tuple[str, int]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Pairs, or with `positive = cluster` sentences in clusters with others."""
        return ("together" if self.positive == "cluster" else "pairs"), self.longest

    def count(self, documents: Documents) -> Counted:
        """Pairs of each document, or with `positive = cluster` its sentences that are in a cluster with others."""
        assert documents.clusters is not None
        rows = distinct(documents.sentences, documents.offsets, self.longest).rows
        count = count_together if self.positive == "cluster" else count_pairs
        examples = count(documents.clusters, documents.offsets, rows)
        return Counted(examples, np.zeros(len(examples), dtype=bool))

    def open(self, document: Document) -> PairedDocument | ClusteredDocument:
        """Pairs, or sentences with the rest of their clusters."""
        if self.positive == "cluster":
            return ClusteredDocument(document, self.longest)
        return PairedDocument(document, self.longest, second_view=self.positive == "self_and_partner")

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """Eq. 1: rows are the anchors, columns the positives and the anchors."""
        rows = encoded.where(0)
        anchors = encoded.side(rows)
        columns = self._positives(encoded, len(rows)).and_(anchors)
        return Contrast(anchors, columns, own(len(rows), rows.device), self.temperature)

    def _positives(self, encoded: Encoded, count: int) -> Side:
        partners = encoded.where(1)
        if self.positive == "sentence":
            return encoded.side(partners)
        if self.positive == "cluster":
            return encoded.means(partners, encoded.owner[partners], count, self.cosine)
        both = encoded.where(1, 2)
        means = encoded.means(both, encoded.owner[both], count, self.cosine)
        # It is the partner's text that must not be a negative, and is the positive's in the paper.
        return means._replace(texts=encoded.texts[partners])
