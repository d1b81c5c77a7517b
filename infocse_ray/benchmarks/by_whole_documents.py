"""Scores of counterparts by documents that sentence-transformers encodes whole, as it would without this library.

1. `whole`: a document is one text, cut where the model cuts.
2. `whole and sentences`: the mean of that vector and the mean of its sentences' vectors, both of length 1.
"""

from __future__ import annotations

import itertools

import numpy as np
from tokenizers import Tokenizer

from infocse_ray.benchmarks.asked_texts import sentences_of, texts_of
from infocse_ray.retrieval.validation import Questions

_TEXTS_AT_ONCE = 32


def scores_of_whole(folder: str, questions: Questions, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """Cosines by either reading.

    Args:
        folder: of the encoder, as sentence-transformers loads it.
        questions: of this process alone.
        tokenizer: that the questions' ids are of.

    Returns:
        float [askers, candidates], by reading.
    """
    from sentence_transformers import SentenceTransformer

    assert questions.candidates is not None
    model = SentenceTransformer(folder)
    named = {"batch_size": _TEXTS_AT_ONCE, "normalize_embeddings": True, "show_progress_bar": False}
    documents, candidates = questions.documents, questions.candidates
    asked = model.encode_query(texts_of(candidates.sentences, candidates.offsets, tokenizer), **named)
    whole = model.encode_document(texts_of(documents.sentences, documents.offsets, tokenizer), **named)
    sentences = model.encode_document(sentences_of(documents.sentences, tokenizer), **named)
    means = np.stack([sentences[begin:end].mean(0) for begin, end in itertools.pairwise(documents.offsets)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return {"whole": whole @ asked.T, "whole and sentences": (whole + means) @ asked.T}
