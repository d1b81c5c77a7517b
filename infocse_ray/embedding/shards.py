"""What an actor does with a shard of the corpus: embed it a row group at a time, and write its vectors, whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.pipeline import here
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.store import Documents, TokenStore, documents_of
from infocse_ray.corpus.tokens import bounded_ranges
from infocse_ray.embedding.earlier import Earlier, Reader, digests_of, put_together
from infocse_ray.embedding.index import Embedding
from infocse_ray.embedding.numbers import truncated, vector_columns, vector_fields
from infocse_ray.embedding.rows import ShardTexts, Texts, document_table, sentence_table
from infocse_ray.embedding.texts import read_texts
from infocse_ray.embedding.writer import Part, Vectors, Writer
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE
from infocse_ray.retrieval.documents import cut_at, mean_vectors, one_text_each, read_as, whole_length
from infocse_ray.storage.folder import Storage

_COLUMNS = ["doc_id", "key", "split", "sentences"]


class _Embedded(NamedTuple):
    """The vectors of some documents."""

    documents: np.ndarray
    """float32 [documents, d]."""
    sentences: np.ndarray | None
    """float32, of all sentences of these; None: they aren't asked for."""


class EmbedShards(NamedTuple):
    """Embeds groups of shards; a piece of the stage is a shard."""

    store: TokenStore
    texts: Storage
    embedding: Embedding
    writer: Writer
    earlier: Earlier | None = None
    """Whose vectors are taken over where they are still right."""

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """Write what is missing; return what each shard counted."""
        return self.in_parts(annotator, shards, here)

    def in_parts(self, annotator: Annotator, shards: list[int], on_device: Callable[..., Any]) -> list[dict[str, Any]]:
        """As a call; a part is a row group (see `InParts`)."""
        counts = []
        for shard in shards:
            there = self.writer.counts(shard)
            parts = self._parts(annotator, shard, on_device)
            counts.append(self.writer.write(shard, parts) if there is None else there)
        return counts

    def _parts(self, annotator: Annotator, shard: int, on_device: Callable[..., Any]) -> Iterator[Part]:
        texts = ShardTexts(read_texts(self.texts, shard))
        reader = self.earlier.reader(shard, self.store.shards, self.embedding.sentences) if self.earlier else None
        for table in self.store.read(shard, SPLITS, _COLUMNS):
            documents = documents_of(table)
            digests = digests_of(documents)
            vectors, taken = self._vectors(annotator, table, documents, digests, reader, on_device)
            found = Texts(documents, texts)
            asked, of_sentences = self.embedding, vectors.sentences
            sentences = None if of_sentences is None else sentence_table(asked, documents, found, of_sentences)
            yield Part(document_table(asked, documents, digests, found, vectors.documents), sentences, taken)

    def _vectors(
        self,
        annotator: Annotator,
        table: pa.Table,
        documents: Documents,
        digests: np.ndarray,
        reader: Reader | None,
        on_device: Callable[..., Any],
    ) -> tuple[Vectors, int]:
        """The vectors of a row group, and of how many documents they are an earlier output's."""
        taken = reader.find(documents, digests) if reader else None
        if taken is None:
            return self._columns(on_device(self._embedded, annotator, documents)), 0
        new = documents_of(table.filter(pa.array(taken.rows < 0)))
        embedded = on_device(self._embedded, annotator, new) if len(new.doc_ids) else []
        return put_together(taken, documents.offsets, self._columns(embedded)), int((taken.rows >= 0).sum())

    def _columns(self, embedded: list[_Embedded]) -> Vectors:
        """As they are stored."""
        d, precision = self.embedding.dimension, self.embedding.precision
        nothing = np.zeros((0, d), np.float32)

        def columns(parts: list[np.ndarray]) -> pa.Table:
            stored = vector_columns(np.concatenate([nothing, *parts]), precision)
            return pa.table(list(stored.values()), schema=pa.schema(vector_fields(d, precision)))

        sentences = [one.sentences for one in embedded if one.sentences is not None]
        documents = columns([one.documents for one in embedded])
        return Vectors(documents, columns(sentences) if self.embedding.sentences else None)

    def _embedded(self, annotator: Annotator, documents: Documents) -> list[_Embedded]:
        """What computes; nothing of it stays on the device."""
        asked, normalize = self.embedding, annotator.encoder.normalize
        embedded: list[_Embedded] = []
        for first, last, vectors in self._ranges(annotator, documents):
            offsets = documents.offsets[first : last + 1] - documents.offsets[first]
            means = None if asked.reading == "whole" else mean_vectors(vectors, offsets, normalize)
            whole = None if asked.reading == "sentences" else self._whole(annotator, documents, first, last)
            read = _numpy(read_as(means, whole, normalize))
            embedded.append(_Embedded(read, _numpy(vectors) if asked.sentences else None))
        return embedded

    def _ranges(self, annotator: Annotator, documents: Documents) -> Iterator[tuple[int, int, torch.Tensor]]:
        """As `Annotator.vectors`, cut to the dimensions; without any vector where nothing is made of sentences'."""
        asked, normalize = self.embedding, annotator.encoder.normalize
        if asked.reading == "whole" and not asked.sentences:
            for first, last in bounded_ranges(documents.offsets, SENTENCES_AT_ONCE):
                yield first, last, torch.empty(0, asked.dimension)
        else:
            for first, last, vectors in annotator.vectors(documents):
                yield first, last, truncated(vectors, asked.dimensions, normalize)

    def _whole(self, annotator: Annotator, documents: Documents, first: int, last: int) -> torch.Tensor:
        """Vectors of documents first:last, each as one text, float32 [last - first, d]."""
        encoder = annotator.encoder
        texts = one_text_each(encoder, documents.sentences, documents.offsets[first : last + 1])
        with cut_at(encoder, whole_length(encoder)):
            return truncated(annotator.embed(texts), self.embedding.dimensions, encoder.normalize)


def _numpy(vectors: torch.Tensor) -> np.ndarray:
    return vectors.float().cpu().numpy()
