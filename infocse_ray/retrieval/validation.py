"""Score an encoder on held-out documents, split across workers.

1. `counterpart`: a document's vector must find its counterpart among all distinct counterparts of the corpus; a
   document of several asks for each, ranked without the others.
2. `sentence`: without labels, a document without one of its sentences must find that sentence (see `held_out`).
3. `halves`: without labels, the vector of one half of a document's sentences must find the other half.
4. `readings`: without labels, a document's vector as one text must find the mean of its sentences' vectors.
5. Every worker embeds its shards' documents and candidates; candidates go round a block at a time, then are gone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, overload

import numpy as np
import pyarrow as pa
import torch

from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.store import Documents, TokenStore, counterparts_of, documents_of
from infocse_ray.corpus.tokens import NO_TOKENS, Tokens, bounded_ranges, concatenate, offsets_of
from infocse_ray.distributed.collectives import rank, workers
from infocse_ray.distributed.memory import MORE, advised
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.prompts import Role
from infocse_ray.retrieval.documents import document_vectors, halves
from infocse_ray.retrieval.held_out import HeldOut, held_out_for, key_limit, score_by_pieces, shared_out
from infocse_ray.retrieval.maps import Map, under, width_under
from infocse_ray.retrieval.ranks import LeftOut
from infocse_ray.retrieval.scores import Scores, score_among_all
from infocse_ray.settings import Reading

On = Literal["counterpart", "sentence", "halves", "readings"]


class Groups(NamedTuple):
    """Documents, or halves of documents, as their sentences."""

    sentences: Tokens
    offsets: np.ndarray
    """int64 [groups + 1]."""
    role: Role = "document"
    """Which prompt the sentences get."""
    reading: Reading = "sentences"
    """How their sentences become a vector."""

    def vectors(self, encoder: SentenceEncoder, begin: int = 0, end: int | None = None) -> torch.Tensor:
        """float32 [end - begin, d]: the vector of each of these groups."""
        return self.vectors_under(encoder, [None], begin, end)[0]

    def vectors_under(
        self, encoder: SentenceEncoder, maps: Sequence[Map], begin: int = 0, end: int | None = None
    ) -> list[torch.Tensor]:
        """The same for each map behind the encoder, each text embedded once."""
        offsets = self.offsets[begin : None if end is None else end + 1]
        parts = [[torch.empty(0, width_under(encoder, one), device=encoder.device)] for one in maps]
        for first, last in bounded_ranges(offsets, SENTENCES_AT_ONCE):
            rows = np.arange(offsets[first], offsets[last])
            inside = offsets[first : last + 1] - offsets[first]
            some = document_vectors(encoder, maps, self.sentences.take(rows), inside, self.reading, self.role)
            for one, part in zip(some, parts, strict=True):
                part.append(one)
        return [torch.cat(part) for part in parts]


class Questions(NamedTuple):
    """A worker's share of a validation or test set, tokenised, in memory."""

    documents: Groups
    """The documents that ask, each once, however many questions it asks."""
    asker: np.ndarray
    """int64 [questions], the row in `documents` of who asks."""
    true: Groups
    """Group i is what question i is answered by."""
    true_keys: np.ndarray
    """int64 [questions], of what answers it."""
    doc_ids: list[str]
    """[questions]."""
    candidates: Groups | None
    """The candidates, distinct; None if they are `true` itself."""
    candidate_keys: np.ndarray
    """int64 [candidates]."""

    @property
    def question_keys(self) -> np.ndarray:
        """int64 [questions]; with the document's id it names the question."""
        return self.true_keys

    def others(self) -> LeftOut:
        """Of the documents that ask for several counterparts all of these: each is ranked without the others."""
        several = np.bincount(self.asker)[self.asker] > 1
        return LeftOut.of(self.asker, self.asker[several], self.true_keys[several])


@overload
def questions_for(
    store: TokenStore,
    split: str,
    on: Literal["counterpart", "halves", "readings"],
    max_documents: int | None = None,
    device: torch.device = ...,
    seed: int = 0,
    max_candidates: int | None = None,
    reading: Reading = "sentences",
) -> Questions: ...


@overload
def questions_for(
    store: TokenStore,
    split: str,
    on: On,
    max_documents: int | None = None,
    device: torch.device = ...,
    seed: int = 0,
    max_candidates: int | None = None,
    reading: Reading = "sentences",
) -> Questions | HeldOut: ...


