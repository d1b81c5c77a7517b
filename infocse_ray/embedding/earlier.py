"""Vectors of an earlier output that are taken over: those of documents whose tokens are what they were.

A document's vectors depend on the encoder, on how it reads, and on the document's own tokens alone. So a document of an
index is told by its key, the hash of its id, and by a hash of its tokens, and what has both unchanged isn't embedded
again. Shards are ranges of keys, in order, whatever their number: while a shard is written the earlier output is read
along, from the lowest key to the highest, a row group at a time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infocse_ray.corpus.schema import shard_of
from infocse_ray.corpus.store import Documents, shard_name
from infocse_ray.corpus.tokens import Tokens, offsets_of, places
from infocse_ray.embedding.index import Embedding, Over, made_by_embed, read_embedding
from infocse_ray.embedding.lance_dataset import dataset_place, opened_fragments, require_lance, shard_fragments
from infocse_ray.embedding.numbers import vector_fields
from infocse_ray.embedding.rows import DIGEST
from infocse_ray.embedding.writer import ParquetWriter, Vectors
from infocse_ray.encoder.tokenizer import first_line
from infocse_ray.errors import DamagedFile
from infocse_ray.stages.stage import read_whole_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, read_groups


def digests_of(documents: Documents) -> np.ndarray:
    """int64 [documents]: equal for equal sentences, in the same order; else different but for a chance of 2^-64."""
    return Tokens(documents.sentences.hashes().view(np.uint64), documents.offsets).hashes()


class Taken(NamedTuple):
    """What of some documents is taken over."""

    rows: np.ndarray
    """int64 [documents]: a document's row in `documents`; -1: it has to be embedded."""
    documents: pa.Table
    """The columns of `vector_fields`."""
    sentences: pa.Table | None
    """Likewise, of sentences; None: they aren't asked for."""
    first_sentences: np.ndarray
    """int64 [rows of `documents`]: the row in `sentences` that a document's begin at."""


