"""The vectors of queries, with the encoder's query prompt."""

from __future__ import annotations

import numpy as np

from infocse_ray.embedding.numbers import truncated
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.texts import tokenised


def vectors_of_queries(encoder: SentenceEncoder, queries: list[str], dimensions: int | None = None) -> np.ndarray:
    """Vectors of n queries, float32 [n, d].

    Args:
        encoder: in evaluation mode, in the precision to use.
        queries: texts.
        dimensions: what their vectors are cut to, as those of the documents; None: not at all.
    """
    tokens = tokenised(encoder, [" ".join(query.split()) for query in queries], "query")
    vectors = embed(encoder, tokens, role="query").vectors
    return truncated(vectors, dimensions, encoder.normalize).float().cpu().numpy()
