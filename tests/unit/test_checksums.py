"""Every byte of every kind of file: flipped, it is noticed by whoever reads it, who names the file and marks it."""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ray.exceptions import RayTaskError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback
from ray.train.v2.api.exceptions import WorkerGroupError

from infocse_ray.annotate.kmeans import load_array, save_array
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.model import load_encoder
from infocse_ray.errors import DamagedFile
from infocse_ray.runtime.failures import caused_by
from infocse_ray.settings import Encoder
from infocse_ray.stages.repair import repairing
from infocse_ray.storage import checksums
from infocse_ray.storage.checksums import checked, mark_of, read_checked
from infocse_ray.storage.folder import Storage

TABLE = pa.table({"doc_id": ["a", "b", "c"], "sentences": [[[1, 2], [3]], [[4]], []], "n": pa.array([1, 2, 3])})
VALUE = {"steps": 3, "history": [{"recall@5": 0.1 + 0.2, "key": "ü"}], "none": None, "by": {"1": 2}}


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def read_parquet(file: Storage) -> Any:
    with file.parquet() as opened:
        return [opened.read_row_group(group).to_pydict() for group in range(opened.num_row_groups)]


KINDS: list[tuple[str, Callable[[Storage], Any], Callable[[Storage], Any]]] = [
    ("shard.parquet", lambda file: file.write_parquet(TABLE, [2, 1]), read_parquet),
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
    # Blanks between JSON's words; the eight bytes that say where a Parquet file's digest is.
    assert all(marks)
    assert harmless < 0.1 * len(good)
    for size in range(len(good.rstrip(b"\n"))):
        (tmp_path / name).write_bytes(good[:size])
        with pytest.raises(DamagedFile):
            read(file)


@pytest.mark.parametrize("in_memory", [0, 2**20])
def test_parquet_is_read_as_it_was_written_whole_or_group_by_group(folder, monkeypatch, in_memory):
    monkeypatch.setattr(checksums, "_IN_MEMORY", in_memory)
    monkeypatch.setattr(checksums, "_AT_ONCE", 100)
    file = folder / "shard.parquet"
    file.write_parquet(TABLE, [2, 1])
    assert read_parquet(file) == [TABLE.slice(0, 2).to_pydict(), TABLE.slice(2).to_pydict()]
    good = file.read_bytes()
    file.write_bytes(good[:40] + bytes([good[40] ^ 1]) + good[41:])
    with pytest.raises(DamagedFile, match=r"shard\.parquet is damaged \(its content isn't what was written\)"):
        file.parquet()


def test_a_page_that_is_damaged_after_the_file_was_opened_is_noticed_too(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "_IN_MEMORY", 0)
    file = Storage.open(str(tmp_path)) / "shard.parquet"
    file.write_parquet(pa.table({"n": np.random.default_rng(0).integers(0, 2**60, 1000)}), [1000])
    with file.parquet() as opened:
        with open(file.path, "r+b") as stream:
            stream.seek(4000)
            byte = stream.read(1)
            stream.seek(4000)
            stream.write(bytes([byte[0] ^ 1]))
        with pytest.raises(DamagedFile, match=r"shard\.parquet is damaged"):
            opened.read_row_group(0)


def test_other_readers_see_a_parquet_file_like_any_other(tmp_path):
    (Storage.open(str(tmp_path)) / "shard.parquet").write_parquet(TABLE, [2, 1])
    assert pq.read_table(tmp_path / "shard.parquet").equals(TABLE)


def test_parquet_of_versions_without_digests_is_read(tmp_path):
    pq.write_table(TABLE, tmp_path / "shard.parquet")
    with (Storage.open(str(tmp_path)) / "shard.parquet").parquet() as file:
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