class Earlier(NamedTuple):
    """A finished output of `infocse embed`."""

    output: Storage
    embedding: Embedding
    shards: int
    job: str
    """Of its own: what one job has opened no later one of the same process takes for what is there."""

    @classmethod
    def of(cls, folder: str, output: Storage, embedding: Embedding) -> Earlier:
        """Open it, if its vectors are those that `embedding` would have.

        Args:
            folder: or URI, of the earlier output.
            output: that is written now.
            embedding: what is asked for now.

        Raises:
            ValueError: nothing finished is there, or not all of it; its vectors are others, or from before digests were
                kept.
        """
        earlier = Storage.of_runs(folder, "reuse")
        where = f"reuse = {str(earlier)!r}"
        if earlier.uri == output.uri:
            raise ValueError(f"{where}: is the output, too; give another output, and remove this one afterwards")
        try:
            with made_by_embed(where):
                there, vectors = read_embedding(earlier), read_whole_stage(earlier / "vectors")
        except FileNotFoundError:
            raise ValueError(f"{where}: no vectors are there that `infocse embed` has finished") from None
        except DamagedFile as error:  # which isn't this output's, to be made again
            raise ValueError(str(error)) from None
        if (other := there.unlike(embedding)) is not None:
            raise ValueError(f"{where}: has vectors of {other}, which can't be taken over; leave out reuse")
        if there.format == "lance":
            require_lance(where)
        assert vectors.summary is not None
        if "taken" not in vectors.summary:
            raise ValueError(
                f"{where}: is of an earlier version, which didn't keep what documents are told by; leave out reuse"
            )
        found = cls(earlier, there, vectors.summary["shards"], uuid.uuid4().hex)
        if there.format == "lance":
            try:
                found._fragments("documents")
            except DamagedFile as error:
                raise ValueError(f"{where}: {error}; leave out reuse") from None
        return found

    def reader(self, shard: int, shards: int, sentences: bool) -> Reader:
        """Reads the documents of one of so many shards that are written now, and their sentences if asked for."""
        keys = (shard << 63) // shards, (((shard + 1) << 63) - 1) // shards
        vector = [field.name for field in vector_fields(self.embedding.dimension, self.embedding.precision)]
        documents = _Along(self._tables("documents", keys, ["key", DIGEST, "sentences", *vector]))
        own = _Along(self._tables("sentences", keys, ["key", *vector])) if sentences else None
        return Reader(documents, own, vector)

    def _tables(self, over: Over, keys: tuple[int, int], columns: list[str]) -> Iterator[pa.Table]:
        """Rows with at least the keys from the lowest to the highest, ascending."""
        for shard in range(shard_of(keys[0], self.shards), shard_of(keys[1], self.shards) + 1):
            if self.embedding.format == "lance":
                yield from self._of_fragments(over, shard, keys, columns)
            else:
                for file in self._files(over, shard):
                    with open_parquet(file) as opened:
                        groups = _groups(opened, keys)
                        yield from read_groups(opened, groups.wanted, columns)
                    if groups.behind:
                        break

    def _of_fragments(self, over: Over, shard: int, keys: tuple[int, int], columns: list[str]) -> Iterator[pa.Table]:
        dataset, by_file = self._fragments(over)
        if fragments := shard_fragments(by_file, self.output / "vectors", over, shard):
            within = f"key >= {keys[0]} AND key <= {keys[1]}"
            try:
                scanner = dataset.scanner(columns=columns, filter=within, fragments=fragments, scan_in_order=True)
                yield from (pa.Table.from_batches([batch]) for batch in scanner.to_batches())
            except (pa.ArrowInvalid, OSError, ValueError) as error:
                raise self._unreadable(over, error) from error

    def _fragments(self, over: Over) -> tuple[Any, dict[str, Any]]:
        uri, options = dataset_place(self.output / f"{over}.lance")
        try:
            return opened_fragments(uri, None if options is None else tuple(options.items()), self.job)
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise self._unreadable(over, error) from error

    def _unreadable(self, over: Over, error: Exception) -> DamagedFile:
        return DamagedFile(f"{self.output / f'{over}.lance'} can't be read ({first_line(error)})")

    def _files(self, over: Over, shard: int) -> list[Storage]:
        folder = self.output / "vectors"
        if over == "documents":
            return [folder / "documents" / shard_name(shard)]
        return ParquetWriter(folder, pa.schema([])).sentence_files(shard)


class _Groups(NamedTuple):
    """Row groups of a file."""

    wanted: list[int]
    """Those that have some of the keys."""
    behind: bool
    """Whether some have higher keys, so that no later file has any."""


def _groups(file: pq.ParquetFile, keys: tuple[int, int]) -> _Groups:
    leaf = next(i for i in range(len(file.metadata.schema)) if file.metadata.schema.column(i).path == "key")
    wanted, behind = [], False
    for group in range(file.num_row_groups):
        statistics = file.metadata.row_group(group).column(leaf).statistics
        if statistics is not None and statistics.min <= keys[1] and statistics.max >= keys[0]:
            wanted.append(group)
        behind = behind or (statistics is not None and statistics.min > keys[1])
    return _Groups(wanted, behind)


