"""CONPONO (Iter et al. 2020), in its bi-encoder form: a passage predicts the sentences near it, by distance.

1. The passage is up to 4 sentences in a row, one text; the targets are 4 of the sentences at distances -4..-1 and 1..4.
2. In training a bilinear map W_k for each distance k turns the passage's vector into a prediction of the target's.
3. The prediction is to find its target among all targets of the batch: sentences of other documents, and, as in the
   paper, those at other distances of the same document. Softmax, or a margin.

Published: CLS pooling, 28 distractors, learning rate 5e-5, warm-up over 10 %, documents of fewer than 8 sentences
dropped. Deviations: the distractors are all other targets of the batch; W_k is the identity and a map that starts at 0,
because the vectors it maps to have a meaning from the start, and learns at a rate of its own; the run's batch, steps,
learning rate, warm-up and temperature; an encoder that comes with a pooling keeps it. Documents of fewer than 8
sentences stay: their passage is half of the document at most, and they have the targets that there are.

As what initialises InfoCSE it encodes single sentences: "each sentence is encoded to predict other sentences within the
same context" (section 3.2 of arXiv 2202.13802). `conpono.context` sets the sentences of the passage for both uses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import offsets_of, places
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.spaced import as_texts, spacing
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.chance import ranks, uniforms
from infocse_ray.methods.contrast import Contrast, Encoded, Side
from infocse_ray.methods.method import Counted, Plain
from infocse_ray.methods.opened import Opened, Views
from infocse_ray.settings import CONPONOSettings, Train

PUBLISHED_CONTEXT = 4
"""Sentences of the passage in CONPONO's paper."""

INITIAL_CONTEXT = 1
"""Those of the passage where CONPONO initialises InfoCSE."""


class Bilinear(torch.nn.Module):
    """A map W_k for each distance: the identity, and what is learnt."""

    def __init__(self, dimension: int, distances: int) -> None:
        super().__init__()
        # Without the identity, weight decay would draw the maps to 0, which tells no passages apart.
        self.maps = torch.nn.Parameter(torch.zeros(distances, dimension, dimension))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Predictions of passages [n, d] at each distance, [n, distances, d]."""
        return vectors[:, None] + torch.einsum("nd,ked->nke", vectors, self.maps)


class CONPONO(Plain):
    """A passage and the sentences near it."""

    pooling = "cls"
    head_is_new = True

    def __init__(self, section: CONPONOSettings, train: Train, spec: EncoderSpec, initializes: bool = False) -> None:
        """Settle the passage.

        Args:
            section: its settings.
            train: the run's training.
            spec: of the encoder.
            initializes: whether it makes the encoder that InfoCSE annotates with first.
        """
        self.section, self.dimension = section, spec.dimension
        self.context = section.context or (INITIAL_CONTEXT if initializes else PUBLISHED_CONTEXT)
        self.temperature = section.temperature or train.temperature
        self.sentence = spec.sentence_tokens
        self.behind_a_space = spec.behind_a_space if self.context > 1 else None
        self.passage = min(self.context * self.sentence, spec.longest)
        self.longest = max(self.sentence, self.passage)
        self.short = f"fewer than {2 * self.context} sentences, so that a passage is half of the document"

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        section = self.section.model_copy(update={"context": self.context})
        return ("conpono", section, self.temperature, *spacing(self.behind_a_space))

    def count_identity(self) -> tuple[Any, ...]:
        """Name and what the count depends on."""
        return ("conpono", self.context)

    def count(self, documents: Documents) -> Counted:
        """One a place of the passage."""
        sizes = np.diff(documents.offsets)
        return Counted(sizes - self._passage_of(sizes) + 1, sizes < 2 * self.context)

    def open(self, documents: Documents) -> Opened:
        """Their sentences."""
        return Opened.of(documents, self.count(documents).examples)

    def views(self, opened: Opened, documents: np.ndarray, numbers: np.ndarray, seeds: np.ndarray) -> Views:
        """The passage (0), then targets: label k is k sentences after it, `offsets` + k is k sentences before it."""
        sizes, first = opened.sizes[documents], opened.offsets[documents]
        after, reach = numbers + self._passage_of(sizes), np.arange(self.section.offsets)
        rows = np.concatenate([after[:, None] + reach, numbers[:, None] - 1 - reach], axis=1)
        there = (rows >= 0) & (rows < sizes[:, None])
        # Those that are there come first in the order of their draws.
        drawn = uniforms(seeds, rows.shape[1]) + ~there
        there &= ranks(drawn, np.full(len(rows), rows.shape[1])) < self.section.targets
        tokens = opened.texts.offsets
        begins, ends = tokens[first + numbers], tokens[first + after]
        begins = np.concatenate([begins[:, None], np.where(there, tokens[first[:, None] + rows * there], 0)], axis=1)
        ends = np.concatenate([ends[:, None], np.where(there, tokens[first[:, None] + rows * there + 1], 0)], axis=1)
        there = np.concatenate([np.ones((len(rows), 1), bool), there], axis=1)
        labels = np.broadcast_to(np.arange(there.shape[1]), there.shape)[there]
        lengths = np.minimum((ends - begins)[there], np.where(labels, self.sentence, self.passage))
        at = places(begins[there], lengths)
        texts = as_texts(opened.texts, at, offsets_of(lengths), self.behind_a_space)
        return Views(np.nonzero(there)[0], labels, texts)

    def _passage_of(self, sizes: np.ndarray) -> np.ndarray:
        """int64: sentences of the passages of documents of so many."""
        return np.minimum(self.context, np.maximum(1, sizes // 2))

    def head(self, encoder: SentenceEncoder | None = None) -> torch.nn.Module:
        """W_k."""
        return Bilinear(self.dimension, 2 * self.section.offsets)

    def contrast(self, encoded: Encoded, head: Bilinear) -> Contrast:
        """Rows are the predictions, columns the targets."""
        passages, targets = encoded.where(0), encoded.where(*range(1, 2 * self.section.offsets + 1))
        columns = encoded.side(targets)
        whose, distance = encoded.owner[targets], encoded.labels[targets] - 1
        rows = Side(head(encoded.vectors[passages])[whose, distance], columns.documents, encoded.texts[passages][whose])
        positive = torch.arange(len(targets), device=targets.device)
        section = self.section
        return Contrast(rows, columns, positive, self.temperature, True, section.form, section.margin)
