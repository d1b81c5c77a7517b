"""The token store: the corpus tokenised once, in shards of row groups, read by every later stage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infocse_ray.corpus.schema import shard_of
from infocse_ray.corpus.tokens import Tokens, drawn, flat, owners, sample_hashes, tokens_of
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, read_groups

if TYPE_CHECKING:
    from infocse_ray.stages.stage import Stage


class Counterparts(NamedTuple):
    """The counterparts of a few documents: a row for each label, so that a document may be there several times."""

    document: np.ndarray
    """int64 [m], the row of the document in its table, ascending."""
    keys: np.ndarray
    """int64 [m], equal for equal texts; distinct within a document."""
    tokens: Tokens

    def of(self, row: int) -> Counterparts:
        """Those of one document, copied."""
        return self.take(np.arange(*np.searchsorted(self.document, [row, row + 1])))

    def take(self, rows: np.ndarray) -> Counterparts:
        """The given ones, copied."""
        return Counterparts(self.document[rows], self.keys[rows], self.tokens.take(rows))


class Documents(NamedTuple):
    """A few documents in memory."""

    doc_ids: pa.Array
    """string [documents]."""
    keys: np.ndarray
    """int64 [documents], the hashes of the ids."""
    offsets: np.ndarray
    """int64 [documents + 1]; document i owns the sentences offsets[i]:offsets[i + 1]."""
    sentences: Tokens
    """The sentences of all documents, one after the other."""
    clusters: np.ndarray | None = None
    """int32 [sentences], once annotated."""
    counterparts: Counterparts | None = None
    """Their labels, where these were read."""


def documents_of(table: pa.Table) -> Documents:
    """A table of the token store as arrays."""
    sentences, offsets = flat(table["sentences"])
    labels = counterparts_of(table) if "counterparts" in table.column_names else None
    keys = table["key"].to_numpy()
    return Documents(table["doc_id"].combine_chunks(), keys, offsets, tokens_of(sentences), None, labels)


def counterparts_of(table: pa.Table) -> Counterparts:
    """The counterparts that a table of the token store has."""
    texts, offsets = flat(table["counterparts"])
    keys, _ = flat(table["counterpart_keys"])
    return Counterparts(owners(offsets), keys.to_numpy(), tokens_of(texts))


class TokenStore(NamedTuple):
    """A finished token store."""

    folder: Storage
    fingerprint: str
    """Names what it holds, not what it was made of: stages that read it are found again after its source was copied or
    written anew with the same documents."""
    summary: dict

    @classmethod
    def of(cls, stage: Stage) -> TokenStore:
        """The output of a finished `prepare` stage."""
        assert stage.summary is not None
        # Versions before this one didn't say what it holds.
        return cls(stage.folder, stage.summary.get("content", stage.fingerprint), stage.summary)

    @classmethod
    def open(cls, folder: Storage) -> TokenStore:
        """The token store in `folder`.

        Raises:
            FileNotFoundError: none was finished there.
        """
        # Imported here: stages are Ray's business, and documents in memory are read without it.
        from infocse_ray.stages.stage import read_stage

        return cls.of(read_stage(folder))

    @property
    def shards(self) -> int:
        """Number of shards, a multiple of the number of lanes."""
        return self.summary["shards"]

    def shard(self, number: int) -> Storage:
        """The Parquet file of one shard."""
        return self.folder / "documents" / shard_name(number)

    def shards_below(self, limit: int) -> range:
        """The shards of the documents with a key below `limit`, from 1 to 2^63: shards are ranges of keys."""
        return range(min(self.shards, shard_of(limit - 1, self.shards) + 1))

    def documents(self, splits: Sequence[str]) -> int:
        """Documents in the given splits."""
        return sum(self.summary["documents"][split] for split in splits)

    def read(self, shard: int, splits: Sequence[str], columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The row groups of a shard whose documents are in one of the splits."""
        with open_parquet(self.shard(shard)) as file:
            yield from read_groups(file, row_groups(file, splits), columns)


def shard_name(number: int) -> str:
    """The file name of a shard."""
    return f"shard-{number:06d}.parquet"


def content_of(shard: int, splits: Sequence[str], documents: Documents) -> int:
    """A number below 2^128 that names a shard and what it holds; the sum of all shards' names the store's.

    Args:
        shard: its number.
        splits: of each document.
        documents: in the order in which they are written, with their labels.
    """
    labels = documents.counterparts
    assert labels is not None
    ids = [name.encode() for name in documents.doc_ids.to_pylist()]
    parts = [
        b",".join(split.encode() for split in splits),
        np.array([len(name) for name in ids], np.int64),
        b"".join(ids),
        *(documents.keys, documents.offsets, *documents.sentences),
        *(labels.document, labels.keys, *labels.tokens),
    ]
    content = hashlib.blake2b(f"{shard}".encode(), digest_size=16)
    for part in parts:
        whole = part.tobytes() if isinstance(part, np.ndarray) else part
        content.update(f" {len(whole)} ".encode())
        content.update(whole)
    return int.from_bytes(content.digest())


def questions_of(splits: Sequence[str], documents: Documents) -> int:
    """A number below 2^128 that names what documents may be asked for, whatever tokenizer, lanes and shards.

    That is each one's id, split, number of sentences and counterparts; the sum of parts is that of the whole.

    Args:
        splits: of each document.
        documents: with their labels.
    """
    labels = documents.counterparts
    assert labels is not None
    bounds = np.searchsorted(labels.document, np.arange(len(documents.keys) + 1))
    rows = zip(splits, documents.doc_ids.to_pylist(), np.diff(documents.offsets).tolist(), strict=True)
    total = 0
    for row, (split, doc_id, sentences) in enumerate(rows):
        own = np.sort(labels.keys[bounds[row] : bounds[row + 1]]).tolist()
        said = json.dumps([split, doc_id, sentences, own])
        total += int.from_bytes(hashlib.blake2b(said.encode(), digest_size=16).digest())
    return total % 2**128


def row_groups(file: pq.ParquetFile, splits: Sequence[str]) -> list[int]:
    """Row groups of the given splits; a row group holds documents of one split only."""
    column = file.schema_arrow.names.index("split")
    groups = []
    position = _leaf(file, column)
    for group in range(file.num_row_groups):
        statistics = file.metadata.row_group(group).column(position).statistics
        if statistics.min in splits:
            groups.append(group)
    return groups


def _leaf(file: pq.ParquetFile, column: int) -> int:
    """Parquet counts leaf columns; `split` comes before the nested ones, so the numbers agree."""
    assert file.metadata.schema.column(column).path == "split"
    return column


def drawn_sentences(documents: Documents, share: float, seed: int) -> np.ndarray:
    """int64: about `share` of the sentences, the same ones whichever documents are looked at together."""
    sizes = np.diff(documents.offsets)
    number = np.arange(len(documents.sentences)) - np.repeat(documents.offsets[:-1], sizes)
    hashes = sample_hashes(seed, np.repeat(documents.keys, sizes), number)
    return np.flatnonzero(drawn(hashes, share))
