"""DeCLUTR (Giorgi et al. 2021): spans of a document near each other, and masked-language modelling.

1. The document's token stream has 2 anchors, each with 2 positives that overlap it, touch it or lie inside it. With
   lengths from `shortest` to `longest` tokens, an anchor's is int(Beta(4, 2) * (longest - shortest) + shortest), a
   positive's the same of Beta(2, 4).
2. NT-Xent, by cosine at temperature 0.05, between an anchor and the mean of its positives; the spans of the other
   anchor stay as negatives, though they are of the same document, as published ("hard" negatives).
3. Anchors are encoded with 15 % of their tokens to be guessed (80 % masked, 10 % another token, 10 % as they are); the
   mean cross entropy of the predictions is added to the loss.

Published: mean pooling, spans of 32 to 512 tokens, 4 documents a batch, AdamW at 5e-5, weight decay 0.1, gradients
clipped at 1. Deviations: the run's batch (of documents), steps, learning rate, weight decay and clipping; each anchor
is drawn from a part of the document of its own, one of as many as there are anchors; encoders tuned for sentences come
without a language-modelling head, and where the checkpoint has none it starts untrained, with a learning rate of its
own (its output layer is the word embeddings, as in BERT). The published corpus has only documents of 2 * anchors *
longest tokens or more. Here a shorter document's longest span is its tokens / (2 * anchors), and its shortest span half
of that where this is less than published; documents whose longest span is under the published shortest are counted as
short, and one of fewer tokens than anchors gives no example.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from infocse_ray.corpus.store import Documents
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.contrast import Contrast, Encoded, View, two_sided
from infocse_ray.methods.method import Counted, Document, Plain, generator
from infocse_ray.methods.mlm_head import HeadWeights, MaskedLanguageModel
from infocse_ray.settings import DeCLUTRSettings


class Lengths(NamedTuple):
    """Tokens of spans."""

    shortest: int
    longest: int

    def within(self, tokens: int, anchors: int) -> Lengths:
        """The span lengths that fit into a document of so many tokens."""
        if (longest := max(1, tokens // (2 * anchors))) >= self.longest:
            return self
        return Lengths(min(self.shortest, max(1, longest // 2)), longest)

    def draw(self, a: float, b: float, random: np.random.Generator) -> int:
        """A length from Beta(a, b) over the range."""
        return int(random.beta(a, b) * (self.longest - self.shortest) + self.shortest)


class Stream(NamedTuple):
    """A document as a stream of tokens; it is one example, of new spans each time."""

    document: Document
    section: DeCLUTRSettings
    lengths: Lengths

    @property
    def examples(self) -> int:
        """1, or 0 where there are fewer tokens than anchors."""
        return int(len(self.document.sentences.values) >= self.section.anchors)

    def views(self, number: int, random: np.random.Generator) -> list[View]:
        """Anchor a (label a), then positives (label `anchors` + a), a from 0."""
        spans = self.spans(random)
        values, anchors = self.document.sentences.values, self.section.anchors
        views = [View(values[begin:end], a) for a, ((begin, end), _) in enumerate(spans)]
        views += [View(values[b:e], anchors + a) for a, (_, positives) in enumerate(spans) for b, e in positives]
        return views

    def spans(self, random: np.random.Generator) -> list[tuple[tuple[int, int], list[tuple[int, int]]]]:
        """Each anchor's begin and end in the stream, and those of its positives."""
        tokens, anchors = len(self.document.sentences.values), self.section.anchors
        lengths = self.lengths.within(tokens, anchors)
        spans = []
        for a in range(anchors):
            first, last = tokens * a // anchors, tokens * (a + 1) // anchors
            size = lengths.draw(4, 2, random)
            begin = int(random.integers(first, last - size + 1))
            end = begin + size
            positives = []
            for _ in range(self.section.positives):
                size = lengths.draw(2, 4, random)
                start = int(random.integers(max(0, begin - size), min(end, tokens - size) + 1))
                positives.append((start, start + size))
            spans.append(((begin, end), positives))
        return spans


class DeCLUTR(Plain):
    """Spans near each other."""

    def __init__(self, section: DeCLUTRSettings, spec: EncoderSpec, trained: HeadWeights | None = None) -> None:
        """Check that the encoder can mask.

        Args:
            section: its settings.
            spec: of the encoder.
            trained: the language-modelling head that came with the encoder.

        Raises:
            ValueError: its tokenizer has no mask token though tokens are to be guessed.
        """
        if spec.mask is None and section.mask:
            raise ValueError("declutr.mask: the encoder's tokenizer has no mask token; set declutr.mask to 0")
        self.section, self.spec = section, spec._replace(characters=spec.characters[:0])
        self.trained = trained if section.mask else None
        self.head_is_new = section.mask > 0 and trained is None
        self.longest = min(section.max_tokens, spec.longest)
        self.lengths = Lengths(min(section.min_tokens, self.longest), self.longest)
        self.has_mlm_labels = section.mask > 0
        self.none = f"fewer than {section.anchors} tokens"
        self.short = f"fewer than {2 * section.anchors * self.lengths.shortest} tokens, so that spans are shorter"

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        return ("declutr", self.section, *([self.trained.fingerprint()] if self.trained else []))

    def count_identity(self) -> tuple[Any, ...]:
        """Name and what the count depends on."""
        return ("declutr", self.section.anchors, self.lengths.shortest)

    def count(self, documents: Documents) -> Counted:
        """One a document."""
        tokens = np.diff(documents.sentences.offsets[documents.offsets])
        anchors = self.section.anchors
        return Counted((tokens >= anchors).astype(np.int64), tokens < 2 * anchors * self.lengths.shortest)

    def open(self, document: Document) -> Stream:
        """The document's tokens."""
        return Stream(document, self.section, self.lengths)

    def inputs(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: np.ndarray, seeds: np.ndarray
    ) -> dict[str, torch.Tensor]:
        """Anchors with tokens to be guessed."""
        rows = np.flatnonzero(labels < self.section.anchors)
        if not self.section.mask or not len(rows):
            return {}
        ids = input_ids.numpy().copy()
        mlm_labels = np.full(ids.shape, -100, dtype=np.int64)
        for row in rows.tolist():
            random = generator(int(seeds[row]))
            # Of the row's own length: how far it is padded must not change what is guessed.
            places = np.flatnonzero(attention_mask[row].numpy())
            draw, what = random.random(len(places)), random.random(len(places))
            other = random.integers(self.spec.vocabulary, size=len(places))
            chosen = (draw < self.section.mask) & ~np.isin(ids[row, places], self.spec.special)
            mlm_labels[row, places[chosen]] = ids[row, places[chosen]]
            ids[row, places[chosen & (what < 0.8)]] = self.spec.mask
            swapped = chosen & (what >= 0.9)
            ids[row, places[swapped]] = other[swapped]
        return {"input_ids": torch.from_numpy(ids), "mlm_labels": torch.from_numpy(mlm_labels)}

    def head(self) -> torch.nn.Module:
        """For guessing tokens, if any are to be guessed."""
        if not self.section.mask:
            return torch.nn.Identity()
        spec = self.spec
        return MaskedLanguageModel(spec.hidden, spec.embedding, spec.vocabulary, self.trained)

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """NT-Xent between anchors and the means of their positives."""
        anchors = self.section.anchors
        first, second = encoded.where(*range(anchors)), encoded.where(*range(anchors, 2 * anchors))
        groups = encoded.owner[second] * anchors + encoded.labels[second] - anchors
        means = encoded.means(second, groups, len(first), normalize=False)
        return two_sided(encoded.side(first), means, self.section.temperature, same_document=True)
