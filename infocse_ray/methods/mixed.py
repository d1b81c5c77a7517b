"""Labelled examples among InfoCSE's pairs: both kinds in a batch, and each other's negatives.

1. Of every batch so many examples are labelled ones (`sampling/mixed_stream.py` deals them), the others pairs.
2. A row of the loss is an anchor (Eq. 1) or a labelled document; its columns are the positives and anchors of all pairs
   and the counterparts of all labelled documents: a document has many more negatives than labels alone give it.
3. Only pairs hold on to the encoder that training began with: labels say what they are worth, pairs are guessed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from infocse_ray.corpus.store import Documents
from infocse_ray.methods.contrast import Contrast, Encoded
from infocse_ray.methods.idc import Idc
from infocse_ray.methods.labelled import Labelled
from infocse_ray.methods.method import Counted, Plain
from infocse_ray.methods.opened import Opened, Views

FIRST_LABEL = 3
"""Views of labelled examples are numbered from here on, behind those of pairs; of either there are fewer."""


class Mixed(Plain):
    """InfoCSE's pairs with labelled examples among them, at one temperature. What documents give are its pairs."""

    annotated = True

    def __init__(self, pairs: Idc, labels: Labelled, quota: int) -> None:
        """What to mix.

        Args:
            pairs: of clusters.
            labels: drawn, at the same temperature.
            quota: labelled examples in a global batch, from 1 and fewer than all.
        """
        self.pairs, self.labels, self.quota = pairs, labels, quota
        self.none, self.pairs_at = pairs.none, pairs.pairs_at
        self.longest = max(pairs.longest, labels.longest)
        self.distillation = pairs.distillation
        self.query_labels = frozenset(FIRST_LABEL + view for view in labels.query_labels)
        self.only_ids = frozenset(FIRST_LABEL + view for view in labels.only_ids)
        # Their rows hold on to nothing.
        self.unreferred = frozenset(FIRST_LABEL + view for view in labels.not_columns)

    def identity(self) -> tuple[Any, ...]:
        """Those of both."""
        return ("mixed", self.pairs.identity(), self.labels.identity(), self.quota)

    def count_identity(self) -> tuple[Any, ...]:
        """Of pairs."""
        return self.pairs.count_identity()

    def count(self, documents: Documents) -> Counted:
        """Pairs."""
        return self.pairs.count(documents)

    def open(self, documents: Documents) -> Opened:
        """For pairs."""
        return self.pairs.open(documents)

    def views(self, opened: Opened, documents: np.ndarray, numbers: np.ndarray, seeds: np.ndarray) -> Views:
        """Of pairs."""
        return self.pairs.views(opened, documents, numbers, seeds)

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """Rows of both, and columns of both."""
        first = self.pairs.contrast(encoded.only(0, FIRST_LABEL), head)
        second = self.labels.contrast(encoded.only(FIRST_LABEL, 2 * FIRST_LABEL), head)
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
