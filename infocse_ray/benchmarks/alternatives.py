"""The test of finished runs by what a user could take instead: words alone.

Each row is a way to rank the counterparts that a test document must find; the runs' own scores stand among them.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import numpy as np
import pyarrow as pa

from infocse_ray.benchmarks.asked_texts import ranks_of
from infocse_ray.benchmarks.by_words import scores_by_words
from infocse_ray.benchmarks.finished_runs import FinishedRuns
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.prompts import Prompts, prompt_tokens
from infocse_ray.loop.manifest import folder_in
from infocse_ray.retrieval.bootstrap import paired_bootstrap
from infocse_ray.retrieval.questions import documents_of as documents_asking
from infocse_ray.retrieval.questions import scores_by_question
from infocse_ray.retrieval.ranks import scores_by
from infocse_ray.retrieval.validation import Questions, questions_for
from infocse_ray.settings import Metric
from infocse_ray.storage.folder import Storage
from infocse_ray.suites.bm25 import words_of

_METRICS: tuple[Metric, ...] = ("recall@5", "mrr")

_Scores = dict[str, np.ndarray]
"""float [questions], sorted by document and counterpart, by metric."""


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    runs = FinishedRuns.of(arguments.storage, arguments.runs)
    root, manifests, store = runs.root, runs.manifests, runs.store
    tested = _tested(manifests)
    questions = questions_for(store, "test", "counterpart")
    model = root / arguments.runs[0] / "model"
    said = model / "config_sentence_transformers.json"
    read = prompt_tokens(
        Prompts.read(said.read_json() if said.exists() else {}), (model / "tokenizer.json").read_bytes().decode()
    ).tokenizer
    asked = pa.table({"doc_id": questions.doc_ids, "key": questions.true_keys, "row": np.arange(len(questions.asker))})
    asked = asked.sort_by([("doc_id", "ascending"), ("key", "ascending")])
    scored = functools.partial(_scored, questions, asked["row"].to_numpy())

    words = scores_by_words(questions, store, read.ready(), arguments.language)
    by_words = {name: scored(of) for name, of in words.items()}
    best = max(by_words, key=lambda name: by_words[name]["mrr"].mean())
    rows = {f"BM25: {name}": scores for name, scores in by_words.items()}
    for name in tested:
        stages = [folder_in(root, manifest["stages"][name]["folder"]) for manifest in manifests]
        rows[name.removesuffix("/test")] = _left(stages, asked, store)
    documents = documents_asking(asked)
    header = ["ranked by"]
    for metric in ("R@5", "MRR"):
        header += [metric, f"less BM25's ({best})"]
    table(tuple(header), [_row(name, scores, by_words[best], documents) for name, scores in rows.items()])
    notes(
        f"{len(questions.asker):,} questions of the test, {len(questions.candidate_keys):,} counterparts; ties count "
        f"against. Encoders: means over {runs}; differences with 95 % intervals of a paired bootstrap over documents. "
        f"BM25: Lucene's, k1 = 1.5, b = 0.75, {words_of(arguments.language).said}. Texts as the encoder's tokenizer "
        "reads them."
    )


def _scored(questions: Questions, order: np.ndarray, scores: np.ndarray) -> _Scores:
    ranks = ranks_of(questions, scores)[order]
    return {metric: scores_by(metric, ranks) for metric in _METRICS}


def _left(stages: list[Storage], asked: pa.Table, store: TokenStore) -> _Scores:
    """What runs left of a test, averaged over them."""
    out = {}
    for metric in _METRICS:
        found, out[metric] = scores_by_question(stages, metric)
        if not found.select(["doc_id", "key"]).equals(asked.select(["doc_id", "key"])):
            raise ValueError(
                f"--runs: {stages[0]} is not of the test's questions as they are in {store.folder}; give runs of one "
                "corpus"
            )
    return out


def _row(name: str, scores: _Scores, words: _Scores, documents: np.ndarray) -> tuple[str, ...]:
    cells = [name]
    for metric in _METRICS:
        lead = paired_bootstrap(scores[metric], words[metric], documents)
        apart = "" if scores is words else f"{lead.difference:+.4f} ({lead.low:+.4f} to {lead.high:+.4f})"
        cells += [f"{scores[metric].mean():.4f}", apart]
    return tuple(cells)


def _tested(manifests: list[dict[str, Any]]) -> list[str]:
    """The test stages that all runs have: as the encoder came, whitened, and what was trained."""
    there = [name for name in manifests[0]["stages"] if name.endswith("/test")]
    there = [name for name in there if all(name in manifest["stages"] for manifest in manifests)]
    if not there:
        raise ValueError("--runs: they have no scores on the test; name finished runs")
    first = [name for name in ("start/test", "whitened/test") if name in there]
    return first + sorted(set(there) - set(first))
