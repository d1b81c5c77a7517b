"""Bringing together the rows of each shard: sorted runs in storage, merged shard by shard.

1. Each of some tasks reads a part of the source and writes its rows as runs (see `runs`), of a bounded number of bytes
   each.
2. Where there are more runs than a task may read, tasks join them: each so many runs of a range of shards into one.
3. Each of some tasks reads its shards' cells of all runs and has them written.
A note says of each task what it left, so that one cut off goes on where it was; what the last tasks noted stays, so
that with all shards written nothing is read again. Nothing goes through the object store, and the driver holds a few
numbers a task.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import ray
from ray.exceptions import RayError

from infocse_ray.corpus.read import Piece
from infocse_ray.corpus.runs import RunWriter, read_cells, rows_of, run_file, write_run
from infocse_ray.corpus.source import packs_of, text_bytes_of
from infocse_ray.errors import UnreadableFile
from infocse_ray.runtime.failures import caused_by
from infocse_ray.runtime.tasks import in_tasks
from infocse_ray.settings import fingerprint
from infocse_ray.storage.checksums import checked, verified
from infocse_ray.storage.folder import Storage

_FORMAT = 3
_RUN_BYTES = 128 * 2**20
"""Of rows that a reading task holds, before they are compressed."""
_MOST_RUNS = 2048
"""That a task reads from."""
_LOOKS_AT_ONCE = 16
"""Notes and shards that are looked for at once: a request to an object store is mostly waiting."""
_MERGES, _LEAST_MERGED_BYTES, _MOST_MERGED_BYTES = 64, 4 * 2**20, 256 * 2**20
"""How many merging tasks there are to be, and the least and the most text that one is to merge."""


class Write(Protocol):
    """Writes the rows of a shard."""

    def __call__(self, shard: int, rows: pa.Table) -> dict[str, Any]:
        """Write; `rows` are all of the shard, maybe none, file by file. Return counts that have a JSON form."""
        ...

    def there(self, shard: int, counts: dict[str, Any]) -> bool:
        """Whether all is still there that was written when these counts were returned."""
        ...


Read = Callable[[list[Piece]], Iterator[pa.Table]]
"""The rows of some pieces, as tables with a column `shard`."""


class _Span(NamedTuple):
    """Neighbouring shards, and the runs that have all of their rows, by name."""

    first: int
    last: int
    """One after the last."""
    runs: list[str]


class Shuffle:
    """A shuffle of the rows of some pieces of files into shards."""

    def __init__(self, folder: Storage, pieces: Sequence[Piece], shards: int, schema: pa.Schema) -> None:
        """Plan it.

        Args:
            folder: the shuffle's own; once it is done it has small notes alone.
            pieces: of files.
            shards: how many there are.
            schema: of the rows.
        """
        self._all, self._shards, self._schema = folder, shards, schema
        self._packs = packs_of(pieces)
        text = sum(map(text_bytes_of, pieces))
        merged = min(_MOST_MERGED_BYTES, max(_LEAST_MERGED_BYTES, text // _MERGES))
        self._together = max(1, merged * shards // max(1, text))
        plan = [[(piece.order, piece.kind, piece.start, piece.end) for piece in pack] for pack in self._packs]
        name = fingerprint("shuffle", _FORMAT, plan, shards, str(schema), _RUN_BYTES, _MOST_RUNS, self._together)
        self.folder = folder / name
        """Where its files are; another plan, which an interrupted process may have had, has another."""
        self._notes = folder / f"{name}-written"

    def run(
        self, read: Read, write: Write, tell: Callable[[str], None] = lambda note: None
    ) -> Iterator[dict[str, Any]]:
        """Read, shuffle, write: what `write` returned for each shard, in any order.

        Args:
            read: done in tasks that may be cut off and done again.
            write: likewise.
            tell: gets a note on what is being done.

        Raises:
            UnreadableFile: a whole file can't be read.
            DamagedFile: a run isn't as it was written; the next call makes it again.
        """
        if (written := self._written(write)) is not None:
            tell(f"all {self._shards:,} shards were written")
            yield from written
            self._tidy()
            return
        try:
            spans = self._joined(_Span(0, self._shards, list(self._read(read))))
            done = 0
            for merged in in_tasks(_merge, self._merges(spans, write)):
                yield from merged
                done += len(merged)
                tell(f"{done:,} of {self._shards:,} shards written")
        except RayError as error:
            if (unreadable := caused_by(error, UnreadableFile)) is not None:
                raise unreadable from error
            raise
        self._tidy()

    def _tidy(self) -> None:
        """Remove everything but notes of what was written, also what other plans left."""
        for name in {path.partition("/")[0] for path in self._all.files(unfinished=True)} - {self._notes.name}:
            (self._all / name).delete()  # of other plans, too

    def _written(self, write: Write) -> list[dict[str, Any]] | None:
        """What `write` returned for all shards, if it has written all, and all is there."""
        names = sorted(self._notes.files())
        with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
            noted = dict(zip(names, pool.map(lambda name: _noted(self._notes / name), names), strict=True))
            counts: list[dict[str, Any]] = []
            while len(counts) < self._shards:
                if (one := noted.get(_note_of(self._notes, len(counts)).name)) is None:
                    return None
                counts += one["counts"]
            return counts if all(pool.map(write.there, range(self._shards), counts)) else None

    def _read(self, read: Read) -> Iterator[str]:
        """Have the runs written; their names, in the order of the source."""
        of_pack = [0] * len(self._packs)
        work = ray.put((read, self.folder, self._shards, _RUN_BYTES))
        for number, runs in in_tasks(_write_runs, ((number, pack, work) for number, pack in enumerate(self._packs))):
            of_pack[number] = runs
        for number, runs in enumerate(of_pack):
            yield from (run_file(self.folder / _task_name(number), run).name for run in range(runs))

    def _joined(self, whole: _Span) -> list[_Span]:
        """Spans of few enough runs; where there are more, these are joined."""
        spans = [whole]
        for level in itertools.count():
            if all(len(span.runs) <= _MOST_RUNS for span in spans):
                break
            for _ in in_tasks(_join, self._joins(level, spans)):
                pass
            spans = [
                _Span(begin, end, [_joined_name(level, begin, end, group) for group in range(len(_groups(span)))])
                for span in spans
                for begin, end in _parts(span)
            ]
        return spans

    def _joins(self, level: int, spans: list[_Span]) -> Iterator[tuple[Any, ...]]:
        """The arguments of each `_join`."""
        for span in spans:
            for group, runs in enumerate(_groups(span)):
                work = ray.put((self.folder, span.first, runs))
                for begin, end in _parts(span):
                    yield work, begin, end, _joined_name(level, begin, end, group)

    def _merges(self, spans: list[_Span], write: Write) -> Iterator[tuple[Any, ...]]:
        """The arguments of each `_merge`."""
        for span in spans:
            work = ray.put((self.folder, self._notes, span, self._schema, write))
            for begin in range(span.first, span.last, self._together):
                yield work, begin, min(begin + self._together, span.last)


def _groups(span: _Span) -> list[list[str]]:
    """So many of its runs as are joined into one."""
    return [span.runs[i : i + _MOST_RUNS] for i in range(0, len(span.runs), _MOST_RUNS)]


def _parts(span: _Span) -> list[tuple[int, int]]:
    """Its shards cut into as many ranges as runs are joined: what is joined is then as large as a run."""
    together = -(-(span.last - span.first) // _MOST_RUNS)
    return [(begin, min(begin + together, span.last)) for begin in range(span.first, span.last, together)]


def _task_name(number: int) -> str:
    return f"{number:06d}"


def _joined_name(level: int, begin: int, end: int, group: int) -> str:
    return f"joined-{level}-{begin:06d}-{end:06d}-{group}"


def _write_runs(number: int, pack: list[Piece], work: tuple[Read, Storage, int, int]) -> tuple[int, int]:
    """What a reading task does: write the rows of its pieces as runs; its number, and how many there are."""
    read, folder, shards, most_bytes = work
    file = folder / _task_name(number)
    note = folder / f"{_task_name(number)}.json"
    if (noted := _noted(note)) is not None:
        runs = noted["runs"]
        if all(run_file(file, run).exists() for run in range(runs)):
            return number, runs
    writer = RunWriter(file, shards, most_bytes)
    for table in read(pack):
        writer.add(table)
    runs = writer.close()
    note.write_json(checked({"runs": runs}))
    return number, runs


def _join(work: tuple[Storage, int, list[str]], begin: int, end: int, name: str) -> None:
    """What a joining task does: make one run of many, of the shards `begin` to before `end`."""
    folder, first, runs = work
    if not (folder / name).exists():
        cells = read_cells([folder / run for run in runs], first, begin, end)
        write_run(folder / name, begin, [b"".join(parts) for parts in zip(*cells, strict=True)])


def _noted(note: Storage) -> dict[str, Any] | None:
    """What a task noted; None if it didn't, or the note isn't as it was written: then it is written again.

    So it gets no mark, for which a stage that has it would count as damaged.
    """
    try:
        return verified(note.read_bytes())
    except FileNotFoundError:
        return None


def _note_of(notes: Storage, begin: int) -> Storage:
    """Where a merging task notes what it wrote of the shards from `begin` on."""
    return notes / f"merged-{begin:06d}.json"


def _merge(work: tuple[Storage, Storage, _Span, pa.Schema, Write], begin: int, end: int) -> list[dict[str, Any]]:
    """What a merging task does: have the shards `begin` to before `end` written; what that returned."""
    folder, notes, span, schema, write = work
    note = _note_of(notes, begin)
    if (noted := _noted(note)) is not None:
        counts = noted["counts"]
        if all(write.there(shard, one) for shard, one in zip(range(begin, end), counts, strict=True)):
            return counts
    cells = read_cells([folder / run for run in span.runs], span.first, begin, end)
    counts = [write(shard, rows_of([of_run[shard - begin] for of_run in cells], schema)) for shard in range(begin, end)]
    note.write_json(checked({"counts": counts}))
    return counts
