"""Validation without labels: a document without one of its sentences must find that sentence.

1. Of each document up to four sentences are held out, drawn by hash of (seed, document key). Each asks alone: the query
   is the mean of the vectors of all other sentences of its document, so one encoding of each sentence serves all.
   So it is however documents are read elsewhere: whole, each would be embedded anew for each question, and that judges
   encoders no better (docs/results.md).
2. Candidates are the held-out sentences of all validation documents, told by their text: equal texts are one.
3. A question isn't ranked among sentences of its own document, wherever else their texts are held out: they are in the
   mean that asks. A sentence whose text is in its document twice is not held out, for the same reason.

Texts are told by all their tokens, not by those that an encoder sees: the questions are then the same for every
encoder of a tokenizer. A document of two sentences asks with the one for the other; one without a sentence that is
there once asks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from infocse_ray.corpus.store import TokenStore, documents_of
from infocse_ray.corpus.tokens import NO_TOKENS, Tokens, bounded_ranges, concatenate, offsets_of, owners, sample_hashes
from infocse_ray.distributed.collectives import each_worker, rank, row_counts, workers
from infocse_ray.distributed.memory import MORE, advised
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE, embed
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.retrieval.maps import Map, normalized, under, width_under
from infocse_ray.retrieval.ranks import LeftOut
from infocse_ray.retrieval.scores import Scores, score_among_all

MOST = 4
"""Sentences that a document holds out at most: more of the same document say less and less that is new."""


class HeldOut(NamedTuple):
    """A worker's share of the questions, tokenised, in memory: document i owns the sentences offsets[i]:offsets[i + 1].

    The documents are those that ask, each with all of its sentences.
    """

    sentences: Tokens
    offsets: np.ndarray
    """int64 [documents + 1]."""
    asker: np.ndarray
    """int64 [questions], the document, ascending."""
    rows: np.ndarray
    """int64 [questions], the sentence that it must find, ascending."""
    doc_ids: list[str]
    """[questions]."""
    question_keys: np.ndarray
    """int64 [questions], the sentence's number in its document, from 0; with the id it names the question."""
    true_keys: np.ndarray
    """int64 [questions], the hash of the sentence's tokens."""
    candidates: np.ndarray
    """int64 [candidates], the questions whose sentence is this worker's to offer: each text once over all workers."""
    left_out: LeftOut
    """Candidates that are left out for a question."""

    def embed(self, encoder: SentenceEncoder) -> torch.Tensor:
        """Vectors of this worker's sentences, float32 [sentences, d], on the encoder's device.

        Args:
            encoder: in evaluation mode, in the precision to use.

        Raises:
            OutOfMemory: they don't fit into memory.
        """
        count = len(self.sentences)
        with _advised(count), torch.inference_mode():
            vectors = torch.empty(count, encoder.dimension, device=encoder.device)
            for begin in range(0, count, SENTENCES_AT_ONCE):
                some = np.arange(begin, min(begin + SENTENCES_AT_ONCE, count))
                vectors[begin : begin + len(some)] = embed(encoder, self.sentences.take(some)).vectors
        return vectors


def held_out_for(
    store: TokenStore,
    split: str,
    seed: int,
    max_documents: int | None = None,
    device: torch.device = torch.device("cpu"),  # noqa: B008
    shards: Iterable[int] | None = None,
) -> HeldOut:
    """Read this worker's share.

    Args:
        store: the token store.
        split: whose documents ask.
        seed: of the draw of the sentences.
        max_documents: about how many documents ask, the first by the hash of the id; None for all.
        device: that workers can exchange from.
        shards: which to read, in order; by default those whose number is this worker's rank modulo the workers.

    Every worker of the process group must call.
    """
    limit = key_limit(store.summary["documents"][split], max_documents)
    sentences: list[Tokens] = [NO_TOKENS]
    sizes: list[np.ndarray] = [np.zeros(0, np.int64)]
    held: list[np.ndarray] = [np.zeros(0, bool)]
    doc_ids: list[str] = []
    asking = store.shards_below(limit)
    for shard in asking[rank() :: workers()] if shards is None else (one for one in shards if one in asking):
        for table in store.read(shard, [split], ["doc_id", "key", "sentences"]):
            documents = documents_of(table.filter(pa.array(table["key"].to_numpy() < limit)))
            drawn = _draw(seed, documents.keys, documents.offsets, documents.sentences.hashes())
            asks = np.bincount(owners(documents.offsets)[drawn], minlength=len(documents.keys)) > 0
            kept = np.repeat(asks, np.diff(documents.offsets))
            sentences.append(documents.sentences.take(np.flatnonzero(kept)))
            sizes.append(np.diff(documents.offsets)[asks])
            held.append(drawn[kept])
            doc_ids += documents.doc_ids.filter(pa.array(asks)).to_pylist()
    tokens, offsets = concatenate(sentences), offsets_of(np.concatenate(sizes))
    hashes, rows = tokens.hashes(), np.flatnonzero(np.concatenate(held))
    asker = owners(offsets)[rows]
    true_keys = hashes[rows]
    distinct, first = np.unique(true_keys, return_index=True)
    mine, offered = shared_out(distinct, hashes, device)
    return HeldOut(
        tokens,
        offsets,
        asker,
        rows,
        [doc_ids[document] for document in asker],
        rows - offsets[asker],
        true_keys,
        first[mine],
        _others(offsets, asker, hashes, offered),
    )


def key_limit(there: int, most: int | None) -> int:
    """Documents whose key is below it are about `most` of those that are there; all if there are no more than that."""
    return 2**63 if not most or there <= most else 2**63 * most // there


