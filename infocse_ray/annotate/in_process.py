"""IDC of a few documents in this process, without Ray or a run: to look at, in a notebook."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from infocse_ray.annotate.idc import cluster
from infocse_ray.corpus.copies import distinct
from infocse_ray.corpus.given import checked_language, sentences_of
from infocse_ray.corpus.tokens import offsets_of
from infocse_ray.encoder.embed import embed, for_inference
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.encoder.texts import tokenised
from infocse_ray.settings import Encoder
from infocse_ray.settings.validated import validated
from infocse_ray.settings.whole_number import from_one


class ClusteredDocument(NamedTuple):
    """A document's sentences and their clusters."""

    sentences: list[str]
    clusters: list[int]
    """Of each sentence, from 0 in order of first appearance."""

    def groups(self) -> list[list[str]]:
        """The sentences cluster by cluster."""
        members: list[list[str]] = [[] for _ in range(max(self.clusters, default=-1) + 1)]
        for sentence, number in zip(self.sentences, self.clusters, strict=True):
            members[number].append(sentence)
        return members


def cluster_sentences(
    encoder: str | os.PathLike[str] | SentenceEncoder,
    documents: Sequence[str | Sequence[str]],
    k: int = 1,
    max_length: int = 32,
    language: str = "en",
) -> list[ClusteredDocument]:
    """Cluster the sentences inside each document as training would (IDC, Eq. 2-4 and Alg. 2 of arXiv 2202.13802).

    Args:
        encoder: a folder, a URI, a hub name, or an encoder that is loaded.
        documents: texts, which are split into sentences, or lists of sentences, of which those without a visible
            character are left out, as from a corpus.
        k: edges a sentence keeps, to its most similar ones (Eq. 3).
        max_length: tokens a sentence is cut to, special tokens included; of an encoder that is loaded, its own.
        language: ISO 639-1, of the sentence splitter's rules.

    Raises:
        ValueError: it is no encoder, k is no whole number from 1, language no code, or documents are something else, or
            not UTF-8.
    """
    if not isinstance(encoder, str | os.PathLike | SentenceEncoder):
        kind = type(encoder).__qualname__
        raise ValueError(f"encoder: is a {kind}; give its folder or name, or RunResult.encoder()")
    language = checked_language(language)
    k = from_one(k, f"k = {k!r}: give how many edges a sentence keeps, from 1")
    texts = sentences_of(documents, language)
    if isinstance(encoder, str | os.PathLike):
        encoder = os.fspath(encoder)
        folder = resolve_encoder(encoder, "encoder")
        shape = validated(Encoder, {"model": encoder, "max_length": max_length})
        try:
            loaded = load_encoder(folder, shape, cosine=True)
        except ValueError as error:
            if (said := str(error)).startswith("encoder.max_length = "):
                raise ValueError(said.removeprefix("encoder.")) from error
            raise
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        encoder = for_inference(loaded, "auto", device)
    tokens = tokenised(encoder, [sentence for sentences in texts for sentence in sentences])
    offsets = offsets_of(np.asarray([len(sentences) for sentences in texts], dtype=np.int64))
    unique = distinct(tokens, offsets, encoder.room())
    vectors = embed(encoder, tokens.take(unique.rows)).vectors
    labels = cluster(vectors, unique.offsets, k)[unique.node].tolist()
    return [
        ClusteredDocument(sentences, labels[start:end])
        for sentences, start, end in zip(texts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
