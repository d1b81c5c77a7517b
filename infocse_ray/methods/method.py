"""The interface of a method of making positives; the trainer uses nothing else of it.

1. From a document, so many examples a pass; an example is a few texts, its views (`count`, `open`).
2. What changes the views: on tokens (`augment`), or as inputs of the encoder (`inputs`); which dropout.
3. A head that exists in training only, and what is contrasted with what (`head`, `contrast`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from infocse_ray.corpus.store import Counterparts, Documents
from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.layout import Pooling
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.contrast import Contrast, Encoded, View


class Document(NamedTuple):
    """One document, as a method gets it."""

    doc_id: str
    key: int
    """63-bit hash of the id."""
    sentences: Tokens
    clusters: np.ndarray | None = None
    """int32 [sentences], where it is annotated."""
    counterparts: Counterparts | None = None
    """Its labels, where these are read."""

    def sentence(self, number: int, longest: int) -> np.ndarray:
        """Token ids of a sentence, cut to `longest`."""
        start, end = self.sentences.offsets[number : number + 2]
        return self.sentences.values[start : min(end, start + longest)]

    def passage(self, first: int, last: int, longest: int) -> np.ndarray:
        """Token ids of sentences first..last-1 as one text, cut to `longest`."""
        start, end = self.sentences.offsets[first], self.sentences.offsets[last]
        return self.sentences.values[start : min(end, start + longest)]


class Opened(Protocol):
    """A document whose examples are dealt."""

    @property
    def examples(self) -> int:
        """How many it has."""
        ...

    def views(self, number: int, random: np.random.Generator) -> list[View]:
        """The texts of example `number`, 0 <= number < examples; chance comes from `random` alone."""
        ...


class Counted(NamedTuple):
    """What documents give."""

    examples: np.ndarray
    """int64 [documents]."""
    short: np.ndarray
    """bool [documents]: shorter than the method's published window; see the method for what becomes of them."""


class Method(Protocol):
    """A method of making positives."""

    longest: int
    """Tokens of its longest text, without special tokens and prompt."""

    @property
    def query_labels(self) -> frozenset[int]:
        """Labels of the views that are counterparts, not a document's: they get the prompt of queries."""
        ...

    @property
    def annotated(self) -> bool:
        """Whether it needs clusters, and so an annotated corpus."""
        ...

    @property
    def dropout(self) -> float | None:
        """Of the encoder in training; None: what the encoder's configuration says."""
        ...

    @property
    def has_mlm_labels(self) -> bool:
        """Whether `inputs` gives `mlm_labels`."""
        ...

    @property
    def head_is_new(self) -> bool:
        """Whether it has a head that starts untrained, and so learns at `train.head_learning_rate`."""
        ...

    @property
    def short(self) -> str:
        """What makes a document short, for people."""
        ...

    @property
    def none(self) -> str:
        """Why a document has no examples, in words for the log."""
        ...

    def identity(self) -> tuple[Any, ...]:
        """What names its results: its name and every setting that it reads."""
        ...

    def count(self, documents: Documents) -> Counted:
        """Examples of each document; what `open` then deals."""
        ...

    def count_identity(self) -> tuple[Any, ...]:
        """What names the result of `count`: what can change it, and nothing else."""
        ...

    @property
    def annotated_count(self) -> tuple[str, int] | None:
        """Which count of an annotate stage is that of its examples (see `EXAMPLES`), and at how many tokens a text is
        cut there; no document is short. None: documents must be read to count.
        """
        ...

    def open(self, document: Document) -> Opened:
        """Make a document ready to deal its examples."""
        ...

    def augment(self, texts: Tokens, labels: np.ndarray, seeds: np.ndarray) -> Tokens:
        """The texts with what the method changes about their tokens.

        Args:
            texts: n texts.
            labels: int64 [n], of the views.
            seeds: uint64 [n]: all that chance may come from.
        """
        ...

    def inputs(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: np.ndarray, seeds: np.ndarray
    ) -> dict[str, torch.Tensor]:
        """What the encoder gets beside or in place of these.

        Args:
            input_ids: int64 [b, length], with special tokens, padded on the right.
            attention_mask: int64 [b, length].
            labels: int64 [b], of the views.
            seeds: uint64 [b]: all that chance may come from.

        Returns:
            Any of `input_ids`; `position_ids` int64 [b, length], from 0; `keep` bool [b, 1 or length, 1 or d], the
            elements of the embedding layer's output that are not set to 0; `mlm_labels` int64 [b, length], the token
            that a masked place had, -100 elsewhere.
        """
        ...

    def head(self) -> torch.nn.Module:
        """What sits on the encoder in training only, newly made from torch's generator; in fp32."""
        ...

    def contrast(self, encoded: Encoded, head: Any) -> Contrast:
        """Rows and columns of the contrastive loss, from encoded texts."""
        ...


class Plain:
    """What most methods have in common: nothing is augmented, there is no head, dropout is the encoder's own."""

    annotated = False
    query_labels: frozenset[int] = frozenset()
    dropout: float | None = None
    pooling: Pooling = "mean"
    """What the method publishes for a backbone that has no pooling of its own."""
    short = ""
    none = "no sentence"
    annotated_count: tuple[str, int] | None = None
    has_mlm_labels = False
    head_is_new = False

    def augment(self, texts: Tokens, labels: np.ndarray, seeds: np.ndarray) -> Tokens:
        """Nothing."""
        return texts

    def inputs(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: np.ndarray, seeds: np.ndarray
    ) -> dict[str, torch.Tensor]:
        """Nothing."""
        return {}

    def head(self) -> torch.nn.Module:
        """None: a module without parameters."""
        return torch.nn.Identity()


class Sentences(NamedTuple):
    """A document each of whose sentences is an example of two equal views, labelled 0 and 1."""

    document: Document
    longest: int

    @property
    def examples(self) -> int:
        """One a sentence."""
        return len(self.document.sentences)

    def views(self, number: int, random: np.random.Generator) -> list[View]:
        """Sentence `number`, twice."""
        tokens = self.document.sentence(number, self.longest)
        return [View(tokens, 0), View(tokens, 1)]


class TwoViews(Plain):
    """What methods have in common that contrast a sentence with itself."""

    longest: int

    def count_identity(self) -> tuple[Any, ...]:
        """The same for all of these."""
        return ("sentences",)

    def count(self, documents: Documents) -> Counted:
        """An example a sentence; no document is short."""
        sizes = np.diff(documents.offsets)
        return Counted(sizes, np.zeros(len(sizes), dtype=bool))

    def open(self, document: Document) -> Sentences:
        """Each sentence twice."""
        return Sentences(document, self.longest)


def dropout_of(rate: float, method: str, spec: EncoderSpec) -> float:
    """The dropout rate of a method that lives from it.

    Raises:
        ValueError: the encoder has no dropout.
    """
    if rate and not spec.can_drop:
        raise ValueError(
            f"{method}.dropout = {rate}: a {spec.kind} encoder has no dropout layers, and this method relies on "
            "dropout; use another method"
        )
    return rate


def generator(seed: int) -> np.random.Generator:
    """Random numbers that depend on a 64-bit seed only."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)))
