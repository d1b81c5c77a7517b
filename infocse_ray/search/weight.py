"""What words, and a document's best sentence, should count, chosen without labels: by sentences that look for their
own documents.

Of a sample of documents up to two sentences each are taken out (the inverse cloze task, Lee et al. 2019, here asked and
not trained). Each asks as a query would, with the engine that searches are made with, for what is left of its document
among what is left of all. A sentence is no query, but what words do for one they seem to do for the other:
docs/search.md has the measurements.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from infocse_ray.corpus.tokens import offsets_of
from infocse_ray.embedding.documents import vectors_of_documents
from infocse_ray.embedding.index import Embedding
from infocse_ray.embedding.numbers import vector_columns
from infocse_ray.embedding.queries import vectors_of_queries
from infocse_ray.embedding.sampled import Sampled
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.runtime.progress import Bar, say
from infocse_ray.search.engine import Engine
from infocse_ray.search.fusion import fused, similarity_with
from infocse_ray.search.sentences import similarities
from infocse_ray.storage.checksums import checked, verified
from infocse_ray.storage.folder import Storage

WEIGHTS = tuple(step / 10 for step in range(10))
"""Of words."""
BEST_SENTENCE = tuple(step / 10 for step in range(8))
"""Of the best sentence."""
_MOST = 2
"""Sentences that a document gives."""
_FORMAT = 3
"""Counted up when the same weight begins to mean something else, or would be chosen otherwise."""
_WITHOUT_SENTENCES = 2
"""The format before best sentences, which chose the same for an index that has no sentences."""
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
    """Of words, the best; of several the least. 0 where nothing could be learnt, or none is better beyond luck."""
    mrr: list[float]
    """With each of `WEIGHTS`, the best sentence counting what it should; empty where nothing could be learnt."""
    best_sentence: float = 0.0
    """What the best sentence should count, likewise, by vectors alone; 0 in an index without sentences."""
    mrr_best_sentence: list[float] = []  # noqa: RUF012  (of a NamedTuple, which nobody changes)
    """With each of `BEST_SENTENCE`, by vectors alone; empty where nothing could be learnt, or there are none."""
    weight_alone: float | None = None
    """As `weight`, where the best sentence doesn't count; None: it is the same."""


class Chosen(NamedTuple):
    """What should count."""

    words: float = 0.0
    """Beside the best sentence, where that counts."""
    best_sentence: float = 0.0
    words_alone: float = 0.0
    """Where the best sentence doesn't count."""


def chosen_weights(
    output: Storage,
    vectors: str,
    encoder: SentenceEncoder,
    embedding: Embedding,
    sampled: Sampled,
    words: bool = True,
    best_sentence: bool = True,
) -> Chosen:
    """The best weights of words and of the best sentence for an index, tried once, kept in its `search/words.json`.

    Args:
        output: of the index.
        vectors: fingerprint of the stage that made its vectors.
        encoder: that made them; in evaluation mode, in the precision to use.
        embedding: what the index has.
        sampled: some of its documents.
        words: whether nobody gave another weight of them: else nothing is said of what was learnt.
        best_sentence: likewise.
    """
    file = output / "search" / "words.json"
    if file.exists():
        there = verified(file.read_bytes())
        formats = (_FORMAT,) if embedding.sentences else (_FORMAT, _WITHOUT_SENTENCES)
        if there is not None and there.get("vectors") == vectors and there.get("format") in formats:
            return _chosen(Tried(**{name: there[name] for name in Tried._fields if name in there}))
    tried = best_weights(encoder, embedding, sampled)
    if best_sentence and embedding.sentences:
        _say_best_sentence(tried)
    if words and (best_sentence or not tried.best_sentence):
        _say_words(tried)
    with contextlib.suppress(OSError):  # of a storage that can only be read: it is tried again the next time
        file.write_json(checked({"format": _FORMAT, "vectors": vectors, **tried._asdict()}))
    return _chosen(tried)


def _chosen(tried: Tried) -> Chosen:
    alone = tried.weight if tried.weight_alone is None else tried.weight_alone
    return Chosen(tried.weight, tried.best_sentence, alone)


