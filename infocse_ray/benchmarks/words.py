"""Words and best sentences beside vectors: how well titles find their own documents with each weight, and with those
that are chosen.

Beside them what needs no weight and others take: reciprocal rank fusion.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infocse_ray.benchmarks.named_index import embedding_of
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.retrieval.bootstrap import paired_bootstrap
from infocse_ray.search.fusion import reciprocal_ranks_fused
from infocse_ray.search.index import Index
from infocse_ray.search.weight import BEST_SENTENCE, WEIGHTS, ranks_of_right, scores_with
from infocse_ray.storage.folder import Storage

_TRIED = (*WEIGHTS, 1.0)
_BY_RANKS = len(_TRIED)
"""Place of reciprocal rank fusion, after the weights."""
_BY_SENTENCES = _BY_RANKS + 1
"""Of the best sentence's weights, with no words; behind them come those that the index chose."""
_CHOSEN, _CHOSEN_WORDS = -2, -1
"""Both weights as they are chosen, and words' alone."""
_TIMED = 100
"""Queries whose searches are timed."""
_TURNS = 5
"""How often all of these are asked."""


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    groups: list[list[str]] = arguments.index
    titles = _titles(groups[0][0], arguments.queries)
    indexes = [[_opened(folder) for folder in folders] for folders in groups]
    _check_alike(groups, indexes)
    found = [_Found(opened, titles) for opened in indexes]
    _table_of_weights(found)
    _table_of_chosen(found)
    notes(
        f"{len(titles):,} titles, drawn by a fixed seed, each have to find a document that has it, among "
        f"{found[0].documents:,}. Titles are no part of vectors or texts. Several indexes: their means. The first's: "
        "of the first index, with the weight that it chose. Ties count against, but for those of ranks. Milliseconds: "
        f"medians, in turns, of up to {_TIMED} titles, 10 results each, whose sentences are embedded; asked, encoding "
        f"included: of {_TURNS} turns of all of them. Differences with 95 % intervals of a paired bootstrap over "
        "titles."
    )


def _check_alike(groups: list[list[str]], indexes: list[list[Index]]) -> None:
    """Refuse indexes that can't stand beside each other.

    Raises:
        ValueError: they are of several corpora, or some of a group have sentences and some don't.
    """
    for folders, opened in zip(groups, indexes, strict=True):
        for folder, index in zip(folders, opened, strict=True):
            if index.corpus != indexes[0][0].corpus:
                raise ValueError(f"--index = {folder!r}: is of another corpus than {groups[0][0]!r}")
        # Their ranks are averaged way by way, and one without sentences has fewer ways.
        if len({index.engine.sentences is None for index in opened}) > 1:
            raise ValueError(
                f"--index = {' '.join(folders)!r}: some have sentences and some don't, so they can't be averaged; give "
                "each kind an --index of its own"
            )


def _table_of_weights(found: list[_Found]) -> None:
    """Every weight of words, of best sentences alone, those that were chosen, and both ranks fused."""
    header = ("words count", *(f"{one.name}: {metric}" for one in found for metric in ("R@5", "MRR")))
    rows = [
        (f"{weight:g}", *(cell for one in found for cell in _cells(one.with_weight(place))))
        for place, weight in enumerate(_TRIED)
    ]
    if any(one.sentences for one in found):
        rows += [
            (
                f"words 0, best sentence {weight:g}",
                *(cell for one in found for cell in (_cells(one.with_weight(place)) if one.sentences else ("", ""))),
            )
            for place, weight in enumerate(BEST_SENTENCE, _BY_SENTENCES)
        ]
    chosen = ("chosen without labels", *(cell for one in found for cell in _cells(one.chosen())))
    by_ranks = ("reciprocal rank fusion", *(cell for one in found for cell in _cells(one.with_weight(_BY_RANKS))))
    table(header, [*rows, chosen, by_ranks])


def _table_of_chosen(found: list[_Found]) -> None:
    """What the chosen weights have more than simpler ways to search, and how long searches take."""
    header = (
        "the chosen weights",
        "words, best sentence",
        "R@5, less vectors alone",
        "MRR, less vectors alone",
        "R@5, less words alone",
        "MRR, less words alone",
        "R@5, less reciprocal rank fusion",
        "MRR, less reciprocal rank fusion",
        "R@5, less without best sentences",
        "MRR, less without best sentences",
        "ms a query's encoding",
        "a search by vectors",
        "by all that counts",
        "the sentences that fit best",
        "asked one after the other, each",
        "asked together, each",
        "R@5, less the first's",
        "MRR, less the first's",
    )
    table(header, [_row_of_chosen(one, found[0]) for one in found])


def _row_of_chosen(one: _Found, first: _Found) -> tuple[str, ...]:
    simpler = (0, _TRIED.index(1.0), _BY_RANKS)
    without = [_lead(one.chosen(), one.with_weight(_CHOSEN_WORDS), metric) for metric in _METRICS if one.sentences]
    return (
        one.name,
        one.weights(),
        *(_lead(one.chosen(), one.with_weight(place), metric) for place in simpler for metric in _METRICS),
        *(without or ("", "")),
        *(f"{milliseconds:.1f}" for milliseconds in one.milliseconds),
        *("" if one is first else _lead(one.chosen(), first.chosen(), metric) for metric in _METRICS),
    )


def _opened(folder: str) -> Index:
    """An index, with its sentences, if it has any, also where they don't count."""
    index = Index(folder)
    if index.engine.sentences is None and embedding_of(folder).sentences:
        index.engine.sentences = Index(folder, words=0.0, best_sentence=1.0).engine.sentences
    return index


