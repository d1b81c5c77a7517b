"""What words should count beside vectors, chosen without labels: by sentences that look for their own documents.

Of a sample of documents up to two sentences each are taken out (the inverse cloze task, Lee et al. 2019, here asked and
not trained). Each asks as a query would, with the engine that searches are made with, for what is left of its document
among what is left of all. A sentence is no query, but what words do for one they seem to do for the other:
docs/search.md has the measurements.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from infocse_ray.annotate.in_process import tokenised
from infocse_ray.corpus.tokens import offsets_of
from infocse_ray.embedding.index import Embedding
from infocse_ray.embedding.numbers import truncated, vector_columns
from infocse_ray.embedding.sampled import Sampled
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.retrieval.documents import embed_whole, mean_vectors, one_text_each, read_as
from infocse_ray.runtime.progress import Bar, say
from infocse_ray.search.engine import Engine
from infocse_ray.search.fusion import fused
from infocse_ray.search.queries import vectors_of_queries
from infocse_ray.storage.checksums import checked, verified
from infocse_ray.storage.folder import Storage

WEIGHTS = tuple(step / 10 for step in range(10))
_MOST = 2
"""Sentences that a document gives."""
_FORMAT = 2
"""Counted up when the same weight begins to mean something else, or would be chosen otherwise."""
_SURE = 2.6
"""Standard errors; of nine weights, neighbours alike, one is further off by luck in about 2 of 100 cases."""
_ENOUGH = 30
"""Questions; of fewer nothing is learnt."""


class Asking(NamedTuple):
    """Sentences that ask, and what they ask for."""

    rests: list[list[str]]
    """Of each document the sentences that are left, in order; one at least."""
    questions: list[str]
    answers: list[int]
    """Of each question its document."""


class Tried(NamedTuple):
    """How well sentences found their documents."""

    weight: float
    """The best; of several the least. 0 where nothing could be learnt, or none is better beyond luck."""
    mrr: list[float]
    """With each of `WEIGHTS`; empty where nothing could be learnt."""


def chosen_weight(
    output: Storage, vectors: str, encoder: SentenceEncoder, embedding: Embedding, sampled: Sampled
) -> float:
    """The best weight of words for an index, tried once and kept in its `search/words.json`.

    Args:
        output: of the index.
        vectors: fingerprint of the stage that made its vectors.
        encoder: that made them; in evaluation mode, in the precision to use.
        embedding: what the index has.
        sampled: some of its documents.
    """
    file = output / "search" / "words.json"
    if file.exists():
        there = verified(file.read_bytes())
        if there is not None and (there.get("format"), there.get("vectors")) == (_FORMAT, vectors):
            return there["weight"]
    tried = best_weight(encoder, embedding, sampled)
    if not tried.mrr:
        say(
            f"words don't count: fewer than {_ENOUGH} sentences could ask what they should; --words 0.5, say, lets them"
        )
    elif tried.weight:
        found = tried.mrr[WEIGHTS.index(tried.weight)]
        say(
            f"words count {tried.weight:g}: sentences taken out of documents find them with MRR {found:.3f} then, "
            f"{tried.mrr[0]:.3f} by vectors alone"
        )
    else:
        say(
            f"words don't count: sentences taken out of documents find them with MRR {tried.mrr[0]:.3f} by vectors "
            f"alone, {max(tried.mrr):.3f} with the best weight of words, which is no more than luck; --words 0.5, say, "
            "lets them"
        )
    with contextlib.suppress(OSError):  # of a storage that can only be read: it is tried again the next time
        file.write_json(checked({"format": _FORMAT, "vectors": vectors, **tried._asdict()}))
    return tried.weight


def asking(documents: list[list[str]]) -> Asking:
    """Take sentences out of documents, by a fixed draw: up to two, and no more than a quarter, but one at least.

    A sentence that its document has twice isn't taken: the document would be found by the other.

    Args:
        documents: sentences of each; those of fewer than two give none, and are left as they are.
    """
    draw = np.random.default_rng(0)
    rests, questions, answers = [], [], []
    for number, sentences in enumerate(documents):
        times = Counter(sentences)
        once = [place for place, sentence in enumerate(sentences) if times[sentence] == 1]
        most = min(_MOST, max(1, len(sentences) // 4), len(sentences) - 1)
        taken = set(draw.permutation(once)[:most].tolist())
        rests.append([sentence for place, sentence in enumerate(sentences) if place not in taken])
        questions += [sentences[place] for place in sorted(taken)]
        answers += [number] * len(taken)
    return Asking(rests, questions, answers)


def best_weight(encoder: SentenceEncoder, embedding: Embedding, sampled: Sampled) -> Tried:
    """Try all weights.

    Args:
        encoder: that embedded the corpus; in evaluation mode, in the precision to use.
        embedding: how documents are read, and vectors cut.
        sampled: documents of the corpus.
    """
    import lance

    asked = asking(sampled.documents)
    if len(asked.questions) < _ENOUGH:
        return Tried(0.0, [])
    bar = Bar("trying what words should count, once", len(asked.questions), "questions")
    found = {
        "text": pa.array([" ".join(rest) for rest in asked.rests]),
        "number": pa.array(range(len(asked.rests))),
        **vector_columns(_vectors(encoder, embedding, asked.rests), "fp32"),
    }
    queries = vectors_of_queries(encoder, asked.questions, embedding.dimensions)
    reciprocal = np.zeros((len(asked.questions), len(WEIGHTS)))
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(lance.write_dataset(pa.table(found), f"{folder}/rests.lance"), encoder.normalize)
        engine.index_words(sampled.language, quiet=True)
        for row, (vector, question, answer) in enumerate(zip(queries, asked.questions, asked.answers, strict=True)):
            candidates = engine.candidates(vector, question)
            scores = scores_with(candidates, WEIGHTS)
            reciprocal[row] = 1.0 / ranks_of_right(scores, candidates["number"].to_numpy() == answer)
            bar.add(1)
        bar.close()
    return Tried(WEIGHTS[_best(reciprocal, np.array(asked.answers))], reciprocal.mean(axis=0).tolist())


def scores_with(candidates: pa.Table, weights: Sequence[float]) -> np.ndarray:
    """float64 [weights, candidates]: what each weight of words makes of a query's candidates (`Engine.candidates`)."""
    near, words = candidates["similarity"].to_numpy(), candidates["words"].to_numpy()
    return np.stack([fused(near, words, weight) for weight in weights])


