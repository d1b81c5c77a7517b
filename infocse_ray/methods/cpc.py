"""Contrastive Predictive Coding on sentences (van den Oord, Li and Vinyals 2018): a context predicts what follows it.

1. A window of six sentences: three of context, then three targets.
2. In training a GRU reads the context's vectors; for each distance k = 1..3 the prediction of the vector k sentences on
   is the mean of the context's vectors and what a linear map W_k makes of the GRU's last state.
3. A prediction is to find its target among the targets of the batch at all distances, by inner product.

Published for text: a 2400-dimensional GRU on BookCorpus sentences, 3 predicted. Deviations: GRU and W_k have the
encoder's dimension; the mean is added, the GRU starts without biases and W_k at 0, because the vectors they read and
predict have a meaning from the start: before training a prediction is the mean of its context, and the encoder isn't
bent to a GRU drawn at random; both learn at a rate of their own; the run's batch, steps, learning rate and temperature.
The other targets of a window stay as negatives, though they are of the same document: telling distances apart is the
method. A document shorter than the window has one window, cut to it: half of its sentences, rounded down, are the
context, or more where fewer are left to predict than there are distances.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from infocse_ray.corpus.store import Documents
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.contrast import Contrast, Encoded, Side, sizes_of
from infocse_ray.methods.first_weights import without_biases
from infocse_ray.methods.method import Counted, Plain
from infocse_ray.methods.opened import Opened, Views
from infocse_ray.settings import CPCSettings, Train


class Predictor(torch.nn.Module):
    """The GRU over a context and the maps W_k, on top of the context's mean."""

    def __init__(self, dimension: int, ahead: int) -> None:
        super().__init__()
        self.gru = without_biases(torch.nn.GRU(dimension, dimension, batch_first=True))
        self.maps = torch.nn.Parameter(torch.zeros(ahead, dimension, dimension))

    def forward(self, contexts: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        """Predictions.

        Args:
            contexts: float [n, most, d], padded with 0 at the end.
            sizes: int64 [n], sentences of each context, at least 1.

        Returns:
            float [n, ahead, d].
        """
        if not len(sizes):  # a worker may have none, and cuDNN doesn't take an empty batch
            return contexts.new_zeros(0, *self.maps.shape[:2])
        states, _ = self.gru(contexts)
        last = states[torch.arange(len(sizes), device=sizes.device), sizes - 1]
        mean = contexts.sum(1) / sizes[:, None]
        return mean[:, None] + torch.einsum("nd,ked->nke", last, self.maps)


class CPC(Plain):
    """The sentences before and those to come."""

    head_is_new = True

    def __init__(self, section: CPCSettings, train: Train, spec: EncoderSpec) -> None:
        self.section, self.dimension = section, spec.dimension
        self.temperature = section.temperature or train.temperature
        self.longest = spec.sentence_tokens
        self.short = f"fewer than {section.context + section.ahead} sentences, so that a window is the document"

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        return ("cpc", self.section, self.temperature)

    def count_identity(self) -> tuple[Any, ...]:
        """Name and what the count depends on."""
        return ("cpc", self.section.context, self.section.ahead)

    def count(self, documents: Documents) -> Counted:
        """One a place of the window."""
        sizes = np.diff(documents.offsets)
        window = self.section.context + self.section.ahead
        return Counted(np.maximum(1, sizes - window + 1), sizes < window)

    def open(self, documents: Documents) -> Opened:
        """Their sentences."""
        return Opened.of(documents, self.count(documents).examples, self.longest)

    def views(self, opened: Opened, documents: np.ndarray, numbers: np.ndarray, seeds: np.ndarray) -> Views:
        """The context (0 each), then the target k sentences on (k each)."""
        sizes, first = opened.sizes[documents], opened.offsets[documents] + numbers
        short = sizes < self.section.context + self.section.ahead
        most = np.maximum(sizes // 2, sizes - self.section.ahead)
        context = np.where(short, np.minimum(self.section.context, most), self.section.context)
        ahead = np.where(short, np.minimum(self.section.ahead, sizes - context), self.section.ahead)
        place = np.arange(self.section.context + self.section.ahead)
        labels = np.maximum(0, place - context[:, None] + 1)
        return Views.some(opened, first[:, None] + place, labels, labels <= ahead[:, None])

    def head(self, encoder: SentenceEncoder | None = None) -> torch.nn.Module:
        """GRU and W_k."""
        return Predictor(self.dimension, self.section.ahead)

    def contrast(self, encoded: Encoded, head: Predictor) -> Contrast:
        """Rows are the predictions, columns the targets."""
        before, after = encoded.where(0), encoded.where(*range(1, self.section.ahead + 1))
        owner = encoded.owner[before]
        count = len(encoded.where(1))  # every window has the target that comes first
        sizes = sizes_of(owner, count)
        place = torch.arange(len(before), device=before.device) - (torch.cumsum(sizes, 0) - sizes)[owner]
        contexts = encoded.vectors.new_zeros(count, self.section.context, self.dimension)
        contexts = contexts.index_put((owner, place), encoded.vectors[before])
        columns = encoded.side(after)
        whose, distance = encoded.owner[after], encoded.labels[after] - 1
        predictions = head(contexts, sizes)[whose, distance]
        # A prediction stands for the sentence before its target: that text must not be its negative.
        last = torch.cumsum(sizes, 0) - 1
        rows = Side(predictions, columns.documents, encoded.texts[before][last][whose])
        positive = torch.arange(len(after), device=after.device)
        return Contrast(rows, columns, positive, self.temperature, same_document=True)