class _Found:
    """Ranks of the right documents, by each weight."""

    def __init__(self, indexes: list[Index], titles: list[str]) -> None:
        self.name = indexes[0].name.rstrip("/").removesuffix("/model").rsplit("/", 1)[-1]
        self.documents = len(indexes[0])
        self.sentences = all(index.engine.sentences for index in indexes)
        self._chosen = [(index.words, index.best_sentence) for index in indexes]
        self._ranks = np.stack([_ranks(index, titles) for index in indexes])
        self.milliseconds = (
            *_milliseconds(indexes[0], titles[:_TIMED]),
            *_milliseconds_of_lists(indexes[0], titles[:_TIMED]),
        )

    def weights(self) -> str:
        """Those chosen, for people."""
        return "; ".join(f"{words:g}, {best:g}" for words, best in sorted({*self._chosen}))

    def with_weight(self, weight: int) -> np.ndarray:
        """Ranks, float [indexes, titles], with a weight, by its place among those tried, or by ranks."""
        return self._ranks[:, :, weight]

    def chosen(self) -> np.ndarray:
        """Ranks, float [indexes, titles], with the weights that each index chose."""
        return self.with_weight(_CHOSEN)


def _recall(ranks: np.ndarray) -> np.ndarray:
    return (ranks <= 5).astype(float)


def _mrr(ranks: np.ndarray) -> np.ndarray:
    return 1.0 / ranks


_METRICS = (_recall, _mrr)


def _cells(ranks: np.ndarray) -> tuple[str, ...]:
    return tuple(f"{metric(ranks).mean():.4f}" for metric in _METRICS)


def _lead(ours: np.ndarray, theirs: np.ndarray, score: Callable[[np.ndarray], np.ndarray]) -> str:
    """Of ranks over others', indexes averaged."""
    mine, yours = score(ours).mean(axis=0), score(theirs).mean(axis=0)
    lead = paired_bootstrap(mine, yours, np.arange(len(mine)))
    return f"{lead.difference:+.4f} ({lead.low:+.4f} to {lead.high:+.4f})"


def _ranks(index: Index, titles: list[str]) -> np.ndarray:
    """Of each title by each weight and by ranks, float [titles, ways]; infinite where no right one is a candidate."""
    index.engine.index_words(index.language)
    sentences = index.engine.sentences is not None
    ranks = []
    for title in titles:
        rows = index.engine.candidates(index.vector(title), title, best_sentence=sentences)
        right = np.array(rows["title"].to_pylist()) == title
        by_sentences = [scores_with(rows, (0.0,), weight)[0] for weight in BEST_SENTENCE] if sentences else []
        chosen = [scores_with(rows, (index.words,), weight)[0] for weight in (index.best_sentence, 0.0)]
        scores = np.stack([*scores_with(rows, _TRIED), _by_ranks(rows), *by_sentences, *chosen])
        ranks.append(ranks_of_right(scores, right))
    return np.stack(ranks)


def _by_ranks(candidates: pa.Table) -> np.ndarray:
    """Scores by reciprocal rank fusion, float [n]; of equal ones, which ranks have often, the more similar is ahead."""
    near, words = candidates["similarity"].to_numpy(), candidates["words"].to_numpy()
    fused = reciprocal_ranks_fused(np.stack([near, np.where(words > 0, words, np.nan)]))
    scores = np.empty(len(fused))
    scores[np.lexsort((near, fused))] = np.arange(len(fused))
    return scores


def _milliseconds(index: Index, titles: list[str]) -> tuple[float, ...]:
    """Medians: encoding a query, searching by vectors, by all that counts, in turns; the sentences that fit best."""
    return tuple(1000 * statistics.median(each) for each in zip(*(_seconds(index, one) for one in titles), strict=True))


def _milliseconds_of_lists(index: Index, titles: list[str]) -> tuple[float, float]:
    """Medians of a query: all asked one after the other, and as one list, in turns."""
    turns = np.empty((_TURNS, 2))
    for turn in turns:
        at = [time.perf_counter()]
        for title in titles:
            index.search(title)
        at.append(time.perf_counter())
        index.search(titles)
        at.append(time.perf_counter())
        turn[:] = np.diff(at)
    one, together = (1000 / len(titles) * np.median(turns, axis=0)).tolist()
    return one, together


def _seconds(index: Index, title: str) -> list[float]:
    vector, hits = index.vector(title), index.search(title, 10)
    at = [time.perf_counter()]
    for work in (
        lambda: index.vector(title),
        lambda: index.engine.search(vector, 10),
        lambda: index.engine.search_both(vector, title, 0.5, 10, best_sentence=index.best_sentence),
        lambda: index.with_passages(title, hits),
    ):
        work()
        at.append(time.perf_counter())
    return np.diff(at).tolist()


def _titles(folder: str, most: int) -> list[str]:
    """Titles that are counterparts, not how their document begins; each once."""
    output = Storage.open(folder)
    if embedding_of(folder).format != "parquet":
        raise ValueError(f"--index = {folder!r}: give one of format parquet")
    rows = pq.read_table((output / "vectors" / "documents").path, columns=["title", "text"])
    own = {
        title
        for title, text in zip(rows["title"].to_pylist(), rows["text"].to_pylist(), strict=True)
        if not text.startswith(title.removesuffix(" …"))
    }
    if not own:
        raise ValueError(f"--index = {folder!r}: its documents have no titles; embed with --corpus.counterpart")
    return np.random.default_rng(0).permutation(sorted(own))[:most].tolist()
