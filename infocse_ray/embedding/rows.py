"""The tables of vectors that are written: documents, and their sentences."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from infocse_ray.corpus.metadata import metadata_type
from infocse_ray.corpus.sentences import as_text
from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import owners
from infocse_ray.embedding.index import METADATA_COLUMN, Embedding
from infocse_ray.embedding.numbers import vector_fields

DIGEST = "digest"
"""The column by which a later output knows whether a document is what it was."""

SHOWN_TITLE = 200
"""Characters of a title at most."""
_CHUNK_BYTES = 2**30
"""Of metadata in a chunk of a column; an array of texts has room for twice as many."""


_DOCUMENT = [
    pa.field("doc_id", pa.string(), nullable=False),
    pa.field("key", pa.int64(), nullable=False),
    pa.field("title", pa.string(), nullable=False),
    pa.field("text", pa.string(), nullable=False),
    pa.field("sentences", pa.int32(), nullable=False),
    pa.field(DIGEST, pa.int64(), nullable=False),
]
_SENTENCE = [
    pa.field("doc_id", pa.string(), nullable=False),
    pa.field("key", pa.int64(), nullable=False),
    pa.field("number", pa.int32(), nullable=False),
    pa.field("title", pa.string(), nullable=False),
    pa.field("text", pa.string(), nullable=False),
]


def document_schema(embedding: Embedding) -> pa.Schema:
    """Schema of document vectors.

    `key` is the hash of the id; `title` the document's first counterpart (a headline, say), or its first sentence where
    it has none; `text` its sentences, with a space between; `sentences` how many there are; `digest` a hash of their
    tokens, by which a later output knows whether its vectors are still right; `metadata`, where any was asked for, a
    struct of it.
    """
    return _schema(_DOCUMENT, embedding)


def sentence_schema(embedding: Embedding) -> pa.Schema:
    """Schema of sentence vectors: as of documents, with the sentence's `number` in its document, from 0."""
    return _schema(_SENTENCE, embedding)


def _schema(fields: list[pa.Field], embedding: Embedding) -> pa.Schema:
    metadata = [pa.field(METADATA_COLUMN, metadata_type(embedding.metadata))] if embedding.metadata else []
    return pa.schema([*fields, *metadata, *vector_fields(embedding.dimension, embedding.precision)])


class ShardTexts:
    """The texts of a shard, found by id; ids are looked through once for all of its row groups."""

    def __init__(self, table: pa.Table) -> None:
        """Take a table of texts (see `texts.py`), in any order."""
        self.table = table
        self.row = {doc_id: row for row, doc_id in enumerate(table["doc_id"].to_pylist())}


class Texts:
    """The titles and sentences of some documents, in their order."""

    def __init__(self, documents: Documents, texts: ShardTexts) -> None:
        """Find the documents' texts.

        Args:
            documents: of a shard of the token store.
            texts: of the same shard.

        Raises:
            ValueError: a text is missing, or has another number of sentences: the corpus was changed meanwhile.
        """
        rows = [texts.row.get(doc_id) for doc_id in documents.doc_ids.to_pylist()]
        if None not in rows:
            mine = texts.table.take(pa.array(rows, pa.int64()))
            self.sentences: list[list[str]] = mine["sentences"].to_pylist()
            self.metadata = [mine[METADATA_COLUMN].combine_chunks()] if METADATA_COLUMN in mine.column_names else []
            """A column, a struct a document; none where none was asked for."""
            self.titles: list[str] = [
                _title(title or own[0]) for title, own in zip(mine["title"].to_pylist(), self.sentences, strict=True)
            ]
        if None in rows or [len(own) for own in self.sentences] != np.diff(documents.offsets).tolist():
            raise ValueError(
                "corpus.source: its files changed while they were read; run the same command again, when they don't"
            )


def _title(text: str) -> str:
    return text if len(text) <= SHOWN_TITLE else f"{text[: SHOWN_TITLE - 2].rstrip()} …"


def document_table(
    embedding: Embedding, documents: Documents, digests: np.ndarray, texts: Texts, vectors: pa.Table
) -> pa.Table:
    """Rows of `document_schema`.

    Args:
        embedding: what is asked for.
        documents: n of them.
        digests: int64 [n], of their tokens.
        texts: theirs.
        vectors: n rows of `vector_fields`.
    """
    columns = [
        documents.doc_ids,
        pa.array(documents.keys),
        pa.array(texts.titles, pa.string()),
        pa.array([as_text(own) for own in texts.sentences], pa.string()),
        pa.array(np.diff(documents.offsets).astype(np.int32)),
        pa.array(digests),
        *texts.metadata,
    ]
    return pa.table([*columns, *vectors.columns], schema=document_schema(embedding))


def _repeated(column: pa.Array, owner: np.ndarray) -> pa.ChunkedArray:
    """The values of a column at these rows, in chunks in which texts don't add up to more than an array can have."""
    rows = max(1, _CHUNK_BYTES // max(1, column.nbytes))
    parts = [column.take(pa.array(owner[begin : begin + rows])) for begin in range(0, len(owner), rows)]
    return pa.chunked_array(parts, column.type)


def sentence_table(embedding: Embedding, documents: Documents, texts: Texts, vectors: pa.Table) -> pa.Table:
    """Rows of `sentence_schema`, of all sentences of the documents.

    Args:
        embedding: what is asked for.
        documents: some, with n sentences together.
        texts: theirs.
        vectors: n rows of `vector_fields`.
    """
    owner = owners(documents.offsets)
    columns = [
        documents.doc_ids.take(pa.array(owner)),
        pa.array(documents.keys[owner]),
        pa.array((np.arange(len(owner)) - documents.offsets[owner]).astype(np.int32)),
        pa.array(texts.titles, pa.string()).take(pa.array(owner)),
        pa.array([sentence for own in texts.sentences for sentence in own], pa.string()),
        *(_repeated(column, owner) for column in texts.metadata),
    ]
    return pa.table([*columns, *vectors.columns], schema=sentence_schema(embedding))
