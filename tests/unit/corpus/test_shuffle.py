"""The shuffle without Ray: any number of tasks, runs and levels gives the same; what is finished is done once."""

from __future__ import annotations

import json
import operator
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from infocse_ray.corpus import shuffle as shuffle_module
from infocse_ray.corpus import source as source_module
from infocse_ray.corpus.read import Piece
from infocse_ray.corpus.shuffle import Shuffle
from infocse_ray.errors import DamagedFile
from infocse_ray.stages.stage import claim
from infocse_ray.storage.folder import Storage

SHARDS = 11
SCHEMA = pa.schema([("shard", pa.int32()), ("row", pa.int64())])
PIECES = [Piece(f"f{i}", "text", i, 0, 10, 10) for i in range(23)]
ROWS = [(7 * row * row + row // 3) % SHARDS for row in range(10 * len(PIECES))]


class Crash(Exception):
    """What ends the driver at a point that a test chooses."""


class Tasks:
    """In place of `in_tasks`: calls in this process, the last first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.most_runs = 0
        self.crash_after: dict[str, int] = {}
        monkeypatch.setattr(shuffle_module, "in_tasks", self._in_tasks)
        monkeypatch.setattr(shuffle_module, "ray", SimpleNamespace(put=lambda value: value))
        monkeypatch.setattr(source_module, "_PACK_BYTES", 20)
        monkeypatch.setattr(shuffle_module, "_RUN_BYTES", 80)
        monkeypatch.setattr(shuffle_module, "_LEAST_MERGED_BYTES", 40)
        self._read_cells = shuffle_module.read_cells
        monkeypatch.setattr(shuffle_module, "read_cells", self._counted)

    def _in_tasks(self, work: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        for call in reversed(list(calls)):
            if self.crash_after.get(work.__name__) == self.done.count(work.__name__):
                raise Crash
            self.done.append(work.__name__)
            yield work(*pickle.loads(pickle.dumps(call)))

    def _counted(self, files: list[Storage], *where: int) -> Any:
        self.most_runs = max(self.most_runs, len(files))
        return self._read_cells(files, *where)


class Write(NamedTuple):
    """Writes a shard's rows as JSON."""

    folder: Storage

    def __call__(self, shard: int, rows: pa.Table) -> dict[str, Any]:
        assert rows.schema == SCHEMA
        assert set(rows["shard"].to_pylist()) <= {shard}
        (self.folder / f"{shard}.json").write_json(rows["row"].to_pylist())
        return {"shard": shard, "rows": len(rows)}

    def there(self, shard: int, counts: dict[str, Any]) -> bool:
        assert counts["shard"] == shard
        return (self.folder / f"{shard}.json").exists()


reads: list[int] = []


def read(pieces: list[Piece]) -> Iterator[pa.Table]:
    for piece in pieces:
        reads.append(piece.order)
        rows = range(10 * piece.order, 10 * piece.order + 10)
        yield pa.table([pa.array([ROWS[row] for row in rows], pa.int32()), list(rows)], schema=SCHEMA)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    reads.clear()
    return Tasks(monkeypatch)


def shuffled(folder: Path) -> list[dict[str, Any]]:
    storage = Storage.open(str(folder))
    return list(Shuffle(storage / "sorting", PIECES, SHARDS, SCHEMA).run(read, Write(storage), lambda note: None))


def written(folder: Path) -> dict[str, list[int]]:
    return {file.name: json.loads(file.read_text()) for file in folder.glob("*.json") if file.name != "started.json"}


def notes_alone(folder: Path) -> bool:
    """Whether nothing is left of the sorting but notes of what was written."""
    (left,) = (folder / "sorting").iterdir()
    return left.name.endswith("-written") and all(file.match("merged-*.json") for file in left.iterdir())


WANTED = {f"{shard}.json": [row for row, to in enumerate(ROWS) if to == shard] for shard in range(SHARDS)}


@pytest.mark.parametrize("most_runs", [2, 3, 10, 2048])
@pytest.mark.parametrize("pack", [1, 50, 10**6])
@pytest.mark.parametrize("run", [1, 200, 10**9])
def test_tasks_runs_and_levels_change_nothing(
    tmp_path: Path, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, most_runs: int, pack: int, run: int
):
    monkeypatch.setattr(shuffle_module, "_MOST_RUNS", most_runs)
    monkeypatch.setattr(shuffle_module, "_RUN_BYTES", run)
    monkeypatch.setattr(source_module, "_PACK_BYTES", pack)
    counts = shuffled(tmp_path)
    assert written(tmp_path) == WANTED
    assert sorted(one["shard"] for one in counts) == list(range(SHARDS))
    assert sum(one["rows"] for one in counts) == len(ROWS)
    assert notes_alone(tmp_path)
    assert sorted(reads) == list(range(len(PIECES)))
    assert 0 < tasks.most_runs <= most_runs
    if most_runs == 2 and run == 1:
        assert "_join" in tasks.done


def test_a_shard_without_a_row_is_written(tmp_path: Path, tasks: Tasks):
    storage = Storage.open(str(tmp_path))
    assert (
        len(list(Shuffle(storage / "sorting", PIECES, 50, SCHEMA).run(read, Write(storage), lambda note: None))) == 50
    )
    assert (tmp_path / "49.json").read_text() == "[]\n"


@pytest.mark.parametrize("work", ["_write_runs", "_join", "_merge"])
def test_what_is_finished_is_not_done_again(tmp_path: Path, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, work: str):
    monkeypatch.setattr(shuffle_module, "_MOST_RUNS", 5)
    tasks.crash_after = {work: 3}
    with pytest.raises(Crash):
        shuffled(tmp_path)
    tasks.crash_after = {}
    there = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()}
    monkeypatch.setattr(Storage, "delete", lambda self: None)  # so that the runs can be looked at afterwards
    counts = shuffled(tmp_path)
    assert {file: file.stat().st_mtime_ns for file in there} == there
    assert written(tmp_path) == WANTED
    assert sum(one["rows"] for one in counts) == len(ROWS)
    assert sorted(reads) == list(range(len(PIECES)))


@pytest.mark.parametrize("most_runs", [5, 2048])
def test_once_all_shards_are_written_nothing_is_read_again(
    tmp_path: Path, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, most_runs: int
):
    monkeypatch.setattr(shuffle_module, "_MOST_RUNS", most_runs)
    first = shuffled(tmp_path)
    done = len(tasks.done)
    again = shuffled(tmp_path)
    by_shard = operator.itemgetter("shard")
    assert sorted(again, key=by_shard) == sorted(first, key=by_shard)
    assert (len(tasks.done), len(reads)) == (done, len(PIECES)), "killed before the stage was finished"
    (tmp_path / "3.json").unlink()
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")}
    assert len(shuffled(tmp_path)) == SHARDS
    assert written(tmp_path) == WANTED
    anew = {file.name for file in tmp_path.glob("*.json") if before.get(file) != file.stat().st_mtime_ns}
    assert "3.json" in anew
    assert len(anew) < SHARDS, "those of one task"
    assert notes_alone(tmp_path)


def test_a_damaged_note_says_nothing_of_what_was_written(tmp_path: Path, tasks: Tasks):
    shuffled(tmp_path)
    (tmp_path / "3.json").unlink()
    for note in tmp_path.glob("sorting/*-written/merged-*.json"):
        note.write_bytes(note.read_bytes()[:-3] + b"???")
    assert len(shuffled(tmp_path)) == SHARDS
    assert written(tmp_path) == WANTED
    assert notes_alone(tmp_path), "no mark, for which the finished stage would be made again"


def test_a_damaged_note_of_runs_has_them_written_again(tmp_path: Path, tasks: Tasks):
    tasks.crash_after = {"_merge": 0}
    with pytest.raises(Crash):
        shuffled(tmp_path)
    tasks.crash_after = {}
    (note,) = tmp_path.glob("sorting/*/000003.json")
    note.write_bytes(note.read_bytes()[:-3] + b"???")
    reads.clear()
    shuffled(tmp_path)
    assert written(tmp_path) == WANTED
    assert reads == [6, 7]


def test_killed_while_the_runs_are_removed_all_is_written(tmp_path: Path, tasks: Tasks, monkeypatch):
    def killed(self: Storage) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "delete", killed)
        with pytest.raises(Crash):
            shuffled(tmp_path)
    assert len(shuffled(tmp_path)) == SHARDS
    assert len(reads) == len(PIECES)
    assert notes_alone(tmp_path)


