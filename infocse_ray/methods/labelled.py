"""Fine-tuning on labelled pairs (section 3.3 of arXiv 2202.13802): a document and its counterpart.

1. An example is a document and one of its counterparts; a document of several is as many examples.
2. The document's vector is the mean of its sentences' vectors, and is trained through all.
3. The document is to find its counterpart among those of the batch's other documents, one way (Eq. 1's form).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import concatenate, offsets_of, places
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.contrast import Contrast, Encoded, own
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.methods.method import Counted, Plain
from infocse_ray.methods.opened import Opened, Views

_FORMAT = 2
"""Counted up when the same settings give another training."""

_SENTENCE, _COUNTERPART, _OTHER = 0, 1, 2


class Labelled(Plain):
    """Documents and their counterparts; none of a document's that were drawn is its negative, whoever's example it is.

    Those that weren't drawn are labels that nobody has: one may be a negative, as another document's.
    """

    none = "no counterpart among the drawn"
    query_labels = frozenset({_COUNTERPART, _OTHER})
    only_ids = frozenset({_OTHER})
    not_columns = frozenset({_SENTENCE, _OTHER})
    """Views whose vectors are in no column."""

    def __init__(self, drawn: LabelSample, temperature: float, cosine: bool, spec: EncoderSpec) -> None:
        """What to train on, and how.

        Args:
            drawn: which labelled examples.
            temperature: similarities are divided by it.
            cosine: whether document vectors are scaled to length 1, as sentences' are.
            spec: of the encoder.
        """
        self.drawn, self.temperature, self.cosine = drawn, temperature, cosine
        self.sentence, self.counterpart = spec.sentence_tokens, spec.query_tokens
        self.longest = max(self.sentence, self.counterpart)

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        return ("labelled", _FORMAT, self.drawn, self.temperature, self.cosine)

    def count_identity(self) -> tuple[Any, ...]:
        """Name and what the count depends on."""
        return ("labelled", self.drawn)

    def count(self, documents: Documents) -> Counted:
        """Counterparts of each document that were drawn."""
        assert documents.counterparts is not None
        rows, keys, _ = documents.counterparts
        drawn = self.drawn.has(documents.keys[rows], keys)
        return Counted(np.bincount(rows[drawn], minlength=len(documents.keys)), np.zeros(len(documents.keys), bool))

    def open(self, documents: Documents) -> Opened:
        """Their sentences, then their counterparts that were drawn."""
        assert documents.counterparts is not None
        rows, keys, tokens = documents.counterparts
        drawn = np.flatnonzero(self.drawn.has(documents.keys[rows], keys))
        sentences, counterparts = documents.sentences.cut(self.sentence), tokens.take(drawn).cut(self.counterpart)
        sizes, examples = np.diff(documents.offsets), np.bincount(rows[drawn], minlength=len(documents.keys))
        owner = np.concatenate([np.arange(len(sizes)).repeat(sizes), rows[drawn]])
        texts = concatenate([sentences, counterparts]).take(np.argsort(owner, kind="stable"))
        return Opened(texts, offsets_of(sizes + examples), examples, np.zeros((len(texts), 0), np.int64))

    def views(self, opened: Opened, documents: np.ndarray, numbers: np.ndarray, seeds: np.ndarray) -> Views:
        """Its sentences (0 each), counterpart `number` (1), and its other counterparts (2 each), which serve as ids."""
        sizes, examples = opened.sizes[documents], opened.examples[documents]
        owner = np.arange(len(documents)).repeat(sizes)
        counterpart = places(examples - sizes, sizes)  # which it is, less than 0 for a sentence
        labels = np.where(counterpart == numbers[owner], _COUNTERPART, np.where(counterpart < 0, _SENTENCE, _OTHER))
        return Views(owner, labels, opened.texts.take(places(opened.offsets[documents], sizes)))

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """Rows are the documents, columns the counterparts."""
        sentences, labels, others = (encoded.where(view) for view in (_SENTENCE, _COUNTERPART, _OTHER))
        rows = encoded.means(sentences, encoded.owner[sentences], len(labels), self.cosine)
        besides = (encoded.owner[others], encoded.texts[others])
        return Contrast(rows, encoded.side(labels), own(len(labels), labels.device), self.temperature, besides=besides)
