"""Labelled examples among InfoCSE's pairs: both kinds in a batch, and each other's negatives.

1. A document's examples are its pairs, then its drawn labels, each of these `repeats` times.
2. A row of the loss is an anchor (Eq. 1) or a labelled document; its columns are the positives and anchors of all pairs
   and the counterparts of all labelled documents: a document has many more negatives than labels alone give it.
3. Only pairs hold on to the encoder that training began with: labels say what they are worth, pairs are guessed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import Tokens, concatenate, offsets_of
from infocse_ray.methods.contrast import Contrast, Encoded
from infocse_ray.methods.idc import Idc
from infocse_ray.methods.labelled import Labelled
from infocse_ray.methods.method import Counted, Plain
from infocse_ray.methods.opened import Opened, Views

_PAIR, _LABEL = 0, 1
"""Whose text it is, in the notes."""

_FROM = 3
"""Views of labels are numbered from here on, behind those of pairs."""


class Mixed(Plain):
    """InfoCSE's pairs with labelled examples among them, at one temperature."""

    annotated = True
    none = "neither two different sentences in one cluster nor a drawn counterpart"

    def __init__(self, pairs: Idc, labels: Labelled, repeats: int) -> None:
        """What to mix.

        Args:
            pairs: of clusters.
            labels: drawn, at the same temperature.
            repeats: how often a pass has each labelled example, from 1.
        """
        self.pairs, self.labels, self.repeats = pairs, labels, repeats
        self.longest = max(pairs.longest, labels.longest)
        self.distillation = pairs.distillation
        self.query_labels = frozenset(_FROM + view for view in labels.query_labels)

    def identity(self) -> tuple[Any, ...]:
        """Those of both."""
        return ("mixed", self.pairs.identity(), self.labels.identity(), self.repeats)

    def count_identity(self) -> tuple[Any, ...]:
        """What the count depends on."""
        return ("mixed", self.pairs.count_identity(), self.labels.count_identity(), self.repeats)

    def count(self, documents: Documents) -> Counted:
        """Pairs, and labels times `repeats`."""
        pairs, labels = self.pairs.count(documents), self.labels.count(documents)
        return Counted(pairs.examples + self.repeats * labels.examples, pairs.short | labels.short)

    def open(self, documents: Documents) -> Opened:
        """Each document's texts of pairs, then, where it has drawn labels, all its sentences and these.

        Notes are those of pairs, whose text it is, and the labels that its document has.
        """
        pairs, labels = self.pairs.open(documents), self.labels.open(documents)
        labelled = labels.take(np.flatnonzero(labels.examples))
        everyone = np.arange(len(documents.keys))
        sizes = np.where(labels.examples > 0, labels.sizes, 0)
        owner = np.concatenate([everyone.repeat(pairs.sizes), everyone.repeat(sizes)])
        notes = np.zeros((len(owner), 4), np.int64)
        notes[: len(pairs.texts), :2] = pairs.notes
        notes[len(pairs.texts) :, 2] = _LABEL
        notes[:, 3] = labels.examples[owner]
        order = np.argsort(owner, kind="stable")
        texts = concatenate([pairs.texts, labelled.texts]).take(order)
        examples = pairs.examples + self.repeats * labels.examples
        return Opened(texts, offsets_of(pairs.sizes + sizes), examples, notes[order])

    def views(self, opened: Opened, documents: np.ndarray, numbers: np.ndarray, seeds: np.ndarray) -> Views:
        """Those of a pair, or, numbered from 3 on, those of a label."""
        labels = opened.notes[opened.offsets[documents], 3]
        pairs = opened.examples[documents] - self.repeats * labels
        of_pairs, of_labels = np.flatnonzero(numbers < pairs), np.flatnonzero(numbers >= pairs)
        first = self.pairs.views(
            _only(_PAIR, opened, documents[of_pairs]), np.arange(len(of_pairs)), numbers[of_pairs], seeds[of_pairs]
        )
        again = (numbers - pairs)[of_labels] % labels[of_labels]
        second = self.labels.views(
            _only(_LABEL, opened, documents[of_labels]), np.arange(len(of_labels)), again, seeds[of_labels]
        )
        owner = np.concatenate([of_pairs[first.owner], of_labels[second.owner]])
        order = np.argsort(owner, kind="stable")
        views = np.concatenate([first.labels, second.labels + _FROM])
        return Views(owner[order], views[order], concatenate([first.texts, second.texts]).take(order))

    def augment(self, texts: Tokens, labels: np.ndarray, seeds: np.ndarray) -> Tokens:
        """What is done to labels; pairs stay as they are."""
        return self.labels.augment(texts, labels - _FROM, seeds)

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """Rows of both, and columns of both."""
        of_labels = encoded.labels >= _FROM
        first = self.pairs.contrast(encoded.only(~of_labels), head)
        second = self.labels.contrast(encoded.only(of_labels, _FROM), head)
        assert second.besides is not None
        rows, texts = second.besides
        before = len(first.rows.texts)
        everyone = first.rows.and_(second.rows)
        return first._replace(
            rows=everyone,
            columns=first.columns.and_(second.columns),
            positive=torch.cat([first.positive, len(first.columns.texts) + second.positive]),
            besides=(before + rows, texts),
            held=torch.arange(len(everyone.texts), device=texts.device) < before,
        )


def _only(whose: int, opened: Opened, documents: np.ndarray) -> Opened:
    """These documents with their texts of one kind alone, as the method opened them."""
    own = opened.take(documents)
    kept = own.notes[:, 2] == whose
    owner = np.arange(len(documents)).repeat(own.sizes)
    sizes = np.bincount(owner[kept], minlength=len(documents))
    labels = own.notes[own.offsets[:-1], 3]
    return Opened(own.texts.take(np.flatnonzero(kept)), offsets_of(sizes), labels, own.notes[kept, :2])
