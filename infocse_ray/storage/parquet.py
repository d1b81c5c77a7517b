"""Parquet files that verify themselves as they are read, in one read.

1. Between the last page and the footer, where no other reader looks, is an index: of each row group its end and its
   digest (BLAKE2b); then a digest of index and footer. Nothing is parsed before it is verified, not even the headers of
   pages, which Parquet's own checksums leave out.
2. A file of up to 8 MiB is fetched at once; of a larger one the end, and then whole each row group that is asked for,
   neighbours together up to 8 MiB where it is known that they will be (`read_groups`). No byte is fetched twice for it.
What nobody reads nobody checks: a file is as it was written as far as it was read.
"""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infocse_ray.storage.checksums import OTHER, damaged, digest
from infocse_ray.storage.errors import explained
from infocse_ray.storage.folder import Storage

_GROUP = struct.Struct("<Q16s")
"""Of a row group: where it ends in the file, and the digest of its bytes."""
_TAIL = struct.Struct("<I16s8s")
"""How many row groups, the digest, and what says that there is an index."""
_NAME = b"infocse2"

_SEALED = b"infocse_ray.sealed"
_BY_GROUP = b"row groups"
"""Parquet metadata: says that there is an index, should it not be found."""

_AT_ONCE = 8 * 2**20
_END = 2**20
"""Bytes at the end of a larger file that are fetched for its footer, which mostly is smaller."""


def write_parquet(file: Storage, table: pa.Table, row_group_rows: list[int]) -> None:
    """Write a table, whole, in row groups of the given sizes (rows)."""
    schema = table.schema.with_metadata({**(table.schema.metadata or {}), _SEALED: _BY_GROUP})
    table = table.replace_schema_metadata(schema.metadata)
    sink, ends, start = pa.BufferOutputStream(), [0], 0
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for rows in row_group_rows:
            writer.write_table(table.slice(start, rows), row_group_size=max(rows, 1))
            start += rows
            ends.append(sink.tell())
    content = memoryview(sink.getvalue())
    footer = _footer(content, len(content))
    groups = [_GROUP.pack(end, digest(content[begin:end])) for begin, end in itertools.pairwise(ends)]
    index = b"".join(groups)
    tail = _TAIL.pack(len(groups), digest(index + content[footer:]), _NAME)
    file.write_bytes(b"".join((content[:footer], index, tail, content[footer:])))


def _footer(end: Any, size: int) -> int:
    """Where the footer of a file of `size` bytes begins, by its end: of the last 8 bytes 4 are the footer's size."""
    return size - 8 - int.from_bytes(end[-8:-4], "little")


class _Fetched:
    """A file of which the end, or all, is here."""

    def __init__(self, file: Storage) -> None:
        self.file = file
        with explained(file):
            self.source = file.filesystem.open_input_file(file.path)
            self.size = self.source.size()
        self._begin, self._end = self.size, b""
        begin = 0 if self.size <= _AT_ONCE else self.size - _END
        self._begin, self._end = begin, self.bytes(begin, self.size)

    def bytes(self, begin: int, end: int) -> memoryview:
        """Those from `begin` to before `end`; fewer where the file is shorter."""
        if begin >= self._begin:
            return memoryview(self._end)[begin - self._begin : end - self._begin]
        with explained(self.file):
            content = self.file.read_at(self.source, min(end, self._begin) - begin, begin)
        if end > self._begin:
            content = b"".join((content, memoryview(self._end)[: end - self._begin]))
        return memoryview(content)


class _At(io.BytesIO):
    """Bytes as they are read from the middle of a file."""

    def __init__(self, content: Any, begin: int) -> None:
        super().__init__(content)
        self._begin = begin

    def seek(self, position: int, whence: int = 0, /) -> int:
        return super().seek(position - self._begin if whence == 0 else position, whence) + self._begin

    def tell(self) -> int:
        return super().tell() + self._begin


