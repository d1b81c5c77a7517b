"""Every byte of every kind of file: flipped, it is noticed by whoever reads it, who names the file and marks it."""

from __future__ import annotations

import io
import os
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from ray.exceptions import RayTaskError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback
from ray.train.v2.api.exceptions import WorkerGroupError

from infocse_ray.annotate.kmeans import load_array, save_array
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.load import load_encoder
from infocse_ray.errors import DamagedFile
from infocse_ray.runtime.failures import caused_by
from infocse_ray.settings import Encoder
from infocse_ray.stages.repair import repairing
from infocse_ray.storage import parquet
from infocse_ray.storage.checksums import checked, mark_of, read_checked
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, read_groups, write_parquet

TABLE = pa.table({"doc_id": ["a", "b", "c"], "sentences": [[[1, 2], [3]], [[4]], []], "n": pa.array([1, 2, 3])})
VALUE = {"steps": 3, "history": [{"recall@5": 0.1 + 0.2, "key": "ü"}], "none": None, "by": {"1": 2}}


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def read_parquet(file: Storage) -> Any:
    with open_parquet(file) as opened:
        return [opened.read_row_group(group).to_pydict() for group in range(opened.num_row_groups)]


KINDS: list[tuple[str, Callable[[Storage], Any], Callable[[Storage], Any]]] = [
    ("shard.parquet", lambda file: write_parquet(file, TABLE, [2, 1]), read_parquet),
    ("result.json", lambda file: file.write_json(checked(VALUE)), read_checked),
    ("centroids.npy", lambda file: save_array(file, np.arange(12, dtype=np.float32)), lambda f: load_array(f).tolist()),
]


@pytest.mark.parametrize(("name", "write", "read"), KINDS, ids=[kind[0] for kind in KINDS])
def test_no_flipped_byte_and_no_missing_end_gives_another_result(tmp_path, monkeypatch, name, write, read):
    file = Storage.open(str(tmp_path)) / name
    write(file)
    good, expected = file.read_bytes(), read(file)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # of thousands of marks
    harmless, marks = 0, []
    for place in range(len(good)):
        (tmp_path / name).write_bytes(good[:place] + bytes([good[place] ^ 0x41]) + good[place + 1 :])
        try:
            assert read(file) == expected, place
            harmless += 1
        except DamagedFile as damage:
            said = str(damage)
            assert said.startswith(f"{file} is damaged (")
            assert "\n" not in said
            marks.append(mark_of(file).exists())
    # Blanks between JSON's words.
    assert all(marks)
    assert harmless < (1 if name.endswith("parquet") else 0.1 * len(good))
    for size in range(len(good.rstrip(b"\n"))):
        (tmp_path / name).write_bytes(good[:size])
        with pytest.raises(DamagedFile):
            read(file)


@pytest.mark.parametrize("at_once", [0, 2**20])
def test_parquet_is_read_as_it_was_written_whole_or_group_by_group(folder, monkeypatch, at_once):
    monkeypatch.setattr(parquet, "_AT_ONCE", at_once)
    monkeypatch.setattr(parquet, "_END", 100)  # less than the footer
    file = folder / "shard.parquet"
    write_parquet(file, TABLE, [2, 1, 0])
    groups = [TABLE.slice(0, 2).to_pydict(), TABLE.slice(2).to_pydict(), TABLE.slice(3).to_pydict()]
    assert read_parquet(file) == groups
    with open_parquet(file) as opened:
        assert opened.read().equals(TABLE)
        assert opened.read(columns=["n"]).to_pydict() == {"n": [1, 2, 3]}
        assert opened.read_row_group(1, columns=["sentences", "n"]).to_pydict() == {"sentences": [[]], "n": [3]}
    good = file.read_bytes()
    file.write_bytes(good[:40] + bytes([good[40] ^ 1]) + good[41:])
    with open_parquet(file) as opened:
        assert opened.read_row_group(1).to_pydict() == groups[1]
        with pytest.raises(DamagedFile, match=r"shard\.parquet is damaged \(its content isn't what was written\)"):
            opened.read_row_group(0)