class _Along:
    """Rows by ascending key, of which those of some keys are wanted, then those of higher ones; no others are kept."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables, self._ended = tables, False
        self._waiting: list[pa.Table] = []

    def of(self, wanted: np.ndarray) -> pa.Table | None:
        """The rows with any of the keys, int64 and ascending; None: no row is left.

        Lower keys are not asked for afterwards.
        """
        low, high = int(wanted[0]), int(wanted[-1])
        self._waiting = [self._kept(table, wanted) for table in self._waiting]
        while not self._ended and (not self._waiting or self._waiting[-1]["key"][-1].as_py() <= high):
            table = next(self._tables, None)
            self._ended = table is None
            if table is not None and len(table):
                self._waiting.append(self._kept(table, wanted))
        if not self._waiting:
            return None
        rows = pa.concat_tables(self._waiting).combine_chunks()
        keys = rows["key"].to_numpy()
        begin, end = int(np.searchsorted(keys, low)), int(np.searchsorted(keys, high, side="right"))
        self._waiting = [rows.slice(min(end, len(rows) - 1))]
        found = rows.slice(begin, end - begin)
        return found.filter(pa.array(np.isin(keys[begin:end], wanted)))

    def _kept(self, table: pa.Table, wanted: np.ndarray) -> pa.Table:
        """What of a table may still be wanted, and its last row, which says how far the rows are read."""
        keys = table["key"].to_numpy()
        keep = np.isin(keys, wanted) | (keys > wanted[-1])
        keep[-1:] = True
        return table if keep.all() else table.filter(pa.array(keep))


class Reader:
    """Finds documents of one shard, in their order, among the earlier ones."""

    def __init__(self, documents: _Along, sentences: _Along | None, vector: list[str]) -> None:
        """Take the rows to look through.

        Args:
            documents: the earlier documents.
            sentences: theirs, if asked for.
            vector: names of the columns to take over.
        """
        self._documents, self._sentences, self._vector = documents, sentences, vector

    def find(self, documents: Documents, digests: np.ndarray) -> Taken | None:
        """What is taken over; None: nothing.

        Args:
            documents: of the shard, after those that were asked for before.
            digests: of `digests_of`.
        """
        keys = np.sort(documents.keys)
        try:
            earlier = self._documents.of(keys)
            sentences = self._sentences.of(keys) if self._sentences else None
        except (DamagedFile, FileNotFoundError):  # what can't be read any more is embedded
            self._documents, self._sentences = _Along(iter(())), self._sentences and _Along(iter(()))
            return None
        if earlier is None or (self._sentences and sentences is None):
            return None
        keys, wanted = earlier["key"].to_numpy(), documents.keys
        rows = np.searchsorted(keys, wanted)
        there = rows < len(keys)
        rows[~there] = 0
        if len(keys):
            there &= (keys[rows] == wanted) & (earlier[DIGEST].to_numpy()[rows] == digests)
        begins = np.zeros(len(keys), np.int64)
        if sentences is not None and len(keys):
            of = sentences["key"].to_numpy()
            begins = np.searchsorted(of, keys)
            whole = np.searchsorted(of, keys, side="right") - begins == earlier["sentences"].to_numpy()
            there &= whole[rows]
        if not there.any():
            return None
        vectors = None if sentences is None else sentences.select(self._vector)
        return Taken(np.where(there, rows, -1), earlier.select(self._vector), vectors, begins)


def put_together(taken: Taken, offsets: np.ndarray, embedded: Vectors) -> Vectors:
    """The vectors of all documents, taken over or embedded, in their order.

    Args:
        taken: of n documents.
        offsets: int64 [n + 1], of their sentences.
        embedded: of those that aren't taken over, in their order.
    """
    new = taken.rows < 0
    order = np.where(new, np.cumsum(new) - 1, len(embedded.documents) + taken.rows)
    documents = _one_of(embedded.documents, taken.documents, order)
    if embedded.sentences is None or taken.sentences is None:
        return Vectors(documents, None)
    lengths = np.diff(offsets)
    begins = np.empty(len(lengths), np.int64)
    begins[new] = offsets_of(lengths[new])[:-1]
    begins[~new] = len(embedded.sentences) + taken.first_sentences[taken.rows[~new]]
    return Vectors(documents, _one_of(embedded.sentences, taken.sentences, places(begins, lengths)))


def _one_of(embedded: pa.Table, taken: pa.Table, rows: np.ndarray) -> pa.Table:
    """Rows of the two, one below the other."""
    return pa.concat_tables([embedded, taken.cast(embedded.schema)]).take(pa.array(rows))