class _Verified(pq.ParquetFile):
    """A Parquet file whose row groups are verified when they are read, all columns of one together."""

    def __init__(self, fetched: _Fetched, metadata: pq.FileMetaData, groups: list[tuple[int, bytes]]) -> None:
        super().__init__(pa.BufferReader(b""), metadata=metadata)
        self._fetched, self._groups = fetched, groups

    def read_row_group(self, i: int, columns: list[str] | None = None, **named: Any) -> pa.Table:
        return next(self.in_order([i], columns, **named))

    def in_order(self, groups: Iterable[int], columns: list[str] | None, **named: Any) -> Iterator[pa.Table]:
        """See `read_groups`."""
        for several in self._together(groups):
            begin = self._groups[several[0]][0]
            content = self._fetched.bytes(begin, self._groups[several[-1] + 1][0])
            for i in several:
                own = content[self._groups[i][0] - begin : self._groups[i + 1][0] - begin]
                yield self._row_group(i, own, columns, **named)

    def _together(self, groups: Iterable[int]) -> Iterator[list[int]]:
        """Neighbours that are fetched at once."""
        several: list[int] = []
        for i in groups:
            if several and (i != several[-1] + 1 or self._groups[i + 1][0] - self._groups[several[0]][0] > _AT_ONCE):
                yield several
                several = []
            several.append(i)
        if several:
            yield several

    def _row_group(self, i: int, content: memoryview, columns: list[str] | None, **named: Any) -> pa.Table:
        (begin, _), (_, expected) = self._groups[i : i + 2]
        if digest(content) != expected:
            raise damaged(self._fetched.file, OTHER)
        if not self.metadata.row_group(i).num_rows:  # its pages are said to be where the file begins
            return self.read(columns, groups=[])
        group = pq.ParquetFile(pa.PythonFile(_At(content, begin), mode="r"), metadata=self.metadata)
        return group.read_row_group(i, columns, **named)

    def read(self, columns: list[str] | None = None, groups: list[int] | None = None, **named: Any) -> pa.Table:
        empty = self.schema_arrow.empty_table()
        chosen = range(self.num_row_groups) if groups is None else groups
        tables = self.in_order(chosen, columns, **named)
        return pa.concat_tables([empty if columns is None else empty.select(columns), *tables])

    def close(self, force: bool = False) -> None:
        self._fetched.source.close()
        super().close(force)


def read_groups(file: pq.ParquetFile, groups: Iterable[int], columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Row groups, one after the other; neighbours are fetched together, 8 MiB at once unless one alone is larger.

    Args:
        file: what `open_parquet` returned.
        groups: their numbers, in the order wanted.
        columns: None: all.

    Raises:
        DamagedFile: a row group isn't as it was written; those before it were given.
    """
    if isinstance(file, _Verified):
        return file.in_order(groups, columns)
    return (file.read_row_group(group, columns=columns) for group in groups)


def open_parquet(file: Storage) -> pq.ParquetFile:
    """Open what `write_parquet` wrote, to be read row group by row group.

    Raises:
        DamagedFile: the end of the file isn't as it was written; a row group that isn't raises it when it is read.
        FileNotFoundError: it isn't there.
    """
    fetched = _Fetched(file)
    try:
        return _opened(fetched)
    except BaseException:
        fetched.source.close()
        raise


def _opened(fetched: _Fetched) -> pq.ParquetFile:
    size = fetched.size
    footer = _footer(fetched.bytes(size - 8, size), size) if size >= 8 else 0
    tail = footer - _TAIL.size
    if tail >= 0 and fetched.bytes(footer - len(_NAME), footer) == _NAME:
        number, expected, _ = _TAIL.unpack(fetched.bytes(tail, footer))
        begin = tail - number * _GROUP.size
        content = fetched.bytes(footer, size)
        if begin < 0 or digest(b"".join((index := fetched.bytes(begin, tail), content))) != expected:
            raise damaged(fetched.file, OTHER)
        metadata = pq.read_metadata(pa.BufferReader(b"".join((b"PAR1", content))))
        return _Verified(fetched, metadata, [(0, b""), *_GROUP.iter_unpack(index)])
    try:
        file = pq.ParquetFile(fetched.source, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise damaged(fetched.file, (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")) from error
    # Files of versions before this one have no index, and CRCs of their pages at most.
    if (file.metadata.metadata or {}).get(_SEALED) == _BY_GROUP:
        raise damaged(fetched.file, OTHER)
    return file
