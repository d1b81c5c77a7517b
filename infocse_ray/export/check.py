"""What an export loses: the same questions asked of the original and of the export, on this machine, in fp32."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import torch

from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.export.formats import GraphEncoder
from infocse_ray.export.questions import Asked
from infocse_ray.retrieval.bootstrap import Lead, paired_bootstrap
from infocse_ray.retrieval.held_out import HeldOut
from infocse_ray.retrieval.ranks import scores_by, shown
from infocse_ray.retrieval.scores import Scores
from infocse_ray.retrieval.validation import score
from infocse_ray.retrieval.verdict import asked, difference
from infocse_ray.settings import Metric

TEXTS = 1_000
"""That vectors are compared of, at most."""

AnyEncoder = SentenceEncoder | GraphEncoder


class Vectors(NamedTuple):
    """How far the vectors of the same texts are apart."""

    difference: float
    """The largest of any component; NaN where there are fewer dimensions."""
    cosine: float
    """The smallest of a text's two vectors; NaN where there are fewer dimensions."""
    texts: int


class Check(NamedTuple):
    """What the original scored, and what the export did."""

    metric: Metric
    on: str
    before: dict[str, float]
    after: dict[str, float]
    lead: Lead
    """Of the export over the original."""

    def line(self) -> str:
        """For people."""
        lost = self.before[self.metric] - self.after[self.metric]
        name = "recall" if self.metric.startswith("recall") else "MRR"  # pyright: ignore
        return (
            f"{name} lost: {lost + 0.0:.4f} ({self.metric} {shown(self.before, self.metric)} before, "
            f"{shown(self.after, self.metric)} after; difference {difference(self.lead)}, {asked(self.lead)})"
        )

    def content(self) -> dict[str, Any]:
        """For programs."""
        lead = {name: getattr(self.lead, name) for name in ("difference", "low", "high", "questions", "documents")}
        return {"metric": self.metric, "on": self.on, "before": self.before, "after": self.after, **lead}


def answers(encoder: AnyEncoder, what: Asked) -> Scores:
    """What an encoder, on the CPU and in fp32, or a graph answers.

    Raises:
        ValueError: there are no questions.
    """
    return score(cast(SentenceEncoder, encoder), what.questions)


def check(original: Scores, exported: Scores, what: Asked, metric: Metric) -> Check:
    """Hold the answers of an export against those of the original.

    Args:
        original: what it answered.
        exported: what the export did.
        what: the questions.
        metric: that the bootstrap compares.
    """
    documents = pa.array(what.questions.doc_ids).dictionary_encode().indices.to_numpy()
    lead = paired_bootstrap(scores_by(metric, exported.ranks), scores_by(metric, original.ranks), documents)
    return Check(metric, what.on, original.metrics, exported.metrics, lead)


def apart(original: SentenceEncoder, exported: AnyEncoder, texts: Tokens) -> Vectors:
    """Compare vectors.

    Args:
        original: on the CPU, in fp32.
        exported: the same encoder in another form.
        texts: of documents, those that are embedded.
    """
    theirs, ours = (embed(cast(SentenceEncoder, one), texts).vectors for one in (original, exported))
    if theirs.shape != ours.shape:
        return Vectors(float("nan"), float("nan"), len(texts))
    cosines = torch.nn.functional.cosine_similarity(theirs, ours, dim=-1)
    return Vectors(float((theirs - ours).abs().max()), float(cosines.min()), len(texts))


def texts_of(what: Asked | None, encoder: SentenceEncoder) -> Tokens:
    """Sentences of the documents that ask; without questions a few made of the vocabulary, of all lengths."""
    if what is not None:
        questions = what.questions
        sentences = questions.sentences if isinstance(questions, HeldOut) else questions.documents.sentences
        return sentences.take(np.linspace(0, len(sentences) - 1, min(TEXTS, len(sentences))).astype(np.int64))
    sizes = np.arange(1, encoder.room() + 1)
    # Of tokens that were added some may have no vector.
    rows = min(len(encoder.tokenizer), len(encoder.backbone.get_input_embeddings().weight))
    ids = np.setdiff1d(np.arange(rows), encoder.tokenizer.all_special_ids)
    return Tokens(np.random.default_rng(0).choice(ids, sizes.sum()).astype(np.uint32), offsets_of(sizes))