def ranks_of_right(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The rank of the first right candidate by each of n ways to score; ties with wrong ones count against it.

    Args:
        scores: float [n, candidates].
        right: bool [candidates].

    Returns:
        float64 [n], from 1; infinite where none is right.
    """
    if not right.any():
        return np.full(len(scores), np.inf)
    return 1.0 + (scores[:, ~right] >= scores[:, right].max(axis=1)[:, None]).sum(axis=1)


def _best(reciprocal: np.ndarray, documents: np.ndarray) -> int:
    """Place of the weight that finds most; 0, vectors alone, unless that is more by `_SURE` standard errors.

    Args:
        reciprocal: ranks' reciprocals, float [questions, weights], vectors alone first.
        documents: int [questions], whose sentence asks: those of one document are alike.
    """
    best = int(reciprocal.mean(axis=0).argmax())
    more = reciprocal[:, best] - reciprocal[:, 0]
    apart = np.bincount(documents, weights=more - more.mean())
    return best if more.mean() > _SURE * np.sqrt((apart**2).sum()) / len(more) else 0


def _vectors(encoder: SentenceEncoder, embedding: Embedding, documents: list[list[str]]) -> np.ndarray:
    """float32 [documents, d], as the corpus was embedded."""
    tokens = tokenised(encoder, [sentence for sentences in documents for sentence in sentences])
    offsets = offsets_of(np.array([len(sentences) for sentences in documents]))

    def cut(vectors: torch.Tensor) -> torch.Tensor:
        return truncated(vectors, embedding.dimensions, encoder.normalize)

    reading, normalize = embedding.reading, encoder.normalize
    means = None if reading == "whole" else mean_vectors(cut(embed(encoder, tokens).vectors), offsets, normalize)
    whole = None if reading == "sentences" else cut(embed_whole(encoder, one_text_each(encoder, tokens, offsets)))
    return read_as(means, whole, normalize).float().cpu().numpy()
