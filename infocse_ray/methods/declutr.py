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
from infocse_ray.corpus.tokens import offsets_of, places
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.spaced import as_texts, spacing
from infocse_ray.encoder.spec import EncoderSpec, own_tokens
from infocse_ray.methods.chance import below, betas, uniforms
from infocse_ray.methods.contrast import Contrast, Encoded, two_sided
from infocse_ray.methods.method import Counted, Plain
from infocse_ray.methods.mlm_head import HeadWeights, MaskedLanguageModel
from infocse_ray.methods.opened import Opened, Views
from infocse_ray.settings import DeCLUTRSettings


class Lengths(NamedTuple):
    """Tokens of spans."""

    shortest: int
    longest: int

    def within(self, tokens: np.ndarray, anchors: int) -> tuple[np.ndarray, np.ndarray]:
        """The shortest and the longest span (int64 [n] each) that fit into documents of so many tokens (int64 [n])."""
        longest = np.maximum(1, tokens // (2 * anchors))
        short = longest < self.longest
        shortest = np.where(short, np.minimum(self.shortest, np.maximum(1, longest // 2)), self.shortest)
        return shortest, np.minimum(longest, self.longest)


_ANCHOR, _POSITIVE, _ANCHOR_BEGINS, _POSITIVE_BEGINS, _GUESSED, _INSTEAD, _OTHER = range(7)
"""What is drawn."""

_FIRST_WEIGHTS = 1
"""Of a head that starts untrained; counted up when these are others."""


class DeCLUTR(Plain):
    """Spans near each other."""

    def __init__(self, section: DeCLUTRSettings, spec: EncoderSpec, trained: HeadWeights | None = None) -> None:
        """Check that the encoder can mask.

        Args:
            section: its settings.
            spec: of the encoder.
            trained: the language-modelling head that came with the encoder.

        Raises:
            ValueError: it has no mask token though tokens are to be guessed.
        """
        if spec.mask is None and section.mask:
            raise ValueError("declutr.mask: the encoder has no mask token with a vector; set declutr.mask to 0")
        self.section, self.spec = section, spec._replace(characters=spec.characters[:0])
        self.trained = trained if section.mask else None
        self.head_is_new = section.mask > 0 and trained is None
        self.longest = min(section.max_tokens, spec.longest)
        self.lengths = Lengths(min(section.min_tokens, self.longest), self.longest)
        self.changes_inputs = section.mask > 0
        self.none = f"fewer than {section.anchors} tokens"
        self.short = f"fewer than {2 * section.anchors * self.lengths.shortest} tokens, so that spans are shorter"

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        began = self.trained.fingerprint() if self.trained else _FIRST_WEIGHTS
        # Behind more than a special token there is a prompt, which was once guessed, too.
        prompted = ["prompt"] if self.section.mask and self.spec.around[0] > 1 else []
        head = [began] if self.section.mask else []
        return ("declutr", self.section, *head, *prompted, *spacing(self.spec.behind_a_space))

    def count_identity(self) -> tuple[Any, ...]:
        """Name and what the count depends on."""
        return ("declutr", self.section.anchors, self.lengths.shortest)

    def count(self, documents: Documents) -> Counted:
        """One a document."""
        tokens = np.diff(documents.sentences.offsets[documents.offsets])
        anchors = self.section.anchors
        return Counted((tokens >= anchors).astype(np.int64), tokens < 2 * anchors * self.lengths.shortest)

    def open(self, documents: Documents) -> Opened:
        """Their tokens: a document is one example, of new spans each time."""
        return Opened.of(documents, self.count(documents).examples)

    def views(self, opened: Opened, documents: np.ndarray, numbers: np.ndarray, seeds: np.ndarray) -> Views:
        """Anchor a (label a), then positives (label `anchors` + a), a from 0."""
        first, end = (opened.texts.offsets[offsets[documents]] for offsets in (opened.offsets[:-1], opened.offsets[1:]))
        begins, lengths = self.spans(end - first, seeds)
        anchors = self.section.anchors
        labels = [*range(anchors), *(anchors + a for a in range(anchors) for _ in range(self.section.positives))]
        at = places((first[:, None] + begins).ravel(), lengths.ravel())
        return Views.alike(labels, as_texts(opened.texts, at, offsets_of(lengths.ravel()), self.spec.behind_a_space))

    def spans(self, tokens: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where spans are in documents.

        Args:
            tokens: int64 [n], of each document.
            seeds: uint64 [n].

        Returns:
            int64 [n, anchors * (1 + positives)] twice, where spans begin and how long they are: the anchors, then the
            positives of the first, and so on.
        """
        anchors, positives = self.section.anchors, self.section.positives
        shortest, longest = (size[:, None] for size in self.lengths.within(tokens, anchors))

        def sizes(a: int, b: int, width: int, purpose: int) -> np.ndarray:
            return (betas(seeds, a, b, width, purpose) * (longest - shortest) + shortest).astype(np.int64)

        size, place = sizes(4, 2, anchors, _ANCHOR), np.arange(anchors)
        first, last = tokens[:, None] * place // anchors, tokens[:, None] * (place + 1) // anchors
        begin = first + below(uniforms(seeds, anchors, _ANCHOR_BEGINS), last - size - first + 1)
        near = sizes(2, 4, anchors * positives, _POSITIVE)
        ends, begins = (column.repeat(positives, axis=1) for column in (begin + size, begin))
        least, most = np.maximum(0, begins - near), np.minimum(ends, tokens[:, None] - near)
        start = least + below(uniforms(seeds, anchors * positives, _POSITIVE_BEGINS), most - least + 1)
        return np.concatenate([begin, start], axis=1), np.concatenate([size, near], axis=1)

    def inputs(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: np.ndarray, seeds: np.ndarray
    ) -> dict[str, torch.Tensor]:
        """Anchors with tokens to be guessed."""
        rows = np.flatnonzero(labels < self.section.anchors)
        if not self.section.mask or not len(rows):
            return {}
        ids = input_ids.numpy().copy()
        mlm_labels = np.full(ids.shape, -100, dtype=np.int64)
        # By the place in the row: how far it is padded must not change what is guessed.
        width, mine = ids.shape[1], ids[rows]
        guessed, instead, other = (uniforms(seeds[rows], width, what) for what in (_GUESSED, _INSTEAD, _OTHER))
        own = own_tokens(attention_mask.numpy()[rows], self.spec.around) & ~np.isin(mine, self.spec.special)
        chosen = (guessed < self.section.mask) & own
        mlm_labels[rows] = np.where(chosen, mine, -100)
        swapped = np.where(instead < 0.9, mine, below(other, self.spec.vocabulary))
        assert self.spec.mask is not None
        ids[rows] = np.where(chosen, np.where(instead < 0.8, self.spec.mask, swapped), mine)
        return {"input_ids": torch.from_numpy(ids), "mlm_labels": torch.from_numpy(mlm_labels)}

    def head(self, encoder: SentenceEncoder | None = None) -> torch.nn.Module:
        """For guessing tokens, if any are to be guessed."""
        if not self.section.mask:
            return torch.nn.Identity()
        spec = self.spec
        return MaskedLanguageModel(spec.hidden, spec.word, spec.vocabulary, self.trained)

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """NT-Xent between anchors and the means of their positives."""
        anchors = self.section.anchors
        first, second = encoded.where(*range(anchors)), encoded.where(*range(anchors, 2 * anchors))
        groups = encoded.owner[second] * anchors + encoded.labels[second] - anchors
        means = encoded.means(second, groups, len(first), normalize=False)
        return two_sided(encoded.side(first), means, self.section.temperature, same_document=True)
