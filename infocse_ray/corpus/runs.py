"""Sorted runs: files of rows in the order of the shards they go to, of which any range of shards is read at once.

1. A run's cell is its rows of one shard: chunks, each some rows as Arrow writes them, compressed.
2. A run begins with its index: of each shard where its cell is, and the cell's digest. Every entry has a check of its
   own, so that who wants a few shards reads a few entries, and nothing that was damaged is taken for whole.
3. Cells of several runs are joined without being decoded: their chunks, one after the other.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from infocse_ray.corpus.tokens import offsets_of
from infocse_ray.storage.checksums import OTHER, damaged, digest
from infocse_ray.storage.errors import explained
from infocse_ray.storage.folder import Storage

_ENTRY = struct.Struct("<QQ16s16s")
"""Of a shard: where its cell begins and ends in the file, the cell's digest, and that of all this with the shard."""
_WHERE = struct.Struct("<IQQ16s")
_CHUNK = struct.Struct("<II")
"""Bytes of a chunk, as it is and once decompressed."""
_CODEC = pa.Codec("zstd", 1)
_READERS = 16
"""Runs read at once: a request to an object store is mostly waiting."""

Cell = bytes | memoryview


class RunWriter:
    """Gathers tables with a column `shard` and writes them as runs of a bounded size."""

    def __init__(self, file: Storage, shards: int, most_bytes: int) -> None:
        """Nothing is written yet.

        Args:
            file: the runs are called like it, `-0` and so on after it.
            shards: that rows go to.
            most_bytes: of rows in memory, about.
        """
        self._file, self._shards, self._most = file, shards, most_bytes
        self._tables: list[pa.Table] = []
        self._bytes = self._runs = 0

    def add(self, table: pa.Table) -> None:
        """Take the table; write a run if there is enough for one."""
        self._tables.append(table)
        self._bytes += table.nbytes
        if self._bytes >= self._most:
            self._write()

    def close(self) -> int:
        """Write what is left; how many runs there are."""
        if any(map(len, self._tables)):
            self._write()
        return self._runs

    def _write(self) -> None:
        tables, self._tables, self._bytes = self._tables, [], 0
        table = pa.concat_tables(tables).combine_chunks()
        del tables
        shards = table["shard"].to_numpy()
        order = np.argsort(shards, kind="stable")
        ends = np.searchsorted(shards[order], np.arange(self._shards + 1))
        write_run(
            run_file(self._file, self._runs),
            0,
            [
                _chunk(table.take(pa.array(order[begin:end]))) if end > begin else b""
                for begin, end in itertools.pairwise(ends)
            ],
        )
        self._runs += 1


def run_file(file: Storage, number: int) -> Storage:
    """The run of that number of those called like `file`."""
    return Storage(file.root, f"{file.relative}-{number}")


def write_run(file: Storage, first: int, cells: Sequence[Cell]) -> None:
    """Write a run, whole, of the cells of neighbouring shards from `first` on."""
    ends = offsets_of(np.array([len(cell) for cell in cells])) + len(cells) * _ENTRY.size
    places = zip(range(first, first + len(cells)), ends[:-1].tolist(), ends[1:].tolist(), cells, strict=True)
    file.write_bytes(b"".join([*(_entry(*place) for place in places), *cells]))


def _entry(shard: int, begin: int, end: int, cell: Cell) -> bytes:
    found = digest(cell)
    return _ENTRY.pack(begin, end, found, digest(_WHERE.pack(shard, begin, end, found)))


def read_cells(files: Sequence[Storage], first: int, begin: int, end: int) -> list[list[Cell]]:
    """The cells of the shards `begin` to before `end` of each run.

    Args:
        files: runs.
        first: their first shard.
        begin: a shard that they have.
        end: one after it.

    Raises:
        DamagedFile: what was read of a run isn't as it was written.
    """
    with ThreadPoolExecutor(min(_READERS, max(1, len(files)))) as readers:
        return list(readers.map(lambda file: _cells(file, first, begin, end), files))


def _cells(file: Storage, first: int, begin: int, end: int) -> list[Cell]:
    try:
        with explained(file), file.filesystem.open_input_file(file.path) as source:
            index = file.read_at(source, (end - begin) * _ENTRY.size, (begin - first) * _ENTRY.size)
            entries = list(_ENTRY.iter_unpack(index)) if len(index) == (end - begin) * _ENTRY.size else []
            whole = len(entries) == end - begin and all(
                check == digest(_WHERE.pack(shard, *where))
                for shard, (*where, check) in zip(range(begin, end), entries, strict=True)
            )
            if not whole:
                raise damaged(file, OTHER)
            start, stop = entries[0][0], entries[-1][1]
            content = memoryview(file.read_at(source, stop - start, start) if stop > start else b"")
    except FileNotFoundError as error:
        raise damaged(file, "it is missing") from error
    cells: list[Cell] = [content[at - start : to - start] for at, to, _, _ in entries]
    if any(digest(cell) != expected for cell, (_, _, expected, _) in zip(cells, entries, strict=True)):
        raise damaged(file, OTHER)
    return cells


def _chunk(rows: pa.Table) -> bytes:
    (batch,) = rows.combine_chunks().to_batches()
    plain = batch.serialize()
    packed = _CODEC.compress(plain)
    return b"".join((_CHUNK.pack(len(packed), len(plain)), packed))


def rows_of(cells: Sequence[Cell], schema: pa.Schema) -> pa.Table:
    """The rows of the cells of one shard, in their order."""
    return pa.Table.from_batches([batch for cell in cells for batch in _batches(cell, schema)], schema)


def _batches(cell: Cell, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    start = 0
    while start < len(cell):
        packed, plain = _CHUNK.unpack_from(cell, start)
        start += _CHUNK.size
        content = _CODEC.decompress(cell[start : start + packed], decompressed_size=plain)
        yield pa.ipc.read_record_batch(content, schema)
        start += packed
