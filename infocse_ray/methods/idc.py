"""InfoCSE's own pairs (Eq. 4 and 5 of arXiv 2202.13802): two sentences of one cluster of a document.

1. Sentences sorted by cluster; a cluster of c sentences has c(c-1)/2 unordered pairs (Eq. 4), numbered in a row. Of
   copies, sentences of a document that are equal as the encoder reads them, only the first counts: a pair of two would
   be a sentence and itself, and pairs with each of them the same pair again.
2. A number is turned back into its pair by the pairs that end before each sentence, so that no pair is listed.
3. Eq. 1: the anchor is to find its positive among all sentences of other documents in the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from infocse_ray.annotate.clusters import count_pairs
from infocse_ray.corpus.copies import distinct
from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import offsets_of, owners
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.chance import uniforms
from infocse_ray.methods.contrast import Contrast, Encoded, own
from infocse_ray.methods.method import Counted, Plain
from infocse_ray.methods.opened import Opened, Views
from infocse_ray.settings import Train


class Idc(Plain):
    """InfoCSE. Views are cut to `encoder.max_length`, there is no head, similarity is the run's.

    Past the paper: `distillation` is the share of a second loss; see `train.loss`.
    """

    annotated = True
    none = "no two different sentences in one cluster"

    def __init__(self, train: Train, spec: EncoderSpec) -> None:
        self.temperature, self.distillation = train.temperature, train.distillation
        self.cosine = train.similarity == "cosine"
        self.longest = spec.sentence_tokens

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        # Trainings of earlier versions keep their names: there were other positives, some of which read the similarity,
        # and there was no distillation.
        named = ("idc", "sentence", self.temperature, self.cosine)
        return (*named, *([f"distillation {self.distillation}"] if self.distillation else []))

    def count_identity(self) -> tuple[Any, ...]:
        """Name and what the count depends on."""
        return ("idc", False, self.longest)

    @property
    def pairs_at(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The cut at which annotating counts the same pairs."""
        return self.longest

    def count(self, documents: Documents) -> Counted:
        """Pairs of each document."""
        assert documents.clusters is not None
        rows = distinct(documents.sentences, documents.offsets, self.longest).rows
        examples = count_pairs(documents.clusters, documents.offsets, rows)
        return Counted(examples, np.zeros(len(examples), dtype=bool))

    def open(self, documents: Documents) -> Opened:
        """The different texts that share a cluster, in each document by cluster.

        Each notes the document's pairs that end before it, and its place in its cluster, from 0.
        """
        assert documents.clusters is not None
        unique = distinct(documents.sentences, documents.offsets, self.longest)
        owner = owners(unique.offsets)
        order = np.lexsort((documents.clusters[unique.rows], owner))
        rows, owner = unique.rows[order], owner[order]
        clusters = documents.clusters[rows]
        begins = np.flatnonzero(np.diff(owner, prepend=-1) | np.diff(clusters, prepend=-1))
        sizes = np.diff(np.append(begins, len(rows)))
        place, size = np.arange(len(rows)) - np.repeat(begins, sizes), np.repeat(sizes, sizes)
        together = size > 1
        rows, place = rows[together], place[together]
        offsets = np.searchsorted(owner[together], np.arange(len(documents.keys) + 1))
        texts = documents.sentences.take(rows).cut(self.longest)
        # Within a cluster the pairs are (0,1), (0,2), (1,2), (0,3), ...: as many end in a text as have come before it.
        before = offsets_of(place)
        own_before = before[:-1] - np.repeat(before[offsets[:-1]], np.diff(offsets))
        return Opened(texts, offsets, np.diff(before[offsets]), np.stack([own_before, place], axis=1))

    def views(self, opened: Opened, documents: np.ndarray, numbers: np.ndarray, seeds: np.ndarray) -> Views:
        """Anchor and partner: which of the two sentences is the anchor is chance."""
        first, second = pairs(opened, documents, numbers)
        turned = uniforms(seeds, 1)[:, 0] < 0.5
        anchors, partners = np.where(turned, second, first), np.where(turned, first, second)
        return Views.alike([0, 1], opened.texts.take(np.stack([anchors, partners], 1).ravel()))

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """Eq. 1: rows are the anchors, columns the positives and the anchors."""
        rows = encoded.where(0)
        anchors = encoded.side(rows)
        columns = encoded.side(encoded.where(1)).and_(anchors)
        return Contrast(anchors, columns, own(len(rows), rows.device), self.temperature)


def pairs(opened: Opened, documents: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of pairs turned into the pairs.

    Args:
        opened: by `Idc`.
        documents: int64 [n], whose pairs.
        numbers: int64 [n], which.

    Returns:
        int64 [n] twice: texts of `opened`, the one that comes first in its cluster first.
    """
    # The last text before which not more than `number` pairs end, by bisection in all documents at once.
    low, high = opened.offsets[documents], opened.offsets[documents + 1] - 1
    while (low < high).any():
        middle = (low + high + 1) // 2
        up = opened.notes[middle, 0] <= numbers
        low, high = np.where(up, middle, low), np.where(up, high, middle - 1)
    before, place = opened.notes[low, 0], opened.notes[low, 1]
    return low - place + numbers - before, low
