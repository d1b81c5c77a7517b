"""The sentence of a document that fits a query best, so that people see what it was found for.

An index has documents' vectors and texts, mostly no sentences' vectors: those of the few results that are shown are
made when they are. Their order stays the search's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from infocse_ray.corpus.sentences import split_sentences
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.texts import tokenised

_MOST = 64
"""Sentences of a text that are looked at, the first ones: a book's would take minutes on a laptop."""


def best_sentences(encoder: SentenceEncoder, query: np.ndarray, texts: Sequence[str], language: str) -> list[str]:
    """Of each text the sentence whose vector is most similar to the query's; of several the first.

    Args:
        encoder: in evaluation mode, in the precision to use.
        query: float32 [d], with all of the encoder's dimensions.
        texts: any; one without a sentence is its own.
        language: ISO 639-1, of the sentence splitter's rules.
    """
    split = [split_sentences(text, language)[:_MOST] or [text] for text in texts]
    if not split:
        return []
    vectors = embed(encoder, tokenised(encoder, [sentence for own in split for sentence in own])).vectors
    fits = vectors.float().cpu().numpy() @ query
    ends = np.cumsum([len(own) for own in split])
    return [own[int(fit.argmax())] for own, fit in zip(split, np.split(fits, ends[:-1]), strict=True)]