class Counting(pafs.LocalFileSystem):
    """Notes what is read of its files."""

    reads: ClassVar[list[tuple[int, int]]] = []

    def open_input_file(self, path: Any) -> Any:
        content, reads = Path(path).read_bytes(), self.reads

        class File(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                at, got = self.tell(), super().read(size)
                reads.append((at, len(got)))
                return got

        return pa.PythonFile(File(content), mode="r")


@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("megabytes", [4, 16])
def test_every_byte_is_fetched_once_and_neighbours_by_one_read(tmp_path, monkeypatch, groups, megabytes):
    rows = megabytes * 2**17
    draw = np.random.default_rng(0)
    table = pa.table({"key": draw.integers(0, 2**62, rows // 2), "other": draw.integers(0, 2**62, rows // 2)})
    file = Storage.open(str(tmp_path)) / "shard.parquet"
    write_parquet(file, table, [rows // 2 // groups] * groups)
    size = (tmp_path / "shard.parquet").stat().st_size
    monkeypatch.setattr(Storage, "filesystem", property(lambda _: Counting()))
    Counting.reads.clear()
    with open_parquet(file) as opened:
        assert opened.read().equals(table)
    fetched = sum(bytes for _, bytes in Counting.reads)
    if megabytes == 4:
        assert (len(Counting.reads), fetched) == (1, size)
    else:
        # The end, then row groups up to 8 MiB, of which those of some 1.3 MB fill most, or the one that there is.
        assert len(Counting.reads) == (2 + size // 2**23 if groups > 1 else 2)
        assert fetched == size
        assert groups == 1 or max(bytes for _, bytes in Counting.reads) <= 8 * 2**20


def test_row_groups_are_fetched_together_only_where_they_are_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_AT_ONCE", 20_000)
    monkeypatch.setattr(parquet, "_END", 2_000)
    table = pa.table({"n": np.random.default_rng(0).integers(0, 2**62, 10_000)})
    file = Storage.open(str(tmp_path)) / "shard.parquet"
    write_parquet(file, table, [1_000] * 10)  # of 8 kB each
    monkeypatch.setattr(Storage, "filesystem", property(lambda _: Counting()))
    for wanted, reads in (([0, 1], 1), ([0, 2], 2), ([3, 2], 2), ([4, 5, 6, 8], 3), ([7], 1), ([], 0)):
        with open_parquet(file) as opened:
            Counting.reads.clear()
            tables = list(read_groups(opened, wanted))
            assert [one["n"].to_pylist() for one in tables] == [
                table["n"][1_000 * i : 1_000 * (i + 1)].to_pylist() for i in wanted
            ]
        assert len(Counting.reads) == reads, wanted
        assert sum(bytes for _, bytes in Counting.reads) < 9_500 * len(wanted) + 1


def test_of_row_groups_fetched_together_the_damaged_one_is_told_and_those_before_it_are_given(tmp_path):
    file = Storage.open(str(tmp_path)) / "shard.parquet"
    write_parquet(file, pa.table({"n": np.random.default_rng(0).integers(0, 2**62, 3_000)}), [1_000] * 3)
    content = bytearray(file.read_bytes())
    content[12_000] ^= 1  # of the second
    file.write_bytes(bytes(content))
    with open_parquet(file) as opened:
        tables = read_groups(opened, range(3))
        assert len(next(tables)) == 1_000
        with pytest.raises(DamagedFile, match=r"shard\.parquet is damaged"):
            next(tables)


def test_a_row_group_that_is_damaged_after_the_file_was_opened_is_noticed_too(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_AT_ONCE", 0)
    monkeypatch.setattr(parquet, "_END", 1000)
    file = Storage.open(str(tmp_path)) / "shard.parquet"
    write_parquet(file, pa.table({"n": np.random.default_rng(0).integers(0, 2**60, 1000)}), [1000])
    with open_parquet(file) as opened:
        with open(file.path, "r+b") as stream:
            stream.seek(4000)
            byte = stream.read(1)
            stream.seek(4000)
            stream.write(bytes([byte[0] ^ 1]))
        with pytest.raises(DamagedFile, match=r"shard\.parquet is damaged"):
            opened.read_row_group(0)


def test_other_readers_see_a_parquet_file_like_any_other(tmp_path):
    write_parquet(Storage.open(str(tmp_path)) / "shard.parquet", TABLE, [2, 1])
    assert pq.read_table(tmp_path / "shard.parquet").equals(TABLE)


@pytest.mark.parametrize("before", [None, {b"infocse_ray.sealed": b"blake2b"}])
def test_parquet_of_versions_without_digests_or_with_others_is_read(tmp_path, before):
    pq.write_table(TABLE.replace_schema_metadata(before), tmp_path / "shard.parquet", write_page_checksum=True)
    with open_parquet(Storage.open(str(tmp_path)) / "shard.parquet") as file:
        assert file.read().equals(TABLE)


def test_a_missing_file_is_not_a_damaged_one(folder):
    for read in (read_parquet, read_checked, load_array):
        with pytest.raises(FileNotFoundError):
            read(folder / "none")
    assert not folder.files()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "checksums.json"])
def test_an_encoder_whose_folder_is_damaged_is_not_loaded(tmp_path, tiny_encoder, name):
    encoder = load_encoder(tiny_encoder, Encoder(model="tiny", max_length=16), cosine=False)
    saved = EncoderFolder.save(encoder, Storage.open(str(tmp_path)) / "model")
    assert saved.load().fingerprint() == encoder.fingerprint()
    file = tmp_path / "model" / name
    good = file.read_bytes()
    file.write_bytes(good[:-200] + bytes([good[-200] ^ 1]) + good[-199:])
    with pytest.raises(DamagedFile, match=rf"{name} is damaged \(its content isn't what was written\)"):
        saved.load()
    file.write_bytes(good[:-200])
    with pytest.raises(DamagedFile, match=rf"{name} is damaged"):
        saved.load()
    assert mark_of(saved.folder / name).exists()


def test_a_damaged_copy_of_a_whole_encoder_is_fetched_again(tmp_path, tiny_encoder, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    encoder = load_encoder(tiny_encoder, Encoder(model="tiny", max_length=16), cosine=False)
    saved = EncoderFolder.save(encoder, Storage.open(f"memory://{uuid.uuid4().hex}/model"))
    copy = saved.local()
    (copy / "model.safetensors").write_bytes(b"cut off")
    assert saved.load().fingerprint() == encoder.fingerprint()
    (saved.folder / "model.safetensors").write_bytes(b"cut off")
    (copy / "model.safetensors").unlink()
    with pytest.raises(DamagedFile, match=r"model\.safetensors is damaged \(it has 7 bytes, not "):
        saved.load()


def test_damage_that_a_worker_found_is_found_in_what_the_driver_gets():
    line = "/runs/a/shard-000003.parquet is damaged (it is missing); the same command makes it again"
    assert str(caused_by(DamagedFile(line), DamagedFile)) == line
    trace = f"Traceback\n  at work\ninfocse_ray.errors.DamagedFile: {line}\n"
    of_task = RayTaskError("work", trace, DamagedFile(line))
    assert str(caused_by(of_task.as_instanceof_cause(), DamagedFile)) == line
    assert str(caused_by(pickle.loads(pickle.dumps(DamagedFile(line))), DamagedFile)) == line
    group = RuntimeError("the workers failed: they did")
    group.__cause__ = WorkerGroupError("of 2", {1: UserExceptionWithTraceback(DamagedFile(line), trace)})
    assert str(caused_by(group, DamagedFile)) == line
    text = f"RayTaskError(UserCodeException):\n  infocse_ray.errors.DamagedFile: {line}\n\nThe above exception"
    assert str(caused_by(RuntimeError(text), DamagedFile)) == line
    assert caused_by(ValueError("train.k = 0: is damaged goods"), DamagedFile) is None


def test_work_that_met_damage_is_done_again_a_few_times_and_other_errors_end_it(capsys):
    calls: list[int] = []

    @repairing
    def work(failures: int, error: Exception) -> str:
        calls.append(failures)
        if len(calls) <= failures:
            raise error
        return "done"

    assert work(2, DamagedFile("a is damaged (x)")) == "done"
    assert len(calls) == 3
    assert capsys.readouterr().out.count("a damaged file was found") == 2
    calls.clear()
    with pytest.raises(DamagedFile, match="a is damaged"):
        work(99, RuntimeError("DamagedFile: a is damaged (x)"))
    assert len(calls) == 4
    calls.clear()
    with pytest.raises(ValueError, match="another"):
        work(99, ValueError("another"))
    assert len(calls) == 1
