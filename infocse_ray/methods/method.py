"""The interface of a method of making positives; the trainer uses nothing else of it.

1. From a document, so many examples a pass; an example is a few texts, its views (`count`, `open`, `views`). All of it
   is done for many documents and many examples at once: one by one, Python would take longer than a GPU's step.
2. What changes the views: on tokens (`augment`), or as inputs of the encoder (`inputs`); which dropout.
3. A head that exists in training only, and what is contrasted with what (`head`, `trained_parameters`,
   `contrast`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.layout import Pooling
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.contrast import Contrast, Encoded
from infocse_ray.methods.opened import Opened, Views


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
    def distillation(self) -> float:
        """Share of the loss that holds on to the similarities by which the encoder begins; 0 with a head."""
        ...

    @property
    def unreferred(self) -> frozenset[int]:
        """Labels of the views whose vectors by the encoder of the beginning nothing holds on to."""
        ...

    @property
    def only_ids(self) -> frozenset[int]:
        """Labels of the views that serve as ids alone: they aren't encoded, and their vectors are 0."""
        ...

    @property
    def changes_inputs(self) -> bool:
        """Whether `inputs` gives anything; texts are padded then."""
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
    def pairs_at(self) -> int | None:
        """At how many tokens a text is cut where its examples are the pairs that an annotate stage counted; no document
        is short. None: they are others, and documents must be read to count them.
        """
        ...

    def open(self, documents: Documents) -> Opened:
        """Make documents ready to deal their examples: as many as `count` says."""
        ...

    def views(self, opened: Opened, documents: np.ndarray, numbers: np.ndarray, seeds: np.ndarray) -> Views:
        """The texts of n examples.

        Args:
            opened: what `open` made, of whichever documents.
            documents: int64 [n], whose examples: rows of `opened`.
            numbers: int64 [n], which of the document's, 0 <= number < examples.
            seeds: uint64 [n]: all that chance may come from.
        """
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
            that a masked place had, -100 elsewhere; or `input_ids` and `attention_mask` int64 [b, shorter] with
            `decoded` int64 [b, length], the text that the head is to write from its vector, -100 behind it.
        """
        ...

    def head(self, encoder: SentenceEncoder) -> torch.nn.Module:
        """What sits on the encoder in training only, newly made from torch's generator; in fp32."""
        ...

    def trained_parameters(self, head: Any) -> Iterable[torch.nn.Parameter]:
        """Parameters of the head that come trained, and so learn at the encoder's rate."""
        ...

    def contrast(self, encoded: Encoded, head: Any) -> Contrast | None:
        """Rows and columns of the contrastive loss, from encoded texts; None: it has no such loss."""
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
    pairs_at: int | None = None
    distillation = 0.0
    unreferred: frozenset[int] = frozenset()
    only_ids: frozenset[int] = frozenset()
    changes_inputs = False
    head_is_new = False

    def augment(self, texts: Tokens, labels: np.ndarray, seeds: np.ndarray) -> Tokens:
        """Nothing."""
        return texts

    def inputs(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: np.ndarray, seeds: np.ndarray
    ) -> dict[str, torch.Tensor]:
        """Nothing."""
        return {}

    def head(self, encoder: SentenceEncoder | None = None) -> torch.nn.Module:
        """None: a module without parameters."""
        return torch.nn.Identity()

    def trained_parameters(self, head: torch.nn.Module) -> Iterable[torch.nn.Parameter]:
        """All of them, or none."""
        return [] if self.head_is_new else head.parameters()


class EachSentence(Plain):
    """What methods have in common whose examples are single sentences."""

    longest: int

    def count_identity(self) -> tuple[Any, ...]:
        """The same for all of these."""
        return ("sentences",)

    def count(self, documents: Documents) -> Counted:
        """An example a sentence; no document is short."""
        sizes = np.diff(documents.offsets)
        return Counted(sizes, np.zeros(len(sizes), dtype=bool))

    def open(self, documents: Documents) -> Opened:
        """Their sentences."""
        return Opened.of(documents, np.diff(documents.offsets), self.longest)


class TwoViews(EachSentence):
    """What methods have in common that contrast a sentence with itself."""

    def views(self, opened: Opened, documents: np.ndarray, numbers: np.ndarray, seeds: np.ndarray) -> Views:
        """Sentence `number`, labelled 0 and 1."""
        return Views.alike([0, 1], opened.texts.take(np.repeat(opened.offsets[documents] + numbers, 2)))


def dropout_of(rate: float, method: str, spec: EncoderSpec) -> float:
    """The dropout rate of a method that lives from it.

    Raises:
        ValueError: the encoder has no dropout.
    """
    if rate and not spec.can_drop:
        raise ValueError(
            f"{method}.dropout = {rate}: a {spec.kind} encoder has no dropout, and this method relies on "
            "dropout; use another method"
        )
    return rate