def questions_for(
    store: TokenStore,
    split: str,
    on: On,
    max_documents: int | None = None,
    device: torch.device = torch.device("cpu"),  # noqa: B008
    seed: int = 0,
    max_candidates: int | None = None,
    reading: Reading = "sentences",
) -> Questions | HeldOut:
    """Read this worker's share: the shards whose number is its rank modulo the workers.

    Args:
        store: the token store.
        split: whose documents ask.
        on: what a document must find.
        max_documents: about how many documents ask, or, of `counterpart`, how many questions are asked, all of a
            document's or none: the first documents by the hash of the id; None for all.
        device: that workers can exchange from.
        seed: of the draw of sentences, where `on` is `sentence`.
        max_candidates: about how many counterparts are ranked, where `on` is `counterpart`, beside those of the
            documents that ask: those of the first documents by the hash of the id; None for all.
        reading: of documents, where `on` is `counterpart`; without labels what is asked is made of sentences.

    Every worker of the process group must call.
    """
    if on == "sentence":
        return held_out_for(store, split, seed, max_documents, device)
    if on != "counterpart":
        limit, ask = key_limit(store.summary["documents"][split], max_documents), _WITHOUT_LABELS[on]
        asked = _joined([ask(table) for table in _tables(store, split, limit)])
        if on == "readings":
            asked = asked._replace(documents=asked.documents._replace(reading="whole"))
        return Questions(*asked, None, asked.true_keys)
    limit = key_limit(store.summary["labelled"][split], max_documents)
    asked = _joined([_ask_for_counterparts(table) for table in _tables(store, split, limit)])
    documents, true = asked.documents._replace(reading=reading), asked.true._replace(role="query")
    read = asked._replace(documents=documents, true=true)
    return Questions(*read, *_candidates(store, asked, max_candidates, device))


class _Asked(NamedTuple):
    """What some documents ask, as `Questions` has it, without what is ranked."""

    documents: Groups
    asker: np.ndarray
    true: Groups
    true_keys: np.ndarray
    doc_ids: list[str]


_NO_GROUP = Groups(NO_TOKENS, np.zeros(1, np.int64))
_NO_KEY = np.zeros(0, np.int64)
_NO_QUESTION = _Asked(_NO_GROUP, _NO_KEY, _NO_GROUP, _NO_KEY, [])
"""The part of a worker without documents."""


def _tables(store: TokenStore, split: str, limit: int) -> Iterator[pa.Table]:
    """The documents of this worker's shards that ask: those of the split with a key below the limit."""
    for shard in store.shards_below(limit)[rank() :: workers()]:
        for table in store.read(shard, [split]):
            if len(asking := table.filter(pa.array(table["key"].to_numpy() < limit))):
                yield asking


def _ask_for_halves(table: pa.Table) -> _Asked:
    """Each document asks with its even sentences for its odd ones."""
    documents = documents_of(table)
    even, odd = (_part(documents, rows) for rows in halves(documents.offsets))
    return _Asked(even, np.arange(len(table)), odd, documents.keys, documents.doc_ids.to_pylist())


def _ask_for_readings(table: pa.Table) -> _Asked:
    """Each document, which is to be read whole, asks for the mean of its sentences."""
    documents = documents_of(table)
    read = Groups(documents.sentences, documents.offsets)
    return _Asked(read, np.arange(len(table)), read, documents.keys, documents.doc_ids.to_pylist())


_WITHOUT_LABELS = {"halves": _ask_for_halves, "readings": _ask_for_readings}
"""How documents ask, where what is asked for is made of themselves, and of one document each."""


def _ask_for_counterparts(table: pa.Table) -> _Asked:
    """Each document that has counterparts asks for each of them."""
    true = counterparts_of(table)
    labelled, asker = np.unique(true.document, return_inverse=True)
    documents = documents_of(table.take(pa.array(labelled)))
    return _Asked(
        Groups(documents.sentences, documents.offsets),
        asker,
        _one_each(true.tokens),
        true.keys,
        documents.doc_ids.take(pa.array(asker)).to_pylist(),
    )


