"""How the vectors of a shard are written, whole or not at all; as Parquet here, as Lance's in `lance_dataset.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from infocse_ray.corpus.store import shard_name
from infocse_ray.embedding.rows import DIGEST
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet

_COUNTS = b"infocse_ray.counts"
"""Parquet metadata: what the shard counted."""
_PART_ROWS = 2**16
"""Sentences in a file of their vectors at most: 100 MB at 384 dimensions."""


class Part(NamedTuple):
    """The vectors of some documents."""

    documents: pa.Table
    """Of `document_schema`."""
    sentences: pa.Table | None
    """Of `sentence_schema`, all sentences of the documents; None: they aren't asked for."""
    taken: int = 0
    """Documents whose vectors are an earlier output's."""


class Vectors(NamedTuple):
    """Columns of `vector_fields`."""

    documents: pa.Table
    sentences: pa.Table | None
    """None: they aren't asked for."""


class Writer(Protocol):
    """Writes the vectors of a shard."""

    def counts(self, shard: int) -> dict[str, int] | None:
        """What the shard counted, if it is written, whole; None if not."""
        ...

    def write(self, shard: int, parts: Iterator[Part]) -> dict[str, int]:
        """Write it; `documents` and `sentences` that it has."""
        ...


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
            schema = opened.schema_arrow
        if DIGEST not in schema.names:
            return None  # an earlier version began it
        counts = json.loads((schema.metadata or {})[_COUNTS])
        return counts if all(part.exists() for part in self._parts(shard, counts["parts"])) else None

    def sentence_files(self, shard: int) -> list[Storage]:
        """The files of a shard's sentences; none where there are none, or the shard isn't written, whole."""
        counts = self.counts(shard)
        return self._parts(shard, counts["parts"]) if counts else []

    def write(self, shard: int, parts: Iterator[Part]) -> dict[str, int]:
        """As `Writer` has it."""
        documents: list[pa.Table] = []
        waiting: list[pa.Table] = []
        counts = {"documents": 0, "sentences": 0, "taken": 0, "parts": 0}

        def flush() -> None:
            if waiting:
                write_parquet(self._part(shard, counts["parts"]), pa.concat_tables(waiting), [len(t) for t in waiting])
                counts["parts"] += 1
                waiting.clear()

        for part in parts:
            documents.append(part.documents)
            add_to(counts, part)
            for table in _bounded(part.sentences):
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

    def _parts(self, shard: int, parts: int) -> list[Storage]:
        return [self._part(shard, part) for part in range(parts)]


def _bounded(sentences: pa.Table | None) -> Iterator[pa.Table]:
    """The rows of a table, in parts of at most `_PART_ROWS`; nothing of none."""
    if sentences is not None:
        for begin in range(0, len(sentences), _PART_ROWS):
            yield sentences.slice(begin, _PART_ROWS)


def add_to(counts: dict[str, int], part: Part) -> None:
    """Count a part: its documents, their sentences, and how many documents are taken over."""
    counts["documents"] += len(part.documents)
    counts["sentences"] += int(np.sum(part.documents["sentences"].to_numpy()))
    counts["taken"] += part.taken
