"""What an actor does with a shard of the corpus: embed it a row group at a time, and write its vectors, whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.pipeline import here
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.store import Documents, TokenStore, documents_of, shard_name
from infocse_ray.corpus.tokens import bounded_ranges
from infocse_ray.embedding.index import Embedding
from infocse_ray.embedding.numbers import truncated
from infocse_ray.embedding.rows import ShardTexts, Texts, document_table, sentence_table
from infocse_ray.embedding.texts import read_texts
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE
from infocse_ray.retrieval.documents import cut_at, mean_vectors, one_text_each, read_as, whole_length
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet

_COLUMNS = ["doc_id", "key", "split", "sentences"]
_COUNTS = b"infocse_ray.counts"
"""Parquet metadata: what the shard counted."""
_PART_ROWS = 2**16
"""Sentences in a file of their vectors at most, but for a row group that has more: 100 MB at 384 dimensions."""


class Part(NamedTuple):
    """The vectors of some documents."""

    documents: pa.Table
    """Of `document_schema`."""
    sentences: list[pa.Table]
    """Of `sentence_schema`, all sentences of the documents; nothing where they aren't asked for."""


class Writer(Protocol):
    """Writes the vectors of a shard."""

    def counts(self, shard: int) -> dict[str, int] | None:
        """What the shard counted, if it is written, whole; None if not."""
        ...

    def write(self, shard: int, parts: Iterator[Part]) -> dict[str, int]:
        """Write it; `documents` and `sentences` that it has."""
        ...


class _Embedded(NamedTuple):
    """The vectors of documents `first` to before `last` of a row group."""

    first: int
    last: int
    documents: np.ndarray
    """float32 [last - first, d]."""
    sentences: np.ndarray | None
    """float32, of all sentences of these; None: they aren't asked for."""


class EmbedShards(NamedTuple):
    """Embeds groups of shards; a piece of the stage is a shard."""

    store: TokenStore
    texts: Storage
    embedding: Embedding
    writer: Writer

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
        for table in self.store.read(shard, SPLITS, _COLUMNS):
            documents = documents_of(table)
            yield self._part(documents, on_device(self._embedded, annotator, documents), texts)

    def _embedded(self, annotator: Annotator, documents: Documents) -> list[_Embedded]:
        """What computes; nothing of it stays on the device."""
        asked, normalize = self.embedding, annotator.encoder.normalize
        embedded: list[_Embedded] = []
        for first, last, vectors in self._ranges(annotator, documents):
            offsets = documents.offsets[first : last + 1] - documents.offsets[first]
            means = None if asked.reading == "whole" else mean_vectors(vectors, offsets, normalize)
            whole = None if asked.reading == "sentences" else self._whole(annotator, documents, first, last)
            read = _numpy(read_as(means, whole, normalize))
            embedded.append(_Embedded(first, last, read, _numpy(vectors) if asked.sentences else None))
        return embedded

    def _part(self, documents: Documents, embedded: list[_Embedded], texts: ShardTexts) -> Part:
        precision = self.embedding.precision
        sentences: list[pa.Table] = []
        for first, last, _, vectors in embedded:
            if vectors is not None:
                some = documents._replace(
                    doc_ids=documents.doc_ids.slice(first, last - first),
                    keys=documents.keys[first:last],
                    offsets=documents.offsets[first : last + 1] - documents.offsets[first],
                )
                sentences.append(sentence_table(some, Texts(some, texts), vectors, precision))
        read = np.concatenate([one.documents for one in embedded])
        return Part(document_table(documents, Texts(documents, texts), read, precision), sentences)

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


class ParquetWriter(NamedTuple):
    """A file of documents for each shard; those of its sentences, of bounded size, are written before it.

    So a shard is whole if its documents are there, and as many files of sentences as they say.
    """

    folder: Storage
    schema: pa.Schema
    """Of documents."""

    def counts(self, shard: int) -> dict[str, int] | None:
        """As `Writer` has it."""
        file = self.folder / "documents" / shard_name(shard)
        if not file.exists():
            return None
        with open_parquet(file) as opened:
            counts = json.loads((opened.schema_arrow.metadata or {})[_COUNTS])
        whole = all(self._part(shard, part).exists() for part in range(counts["parts"]))
        return counts if whole else None

    def write(self, shard: int, parts: Iterator[Part]) -> dict[str, int]:
        """As `Writer` has it."""
        documents: list[pa.Table] = []
        waiting: list[pa.Table] = []
        counts = {"documents": 0, "sentences": 0, "parts": 0}

        def flush() -> None:
            if waiting:
                write_parquet(self._part(shard, counts["parts"]), pa.concat_tables(waiting), [len(t) for t in waiting])
                counts["parts"] += 1
                waiting.clear()

        for part in parts:
            documents.append(part.documents)
            counts["documents"] += len(part.documents)
            counts["sentences"] += int(np.sum(part.documents["sentences"].to_numpy()))
            for table in part.sentences:
                if sum(map(len, waiting)) + len(table) > _PART_ROWS:
                    flush()
                waiting.append(table)
        flush()
        whole = pa.concat_tables([self.schema.empty_table(), *documents])
        whole = whole.replace_schema_metadata({_COUNTS: json.dumps(counts)})
        write_parquet(self.folder / "documents" / shard_name(shard), whole, [len(table) for table in documents])
        return counts

    def _part(self, shard: int, part: int) -> Storage:
        return self.folder / "sentences" / f"{shard_name(shard).removesuffix('.parquet')}-{part:03d}.parquet"