def _candidates(store: TokenStore, asked: _Asked, most: int | None, device: torch.device) -> tuple[Groups, np.ndarray]:
    """This worker's share of the counterparts of all splits, each text once over all workers; and their keys.

    Of about `most`, if that is given, and of what is asked for.
    """
    limit = key_limit(sum(store.summary["labelled"].values()), most)
    texts, keys = [_NO_GROUP.sentences, asked.true.sentences], [_NO_KEY, asked.true_keys]
    for shard in store.shards_below(limit)[rank() :: workers()]:
        for table in store.read(shard, SPLITS, ["key", "counterparts", "counterpart_keys"]):
            there = counterparts_of(table.filter(pa.array(table["key"].to_numpy() < limit)))
            texts.append(there.tokens)
            keys.append(there.keys)
    distinct, first = np.unique(np.concatenate(keys), return_index=True)
    mine, _ = shared_out(distinct, _NO_KEY, device)
    return _one_each(concatenate(texts).take(first[mine]))._replace(role="query"), distinct[mine]


def candidate_bound(store: TokenStore, on: On, most: int) -> int | None:
    """`most` where it leaves out counterparts of the corpus, None where all are candidates."""
    return most if on == "counterpart" and sum(store.summary["labelled"].values()) > most else None


def _part(documents: Documents, rows: np.ndarray) -> Groups:
    """The documents with some of their sentences."""
    owner = np.searchsorted(documents.offsets, rows, side="right") - 1
    sizes = np.bincount(owner, minlength=len(documents.keys))
    return Groups(documents.sentences.take(rows), offsets_of(sizes))


def _one_each(texts: Tokens) -> Groups:
    """Every text as a group of its own."""
    return Groups(texts, np.arange(len(texts) + 1))


def _joined(parts: list[_Asked]) -> _Asked:
    """The questions of all parts."""
    parts = [_NO_QUESTION, *parts]
    earlier = offsets_of(np.array([len(part.documents.offsets) - 1 for part in parts]))
    return _Asked(
        _join([part.documents for part in parts]),
        np.concatenate([part.asker + begin for part, begin in zip(parts, earlier[:-1], strict=True)]),
        _join([part.true for part in parts]),
        np.concatenate([part.true_keys for part in parts]),
        [doc_id for part in parts for doc_id in part.doc_ids],
    )


def _join(groups: list[Groups]) -> Groups:
    sizes = np.concatenate([np.diff(g.offsets) for g in groups])
    return Groups(concatenate([g.sentences for g in groups]), offsets_of(sizes))


def score(encoder: SentenceEncoder, questions: Questions | HeldOut, top: int = 1) -> Scores:
    """Rank every question's true counterpart among all candidates and make metrics of the ranks.

    Args:
        encoder: in evaluation mode, in the precision to use.
        questions: this worker's share; every worker of the process group must call.
        top: how many of what a question found first to tell.

    Raises:
        ValueError: no worker has a question.
        OutOfMemory: this worker's questions don't fit into memory.
    """
    return score_under(encoder, [None], questions, top)[0]


def score_under(
    encoder: SentenceEncoder, maps: Sequence[Map], questions: Questions | HeldOut, top: int = 1
) -> list[Scores]:
    """`score` for each of several maps behind one encoder, which embeds what is asked once for all of them.

    Args:
        encoder: in evaluation mode, in the precision to use; without whitening, if any of the maps is one.
        maps: on its device.
        questions: this worker's share; every worker of the process group must call.
        top: how many of what a question found first to tell.

    Raises:
        ValueError: no worker has a question.
        OutOfMemory: this worker's questions don't fit into memory.
    """
    if isinstance(questions, HeldOut):
        return score_by_pieces(encoder, maps, questions, top)
    many = f"{len(questions.doc_ids):,} questions of a worker"
    with torch.inference_mode(), advised(many, f"lower validate.max_documents, give it more workers, or {MORE}"):
        asking = questions.documents.vectors_under(encoder, maps)
        answers = questions.true.vectors_under(encoder, maps)

        # The maps go over the candidates one after the other, and where these are one block it is there for all.
        @functools.lru_cache(maxsize=1)
        def block(begin: int, end: int) -> torch.Tensor:
            assert questions.candidates is not None
            return questions.candidates.vectors(encoder, begin, end)

        def ranked(one: Map, documents: torch.Tensor, true: torch.Tensor) -> Scores:
            def candidates(begin: int, end: int) -> torch.Tensor:
                # A candidate is one text, whose mean is its vector.
                return true[begin:end] if questions.candidates is None else under(one, block(begin, end))

            queries, keys = documents[asker], questions.candidate_keys
            return score_among_all(queries, true, questions.true_keys, questions.asker, candidates, keys, others, top)

        asker, others = torch.from_numpy(questions.asker).to(encoder.device), questions.others()
        return [ranked(*each) for each in zip(maps, asking, answers, strict=True)]
