"""BM25 on the test of finished runs: what words alone find of what their encoders must find.

1. A document asks: its text is a query over the counterparts, which are what is searched.
2. Counterparts ask: each is a query over all documents, and a document's counterparts are ranked by what they score it.
   So words are weighed by how rare they are in documents, which says more than a few words of counterparts do.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from tokenizers import Tokenizer

from infocse_ray.benchmarks.report import notes, table
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.store import TokenStore, documents_of
from infocse_ray.corpus.tokens import Tokens
from infocse_ray.loop.manifest import folder_in, read_manifest
from infocse_ray.retrieval.bootstrap import paired_bootstrap
from infocse_ray.retrieval.questions import documents_of as documents_asking
from infocse_ray.retrieval.questions import recall_by_question, reciprocal_rank_by_question
from infocse_ray.retrieval.ranks import metrics_of, shown
from infocse_ray.retrieval.validation import Questions, questions_for
from infocse_ray.storage.folder import Storage
from infocse_ray.suites.bm25 import Index, words_of

_METRICS: list[tuple[str, Callable[[list[Storage]], tuple[pa.Table, np.ndarray]]]] = [
    ("recall@5", lambda stages: recall_by_question(stages, 5)),
    ("mrr", reciprocal_rank_by_question),
]


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    root = Storage.open(arguments.storage)
    manifests = [read_manifest(root / name) for name in arguments.runs]
    corpora = {manifest["stages"]["corpus"]["folder"] for manifest in manifests}
    if len(corpora) > 1:
        raise ValueError(f"--runs: they are of {len(corpora)} corpora; give runs of one at a time")
    store = TokenStore.open(folder_in(root, corpora.pop()))
    if not store.summary["labelled"]["test"]:
        raise ValueError(f"--runs = {arguments.runs[0]}: no test document has a counterpart")
    questions = questions_for(store, "test", "counterpart")
    by_words = ranks_by_words(questions, store, _tokenizer(root / arguments.runs[0]), arguments.language)
    asked = pa.table({"doc_id": questions.doc_ids, "key": questions.true_keys, "row": np.arange(len(questions.asker))})
    asked = asked.sort_by([("doc_id", "ascending"), ("key", "ascending")])
    order, documents = asked["row"].to_numpy(), documents_asking(asked)
    best = min(by_words, key=lambda name: -(1.0 / by_words[name]).mean())
    rows: list[tuple[str, ...]] = []
    for name, ranks in by_words.items():
        scores = metrics_of(ranks, len(questions.candidate_keys), questions.asker)
        rows.append((f"BM25: {name}", shown(scores, "recall@5"), "", shown(scores, "mrr"), ""))
    words = {"recall@5": (by_words[best] <= 5)[order].astype(float), "mrr": (1.0 / by_words[best])[order]}
    for name in _tested(manifests):
        stages = [folder_in(root, manifest["stages"][name]["folder"]) for manifest in manifests]
        row = [name.removesuffix("/test")]
        for metric, by_question in _METRICS:
            found, scores = by_question(stages)
            if not found.select(["doc_id", "key"]).equals(asked.select(["doc_id", "key"])):
                raise ValueError(f"{stages[0]} is not of the test's questions as they are in {store.folder}")
            lead = paired_bootstrap(scores, words[metric], documents)
            row += [f"{scores.mean():.4f}", f"{lead.difference:+.4f} ({lead.low:+.4f} to {lead.high:+.4f})"]
        rows.append(tuple(row))
    table(("ranked by", "R@5", f"less BM25's ({best})", "MRR", f"less BM25's ({best})"), rows)
    many = f"{len(manifests)} run{'' if len(manifests) == 1 else 's'}"
    notes(
        f"{len(questions.asker):,} questions of the test, {len(questions.candidate_keys):,} counterparts; ties count "
        f"against. Encoders: means over {many}; differences with 95 % intervals of a paired bootstrap over documents. "
        f"BM25: Lucene's, k1 = 1.5, b = 0.75, {words_of(arguments.language).said}, of texts as the encoder's tokenizer "
        "reads them."
    )


def ranks_by_words(
    questions: Questions, store: TokenStore, tokenizer: Tokenizer, language: str
) -> dict[str, np.ndarray]:
    """Ranks of the questions' answers by either reading; all texts are in memory.

    Args:
        questions: of this process alone.
        store: they are of.
        tokenizer: that the store's ids are of.
        language: ISO 639-1.

    Returns:
        int64 [questions], from 1, by reading.
    """
    assert questions.candidates is not None
    words = words_of(language)
    asking = _texts(questions.documents.sentences, questions.documents.offsets, tokenizer)
    counterparts = _texts(questions.candidates.sentences, questions.candidates.offsets, tokenizer)
    everything, place = [], {}
    for shard in range(store.shards):
        for part in store.read(shard, SPLITS):
            documents = documents_of(part)
            place |= {doc_id: len(everything) + i for i, doc_id in enumerate(documents.doc_ids.to_pylist())}
            everything += _texts(documents.sentences, documents.offsets, tokenizer)
    by_asker = dict(zip(questions.asker.tolist(), questions.doc_ids, strict=True))
    rows = np.array([place[by_asker[i]] for i in range(len(asking))])
    over_counterparts, over_documents = Index(counterparts, words), Index(everything, words)
    scores = {
        "a document asks": np.stack([over_counterparts.scores(text) for text in asking]),
        "counterparts ask": np.stack([over_documents.scores(text)[rows] for text in counterparts], axis=1),
    }
    return {name: _ranks(questions, of[questions.asker]) for name, of in scores.items()}


def _ranks(questions: Questions, scores: np.ndarray) -> np.ndarray:
    """Of each question's answer, by its row of scores (float [questions, candidates]); ties count against."""
    keys = torch.from_numpy(questions.candidate_keys)
    sorted_keys, order = keys.sort()
    true = order[torch.searchsorted(sorted_keys, torch.from_numpy(questions.true_keys))].numpy()
    place = np.arange(len(true))
    bar = scores[place, true][:, None]
    counted = scores >= bar
    counted[place, true] = False
    counted[tuple(index.numpy() for index in questions.others().places_in(keys))] = False
    return 1 + counted.sum(1)


def _texts(sentences: Tokens, offsets: np.ndarray, tokenizer: Tokenizer) -> list[str]:
    """Groups of sentences as texts."""
    ids = [part.tolist() for part in np.split(sentences.values, sentences.offsets[1:-1])] if len(sentences) else []
    decoded = tokenizer.decode_batch(ids)
    return [" ".join(decoded[begin:end]) for begin, end in itertools.pairwise(offsets)]


def _tokenizer(run: Storage) -> Tokenizer:
    return Tokenizer.from_str((run / "model" / "tokenizer.json").read_bytes().decode())


def _tested(manifests: list[dict[str, Any]]) -> list[str]:
    """The test stages that all runs have: as the encoder came, whitened, and what was trained."""
    there = [name for name in manifests[0]["stages"] if name.endswith("/test")]
    there = [name for name in there if all(name in manifest["stages"] for manifest in manifests)]
    if not there:
        raise ValueError("--runs: they have no scores on the test; name finished runs")
    first = [name for name in ("start/test", "whitened/test") if name in there]
    return first + sorted(set(there) - set(first))
