"""Sorted runs: what is written is read, by any range of shards; no damage is read past."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infocse_ray.corpus.runs import RunWriter, read_cells, rows_of, run_file, write_run
from infocse_ray.errors import DamagedFile
from infocse_ray.storage.checksums import mark_of
from infocse_ray.storage.folder import Storage

SCHEMA = pa.schema([("shard", pa.int32()), ("text", pa.string()), ("ids", pa.list_(pa.list_(pa.uint16())))])


def table_of(shards: list[int], first: int = 0) -> pa.Table:
    numbers = range(first, first + len(shards))
    ids = [[[i] * (i % 3), [i]] if i % 4 else None for i in numbers]
    return pa.table([pa.array(shards, pa.int32()), [f"row {i}" for i in numbers], ids], schema=SCHEMA)


@settings(max_examples=60)
@given(
    tables=st.lists(st.lists(st.integers(0, 6), max_size=8), min_size=1, max_size=5),
    most=st.sampled_from([1, 300, 10**6]),
    asked=st.tuples(st.integers(0, 6), st.integers(1, 7)).filter(lambda asked: asked[0] < asked[1]),
)
def test_rows_come_back_by_shard_in_the_order_they_came(tables: list[list[int]], most: int, asked: tuple[int, int]):
    begin, end = asked
    starts = np.cumsum([0, *map(len, tables)]).tolist()
    given_rows = [table_of(shards, start) for shards, start in zip(tables, starts[:-1], strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        file = Storage.open(folder) / "a"
        writer = RunWriter(file, 7, most)
        for table in given_rows:
            writer.add(table)
        runs = writer.close()
        names = [run_file(file, run) for run in range(runs)]
        assert {f.name for f in Path(folder).iterdir()} == {name.name for name in names}
        cells = read_cells(names, 0, begin, end)
        everything = pa.concat_tables(given_rows)
        joined = Storage.open(folder) / "joined"
        write_run(joined, begin, [b"".join(cell[shard - begin] for cell in cells) for shard in range(begin, end)])
        for shard in range(begin, end):
            wanted = [row for row in everything.to_pylist() if row["shard"] == shard]
            found = rows_of([cell[shard - begin] for cell in cells], SCHEMA)
            assert (found.schema, found.to_pylist()) == (SCHEMA, wanted)
            ((cell,),) = read_cells([joined], begin, shard, shard + 1)
            assert rows_of([cell], SCHEMA).to_pylist() == wanted
        if most == 1:
            assert runs == sum(map(bool, tables))


def test_no_byte_that_was_changed_is_read_past(tmp_path: Path):
    file = Storage.open(str(tmp_path)) / "a"
    writer = RunWriter(file, 3, 10**6)
    writer.add(table_of([2, 0, 2, 2]))
    assert writer.close() == 1
    run, path = run_file(file, 0), tmp_path / "a-0"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedFile, match="a-0 is damaged"):
            read_cells([run], 0, 0, 3)
        assert mark_of(run).exists()
    for size in (0, 10, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedFile):
            read_cells([run], 0, 0, 3)
    path.unlink()
    with pytest.raises(DamagedFile, match="it is missing"):
        read_cells([run], 0, 0, 3)
    path.write_bytes(whole)  # but it is another shard's
    with pytest.raises(DamagedFile):
        read_cells([run], 1, 1, 4)