def score_held_out(vectors: torch.Tensor, held_out: HeldOut) -> Scores:
    """Rank every held-out sentence and make metrics of the ranks.

    Args:
        vectors: float32 [sentences, d] of this worker's sentences, of length 1, as the means that ask are to be: what
            `HeldOut.embed` gives where similarity is the cosine, or a map of it.
        held_out: this worker's share; every worker of the process group must call.

    Raises:
        ValueError: no worker has a question.
    """
    with _advised(len(held_out.sentences)), torch.inference_mode():
        queries, true = _asked(vectors, held_out, 0, len(held_out.offsets) - 1, normalize=True)
        return _score(queries, true, held_out)


def score_by_pieces(encoder: SentenceEncoder, maps: Sequence[Map], held_out: HeldOut, top: int = 1) -> list[Scores]:
    """As `score_held_out` of `HeldOut.embed`, keeping of the vectors those of questions and their answers only.

    Args:
        encoder: in evaluation mode, in the precision to use; without whitening, if any of the maps is one.
        maps: behind it, each to be scored; every sentence is embedded once for all.
        held_out: this worker's share; every worker of the process group must call.
        top: how many of what a question found first to tell.

    Raises:
        ValueError: no worker has a question.
        OutOfMemory: this worker's questions don't fit into memory.
    """
    offsets = held_out.offsets
    with _advised(len(held_out.sentences)), torch.inference_mode():
        none = [torch.empty(0, width_under(encoder, one), device=encoder.device) for one in maps]
        queries, true = [[one] for one in none], [[one] for one in none]
        for first, last in bounded_ranges(offsets, SENTENCES_AT_ONCE):
            some = held_out.sentences.take(np.arange(offsets[first], offsets[last]))
            vectors = embed(encoder, some).vectors
            for one, asking, answering in zip(maps, queries, true, strict=True):
                means, answers = _asked(under(one, vectors), held_out, first, last, normalized(encoder, one))
                asking.append(means)
                answering.append(answers)
        return [_score(torch.cat(q), torch.cat(t), held_out, top) for q, t in zip(queries, true, strict=True)]


def _advised(sentences: int) -> AbstractContextManager[None]:
    return advised(
        f"{sentences:,} sentences of a worker", f"lower validate.max_documents, give it more workers, or {MORE}"
    )


def _draw(seed: int, keys: np.ndarray, offsets: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Which sentences are held out, bool [sentences]: of those that their document has once, those that hash lowest."""
    owner = owners(offsets)
    order = np.lexsort((hashes, owner))
    again = (np.diff(owner[order]) == 0) & (np.diff(hashes[order]) == 0)
    twice = np.zeros(len(hashes), bool)
    twice[order[1:][again]] = twice[order[:-1][again]] = True
    rows = np.flatnonzero(~twice)
    draws = sample_hashes(seed, keys[owner[rows]], rows - offsets[owner[rows]])
    rows = rows[np.lexsort((draws, owner[rows]))]
    place = np.arange(len(rows)) - np.searchsorted(owner[rows], owner[rows])
    held = np.zeros(len(hashes), bool)
    held[rows[place < MOST]] = True
    return held


def shared_out(distinct: np.ndarray, hashes: np.ndarray, device: torch.device) -> tuple[np.ndarray, np.ndarray]:
    """Look at all workers' candidates, a worker's at a time; all of them must call.

    Args:
        distinct: int64 [n], the texts that this worker has as candidates.
        hashes: int64 [m], texts that are looked for among them.
        device: to exchange from.

    Returns:
        Whether this is the first worker that has a candidate (bool [n]), and whether some worker has what is looked for
        (bool [m]).
    """
    if workers() == 1:
        return np.ones(len(distinct), bool), np.isin(hashes, distinct)
    mine, offered = np.ones(len(distinct), bool), np.zeros(len(hashes), bool)
    local = torch.from_numpy(distinct).to(device)
    for source, block in enumerate(each_worker(local, row_counts(local))):
        theirs = block.cpu().numpy()
        offered |= np.isin(hashes, theirs)
        if source < rank():
            mine &= ~np.isin(distinct, theirs)
    return mine, offered


def _others(offsets: np.ndarray, asker: np.ndarray, hashes: np.ndarray, offered: np.ndarray) -> LeftOut:
    """Of each document every candidate that is one of its sentences."""
    owner = owners(offsets)
    pairs = np.unique(np.stack([owner[offered], hashes[offered]], axis=1), axis=0)  # a text of a document once
    return LeftOut.of(asker, *pairs.T.copy())


def _asked(
    vectors: torch.Tensor, held_out: HeldOut, first: int, last: int, normalize: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and answers (float32 [questions, d] each) of documents first:last, whose sentences' vectors are given."""
    begin, end = np.searchsorted(held_out.asker, [first, last])
    device, offsets = vectors.device, held_out.offsets[first : last + 1]
    owner = torch.from_numpy(owners(offsets)).to(device)
    sums = torch.zeros(last - first, vectors.shape[1], dtype=vectors.dtype, device=device).index_add_(0, owner, vectors)
    true = vectors[torch.from_numpy(held_out.rows[begin:end] - offsets[0]).to(device)]
    asker = torch.from_numpy(held_out.asker[begin:end] - first).to(device)
    rest = torch.from_numpy(np.diff(offsets) - 1).to(device)[asker]
    queries = (sums[asker] - true) / rest[:, None]
    return (torch.nn.functional.normalize(queries, dim=-1) if normalize else queries), true


def _score(queries: torch.Tensor, true: torch.Tensor, held_out: HeldOut, top: int = 1) -> Scores:
    offered = torch.from_numpy(held_out.candidates).to(true.device)
    return score_among_all(
        queries,
        true,
        held_out.true_keys,
        held_out.asker,
        lambda begin, end: true[offered[begin:end]],
        held_out.true_keys[held_out.candidates],
        held_out.left_out,
        top,
    )
