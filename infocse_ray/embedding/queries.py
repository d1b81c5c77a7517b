"""Queries, and their vectors, with the encoder's query prompt."""

from __future__ import annotations

from typing import Any

import numpy as np

from infocse_ray.embedding.numbers import truncated
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.texts import tokenised
from infocse_ray.settings.text import is_utf8


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


def check_query(query: Any, name: str = "query") -> None:
    """Refuse what is no query, by its name.

    Raises:
        ValueError: it is no text, has none, or isn't UTF-8.
    """
    if not isinstance(query, str):
        raise ValueError(f"{name}: is a {type(query).__qualname__}; give one text")
    if not query.strip():
        raise ValueError(f"{name}: has no text")
    if not is_utf8(query):
        raise ValueError(f"{name} = {query!r}: isn't UTF-8; leave out what is no character")