def test_another_plan_has_runs_of_its_own(tmp_path: Path, tasks: Tasks, monkeypatch: pytest.MonkeyPatch):
    tasks.crash_after = {"_merge": 0}
    with pytest.raises(Crash):
        shuffled(tmp_path)
    tasks.crash_after = {}
    monkeypatch.setattr(source_module, "_PACK_BYTES", 50)
    shuffled(tmp_path)
    assert written(tmp_path) == WANTED
    assert len(reads) == 2 * len(PIECES)
    assert notes_alone(tmp_path)


@pytest.mark.parametrize("lost", [False, True])
def test_a_damaged_run_is_made_again_and_no_other(tmp_path: Path, tasks: Tasks, lost: bool):
    storage = Storage.open(str(tmp_path))
    claim(storage, "prepare", "f")
    tasks.crash_after = {"_merge": 0}
    with pytest.raises(Crash):
        shuffled(tmp_path)
    tasks.crash_after = {}
    (run,) = tmp_path.glob("sorting/*/000003-0")
    content = bytearray(run.read_bytes())
    content[-1] ^= 1
    run.write_bytes(content)
    with pytest.raises(DamagedFile, match="000003-0 is damaged"):
        shuffled(tmp_path)
    if lost:
        run.unlink()
    claim(storage, "prepare", "f")  # as every stage does before it goes on
    reads.clear()
    shuffled(tmp_path)
    assert written(tmp_path) == WANTED
    assert reads == [6, 7]
