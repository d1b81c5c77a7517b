"""Scores of counterparts by words alone: BM25, asked in either direction.

1. A document asks: its text is a query over the counterparts, which are what is searched.
2. Counterparts ask: each is a query over all documents, and a document's counterparts are ranked by what they score it.
   So words are weighed by how rare they are in documents, which says more than a few words of counterparts do.
"""

from __future__ import annotations

import numpy as np

from infocse_ray.benchmarks.asked_texts import texts_of
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.store import TokenStore, documents_of
from infocse_ray.corpus.tokenizer import ReadyTokenizer
from infocse_ray.retrieval.validation import Questions
from infocse_ray.suites.bm25 import Index, words_of


def scores_by_words(
    questions: Questions, store: TokenStore, tokenizer: ReadyTokenizer, language: str
) -> dict[str, np.ndarray]:
    """Scores by either reading; all texts are in memory.

    Args:
        questions: of this process alone.
        store: they are of.
        tokenizer: that the store's ids are of.
        language: ISO 639-1.

    Returns:
        float [askers, candidates], by reading.
    """
    assert questions.candidates is not None
    words = words_of(language)
    asking = texts_of(questions.documents.sentences, questions.documents.offsets, tokenizer.tokenizer)
    found = texts_of(questions.candidates.sentences, questions.candidates.offsets, tokenizer.tokenizer)
    counterparts = [tokenizer.without_prompt(text) for text in found]
    everything, place = [], {}
    for shard in range(store.shards):
        for part in store.read(shard, SPLITS):
            documents = documents_of(part)
            place |= {doc_id: len(everything) + i for i, doc_id in enumerate(documents.doc_ids.to_pylist())}
            everything += texts_of(documents.sentences, documents.offsets, tokenizer.tokenizer)
    by_asker = dict(zip(questions.asker.tolist(), questions.doc_ids, strict=True))
    rows = np.array([place[by_asker[i]] for i in range(len(asking))])
    over_counterparts, over_documents = Index(counterparts, words), Index(everything, words)
    return {
        "a document asks": np.stack([over_counterparts.scores(text) for text in asking]),
        "counterparts ask": np.stack([over_documents.scores(text)[rows] for text in counterparts], axis=1),
    }