def _say_best_sentence(tried: Tried) -> None:
    if not tried.mrr:
        say(
            f"a document's best sentence doesn't count: fewer than {_ENOUGH} sentences could ask what it should; "
            "--best_sentence 0.3, say, lets it"
        )
    elif tried.best_sentence:
        found = tried.mrr_best_sentence[BEST_SENTENCE.index(tried.best_sentence)]
        say(
            f"a document's best sentence counts {tried.best_sentence:g}: sentences taken out of documents find them "
            f"with MRR {found:.3f} by vectors then, {tried.mrr_best_sentence[0]:.3f} by the documents' vectors alone"
        )
    else:
        say(
            "a document's best sentence doesn't count: sentences taken out of documents find them with MRR "
            f"{tried.mrr_best_sentence[0]:.3f} by the documents' vectors alone, {max(tried.mrr_best_sentence):.3f} "
            "with its best weight, which is no more than luck; --best_sentence 0.3, say, lets it"
        )


def _say_words(tried: Tried) -> None:
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


def best_weights(encoder: SentenceEncoder, embedding: Embedding, sampled: Sampled) -> Tried:
    """Try all weights: of the best sentence where the index has sentences, then of words.

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
    documents, sentences = vectors_of_documents(
        encoder, asked.rests, embedding.reading, embedding.dimensions, embedding.sentences
    )
    found = {
        "text": pa.array([" ".join(rest) for rest in asked.rests]),
        "number": pa.array(range(len(asked.rests))),
        **vector_columns(documents, "fp32"),
    }
    queries = vectors_of_queries(encoder, asked.questions, embedding.dimensions)
    candidates: list[pa.Table] = []
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(lance.write_dataset(pa.table(found), f"{folder}/rests.lance"), encoder.normalize)
        engine.index_words(sampled.language, quiet=True)
        for vector, question in zip(queries, asked.questions, strict=True):
            there = engine.candidates(vector, question).select(["number", "similarity", "words"])  # not the texts
            if sentences is not None:
                best = _best_sentences(sentences, asked.rests, vector, encoder.normalize)[there["number"].to_numpy()]
                there = there.append_column("best_sentence", pa.array(best))
            candidates.append(there)
            bar.add(1)
        bar.close()
    answers = np.array(asked.answers)

    def reciprocals(scores: Callable[[pa.Table], np.ndarray]) -> np.ndarray:
        return np.stack(
            [
                1.0 / ranks_of_right(scores(one), one["number"].to_numpy() == answer)
                for one, answer in zip(candidates, asked.answers, strict=True)
            ]
        )

    best_sentence, without_words = 0.0, np.zeros((0, 0))
    if sentences is not None:
        without_words = reciprocals(lambda one: np.stack([similarity_with(one, each) for each in BEST_SENTENCE]))
        best_sentence = BEST_SENTENCE[_best(without_words, answers)]
    with_words = reciprocals(lambda one: scores_with(one, WEIGHTS, best_sentence))
    alone = reciprocals(lambda one: scores_with(one, WEIGHTS)) if best_sentence else with_words
    return Tried(
        WEIGHTS[_best(with_words, answers)],
        with_words.mean(axis=0).tolist(),
        best_sentence,
        without_words.mean(axis=0).tolist() if sentences is not None else [],
        WEIGHTS[_best(alone, answers)],
    )


def scores_with(candidates: pa.Table, weights: Sequence[float], best_sentence: float = 0.0) -> np.ndarray:
    """float64 [weights, candidates]: what each weight of words makes of a query's candidates (`Engine.candidates`).

    Args:
        candidates: with words scored, and with best sentences, where these count.
        weights: of words.
        best_sentence: what best sentences count.
    """
    near, words = similarity_with(candidates, best_sentence), candidates["words"].to_numpy()
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


def _best_sentences(vectors: np.ndarray, documents: list[list[str]], query: np.ndarray, cosine: bool) -> np.ndarray:
    """float32 [documents], of their sentences' vectors, one document's after the other's."""
    begins = offsets_of(np.array([len(sentences) for sentences in documents]))[:-1]
    return np.maximum.reduceat(similarities(vectors, query, cosine), begins)
