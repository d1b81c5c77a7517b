"""A labelled corpus embedded once, so that many maps can be judged on it: by its labels, and without them."""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
import torch

from infocse_ray.benchmarks.corpora import MAX_LENGTH
from infocse_ray.benchmarks.measure import local_ray
from infocse_ray.corpus.prepare import prepare
from infocse_ray.corpus.source import find_source
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokens import owners
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.retrieval.documents import embed_whole, halves, mean_vectors, one_text_each
from infocse_ray.retrieval.held_out import HeldOut, held_out_for, score_held_out
from infocse_ray.retrieval.ranks import LeftOut, metrics_of, rank_among
from infocse_ray.retrieval.validation import questions_for
from infocse_ray.settings import Corpus, Encoder
from infocse_ray.storage.folder import Storage

VALID, TEST = 0.25, 0.75
"""Shares of the documents: those that validate have labels too, which the validators without labels don't read."""


def corpus_settings(arguments: argparse.Namespace) -> Corpus:
    """The corpus that the command line names; all its documents validate or test."""
    columns = {name: getattr(arguments, name) for name in ("text", "sentences", "counterpart")}
    return Corpus(
        source=arguments.corpus,
        **columns,
        min_sentences=arguments.min_sentences,
        max_document_sentences=arguments.max_document_sentences,
        valid_fraction=VALID,
        test_fraction=TEST,
    )


def prepare_labelled(work: str, arguments: argparse.Namespace) -> TokenStore:
    """The corpus' token store, made in a Ray of its own.

    Raises:
        ValueError: no document has a counterpart.
    """
    corpus = corpus_settings(arguments)
    source = find_source(corpus)
    source.columns.pop("split", None)  # of their own they would make other shares
    if not source.has("counterpart"):
        raise ValueError("--counterpart: no such column; name the one with what a document must find")
    encoder = load_at(arguments.model)
    with local_ray():
        return prepare(Storage.open(work), corpus, source, encoder.corpus_tokenizer())


def load_at(model: str) -> SentenceEncoder:
    """An encoder without its whitening, compared by cosine."""
    settings = Encoder(model=model, max_length=MAX_LENGTH)
    return load_encoder(resolve_encoder(model), settings, cosine=True, whitening=False)


class Truth(NamedTuple):
    """The test's questions, embedded once without whitening."""

    sentences: torch.Tensor
    """float32 [sentences, d], of the documents that ask."""
    offsets: np.ndarray
    """int64 [documents + 1]."""
    asker: torch.Tensor
    """int64 [questions], a document each."""
    candidates: torch.Tensor
    """float32 [candidates, d]."""
    keys: torch.Tensor
    """int64 [candidates]."""
    true_keys: torch.Tensor
    """int64 [questions]."""
    others: LeftOut
    """Of a document of several counterparts those that a question isn't ranked among, as everywhere."""

    @classmethod
    def of(cls, encoder: SentenceEncoder, store: TokenStore, split: str = "test") -> Truth:
        """Embed the documents of a split and all counterparts.

        Args:
            encoder: in evaluation mode, without whitening.
            store: with labels.
            split: whose documents ask.
        """
        questions = questions_for(store, split, "counterpart")
        assert questions.candidates is not None
        return cls(
            embed(encoder, questions.documents.sentences).vectors.cpu(),
            questions.documents.offsets,
            torch.from_numpy(questions.asker),
            questions.candidates.vectors(encoder).cpu(),
            torch.from_numpy(questions.candidate_keys),
            torch.from_numpy(questions.true_keys),
            questions.others(),
        )

    def scores(self, whitening: Whitening | None) -> dict[str, float]:
        """Recall and MRR with a map, or as the encoder is."""
        change = whitening or torch.nn.Identity()
        documents = mean_vectors(change(self.sentences), self.offsets, True)
        # A counterpart is one text: the candidates' vectors are maps of it too.
        candidates = change(self.candidates)
        order = self.keys.argsort()
        true = candidates[order[torch.searchsorted(self.keys[order], self.true_keys)]]
        ranking = rank_among(documents[self.asker], true, self.true_keys, [(candidates, self.keys)], self.others)
        return metrics_of(ranking.ranks.numpy(), len(candidates), self.asker.numpy())


class WithoutLabels(NamedTuple):
    """Validation documents, embedded once without whitening, for the validators that read no label."""

    held_out: HeldOut
    asked: torch.Tensor
    """float32 [sentences, d], of `held_out`."""
    whole: torch.Tensor
    """float32 [documents, d], each as one text."""
    keys: torch.Tensor
    """int64 [documents], for halves and readings."""

    @classmethod
    def of(cls, encoder: SentenceEncoder, store: TokenStore, seed: int) -> WithoutLabels:
        """Embed the documents of the split `valid`."""
        held_out = held_out_for(store, "valid", seed)
        with torch.inference_mode():
            whole = embed_whole(encoder, one_text_each(encoder, held_out.sentences, held_out.offsets)).cpu()
        return cls(held_out, held_out.embed(encoder).cpu(), whole, torch.arange(len(held_out.offsets) - 1))

    def sentence(self, whitening: Whitening | None) -> dict[str, float]:
        """Of `validate.on: sentence`."""
        return score_held_out((whitening or torch.nn.Identity())(self.asked), self.held_out).metrics

    def halves(self, whitening: Whitening | None) -> dict[str, float]:
        """Of `validate.on: halves`."""
        vectors, offsets = (whitening or torch.nn.Identity())(self.asked), self.held_out.offsets
        owner = owners(offsets)
        even, odd = (
            mean_vectors(vectors[rows], np.searchsorted(owner[rows], np.arange(len(offsets))), True)
            for rows in halves(offsets)
        )
        return self._found(even, odd)

    def readings(self, whitening: Whitening | None) -> dict[str, float]:
        """Of `validate.on: readings`."""
        change = whitening or torch.nn.Identity()
        return self._found(change(self.whole), mean_vectors(change(self.asked), self.held_out.offsets, True))

    def _found(self, queries: torch.Tensor, answers: torch.Tensor) -> dict[str, float]:
        ranking = rank_among(queries, answers, self.keys, [(answers, self.keys)])
        return metrics_of(ranking.ranks.numpy(), len(answers))
