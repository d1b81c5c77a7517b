"""nDCG@10, Recall@5/10/100 and MRR@10 of each query, by trec_eval through pytrec_eval.

Of the maintained libraries this one is chosen because it is NIST's own code in C, what BEIR and mteb compute with, MIT,
with wheels for Linux, macOS and Windows, and needs no more than numpy and scipy; ranx brings numba along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from infocse_ray.retrieval.intervals import interval, mean_of
from infocse_ray.runtime.libraries import check_installed

DEPTH = 100
"""Documents that are looked at for a query."""
MEASURES = ("ndcg@10", "recall@5", "recall@10", "recall@100", "mrr@10")
MAIN = "ndcg@10"
SHOWN = {"ndcg@10": "nDCG@10", "recall@5": "R@5", "recall@10": "R@10", "recall@100": "R@100", "mrr@10": "MRR@10"}

_OF_TREC = {"ndcg@10": "ndcg_cut_10", "recall@5": "recall_5", "recall@10": "recall_10", "recall@100": "recall_100"}
_ASKED = {"ndcg_cut.10", "recall.5,10,100"}
_QUERIES_AT_ONCE = 1_000

Found = Mapping[str, float]
"""Documents with their scores, at most `DEPTH`."""


def require_metrics() -> Any:
    """The module pytrec_eval.

    Raises:
        ValueError: it isn't installed.
    """
    check_installed(["pytrec_eval"], "suites", "suite = beir")
    import pytrec_eval

    return pytrec_eval


def found_once(found: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Documents, best first, with their scores; of an id that is there twice the better."""
    best: dict[str, float] = {}
    for doc_id, score in found:
        best.setdefault(doc_id, score)
    return best


def without_itself(query: str, found: Found, relevant: Mapping[str, int]) -> dict[str, float]:
    """What a query found without the document of its own id, unless that is relevant, as BEIR leaves it out.

    Where questions are documents of the corpus, as in ArguAna and Quora, each would find itself first.
    """
    kept = [(doc, score) for doc, score in found.items() if doc != query or relevant.get(doc, 0) > 0]
    return dict(_ranked(kept)[:DEPTH])


def measured(
    query_ids: list[str], found: Mapping[str, Found], relevant: Mapping[str, Mapping[str, int]]
) -> dict[str, np.ndarray]:
    """Each measure of each query, float64 [queries]; 0 for a query that found nothing.

    Args:
        query_ids: whose order the results have.
        found: by query.
        relevant: by query, documents with their relevance.
    """
    trec = require_metrics()
    out = {name: np.zeros(len(query_ids)) for name in MEASURES}
    for begin in range(0, len(query_ids), _QUERIES_AT_ONCE):
        some = [query for query in query_ids[begin : begin + _QUERIES_AT_ONCE] if found.get(query)]
        qrels = {query: dict(relevant[query]) for query in some}
        runs = {query: {doc: float(score) for doc, score in found[query].items()} for query in some}
        # trec_eval's reciprocal rank has no depth: it is given the first ten.
        first = {query: dict(_ranked(run.items())[:10]) for query, run in runs.items()}
        of_all = trec.RelevanceEvaluator(qrels, _ASKED).evaluate(runs)
        of_first = trec.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(first)
        for place, query in enumerate(query_ids[begin : begin + _QUERIES_AT_ONCE], begin):
            if query in of_all:
                for name, asked in _OF_TREC.items():
                    out[name][place] = of_all[query][asked]
                out["mrr@10"][place] = of_first[query]["recip_rank"]
    return out


def summarised(scores: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The means with their 95 % intervals under `<name>_low` and `<name>_high`, and how many queries there are."""
    out: dict[str, float] = {}
    for name, values in scores.items():
        low, high = interval(values, np.arange(len(values)))
        out |= {name: mean_of(values), f"{name}_low": low, f"{name}_high": high}
    return out | {"queries": len(next(iter(scores.values())))}


def _ranked(found: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """As trec_eval ranks: the highest score first, in single precision, of equal ones the last by name."""
    return sorted(found, key=lambda one: (np.float32(one[1]), one[0]), reverse=True)
