"""Documents' vectors in this process, as `infocse embed` makes them."""

from __future__ import annotations

import numpy as np
import torch

from infocse_ray.corpus.tokens import offsets_of
from infocse_ray.embedding.numbers import truncated
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.texts import tokenised
from infocse_ray.retrieval.documents import embed_whole, mean_vectors, one_text_each, read_as
from infocse_ray.settings.section import Reading


def vectors_of_documents(
    encoder: SentenceEncoder,
    documents: list[list[str]],
    reading: Reading,
    dimensions: int | None = None,
    sentences: bool = False,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Vectors of n documents of m sentences.

    Args:
        encoder: in evaluation mode, in the precision to use.
        documents: the sentences of each, one at least.
        reading: of documents.
        dimensions: what vectors are cut to; None: not at all.
        sentences: whether those of sentences are wanted, too.

    Returns:
        float32 [n, d], and, if they are wanted, float32 [m, d].
    """
    tokens = tokenised(encoder, [sentence for given in documents for sentence in given])
    offsets = offsets_of(np.array([len(given) for given in documents], dtype=np.int64))
    normalize = encoder.normalize

    def cut(vectors: torch.Tensor) -> torch.Tensor:
        return truncated(vectors, dimensions, normalize)

    own = cut(embed(encoder, tokens).vectors) if sentences or reading != "whole" else None
    means = None if reading == "whole" or own is None else mean_vectors(own, offsets, normalize)
    whole = None if reading == "sentences" else cut(embed_whole(encoder, one_text_each(encoder, tokens, offsets)))
    read = read_as(means, whole, normalize).float().cpu().numpy()
    return read, own.float().cpu().numpy() if sentences and own is not None else None
