"""The vector of a document: the mean of its sentences' vectors, that of the whole text, or both.

Whatever searches, validates or tests reads documents here. The whole text is the sentences' tokens one after the other,
for the corpus is tokenised once: see `encoder/spaced.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from infocse_ray.corpus.tokens import Tokens, owners
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.on_device import sent_up
from infocse_ray.encoder.prompts import Role
from infocse_ray.encoder.spaced import as_one_text
from infocse_ray.retrieval.maps import Map, normalized, under
from infocse_ray.settings import Reading

_UNSAID = 512
"""Tokens that a whole text is cut to where neither the folder, the tokenizer nor the positions say."""


def whole_length(encoder: SentenceEncoder) -> int:
    """Tokens that a whole text is cut to, special tokens and prompt included."""
    return encoder.max_seq_length or _UNSAID


@contextmanager
def cut_at(encoder: SentenceEncoder, length: int) -> Iterator[None]:
    """Let the encoder cut texts at another length while the block runs."""
    before, encoder.max_length = encoder.max_length, length
    try:
        yield
    finally:
        encoder.max_length = before


def document_vectors(
    encoder: SentenceEncoder,
    maps: Sequence[Map],
    sentences: Tokens,
    offsets: np.ndarray,
    reading: Reading = "sentences",
    role: Role = "document",
) -> list[torch.Tensor]:
    """Vectors of documents for each of several maps behind one encoder, which embeds every text once for all.

    Args:
        encoder: in evaluation mode, in the precision to use; without whitening, if any of the maps is one.
        maps: on its device.
        sentences: of all documents.
        offsets: int64 [documents + 1]; document i has the sentences offsets[i]:offsets[i + 1], one at least.
        reading: of the documents.
        role: of the texts, which says what prompt they get.

    Returns:
        float32 [documents, d] each, of length 1 where similarity is the cosine.
    """
    vectors = None if reading == "whole" else embed(encoder, sentences, role=role).vectors
    whole = None if reading == "sentences" else embed_whole(encoder, one_text_each(encoder, sentences, offsets), role)
    return [
        read_as(
            None if vectors is None else mean_vectors(under(one, vectors), offsets, normalized(encoder, one)),
            None if whole is None else under(one, whole),
            normalized(encoder, one),
        )
        for one in maps
    ]


def one_text_each(encoder: SentenceEncoder, sentences: Tokens, offsets: np.ndarray) -> Tokens:
    """Each document's sentences as one text, with spaces between. The arguments are those of `document_vectors`."""
    return as_one_text(sentences, offsets, encoder.ids_behind_a_space)


def embed_whole(encoder: SentenceEncoder, texts: Tokens, role: Role = "document") -> torch.Tensor:
    """Vectors of whole texts, float32 [n, d], each cut at `whole_length`."""
    with cut_at(encoder, whole_length(encoder)):
        return embed(encoder, texts, role=role).vectors


def read_as(means: torch.Tensor | None, whole: torch.Tensor | None, normalize: bool) -> torch.Tensor:
    """One vector a document of what there is of it.

    Args:
        means: float32 [n, d], of sentences; of length 1 with `normalize`.
        whole: float32 [n, d], of whole texts, likewise.
        normalize: whether to scale the mean of the two to length 1.
    """
    if means is None or whole is None:
        there = whole if means is None else means
        assert there is not None
        return there
    both = (means + whole) / 2
    return torch.nn.functional.normalize(both, dim=-1) if normalize else both


def mean_vectors(vectors: torch.Tensor, offsets: np.ndarray, normalize: bool) -> torch.Tensor:
    """Mean of the sentence vectors of each document.

    Args:
        vectors: float32 [sentences, d].
        offsets: int64 [documents + 1]; no document is empty.
        normalize: whether to scale the means to length 1 (where similarity is the cosine).

    Returns:
        float32 [documents, d].
    """
    sizes, owner = (sent_up(numbers, vectors.device) for numbers in (np.diff(offsets), owners(offsets)))
    sums = torch.zeros(len(sizes), vectors.shape[1], dtype=vectors.dtype, device=vectors.device)
    means = sums.index_add_(0, owner, vectors) / sizes[:, None]
    return torch.nn.functional.normalize(means, dim=-1) if normalize else means


def halves(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut each document's sentences in two by alternation.

    Args:
        offsets: int64 [documents + 1]; documents of at least two sentences.

    Returns:
        Row numbers of the even and of the odd sentences, int64, each document's together and in order. The
        even half of a document of m sentences has (m + 1) // 2, the odd one m // 2.
    """
    rows = np.arange(offsets[-1])
    place = rows - np.repeat(offsets[:-1], np.diff(offsets))
    return rows[place % 2 == 0], rows[place % 2 == 1]
