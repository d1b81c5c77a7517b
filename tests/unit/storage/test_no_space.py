"""A full disk is one error, in one line, that names the path and the need, whoever met it and however they say so."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections import namedtuple
from pathlib import Path

import pytest

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.errors import NoSpace, StorageUnavailable
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.errors import explained
from infocse_ray.storage.folder import Storage
from tests.unit.passes import encoder_in

FULL = OSError(errno.ENOSPC, "No space left on device")


def fails_with(error: Exception):
    def fail(*_: object) -> None:
        raise error

    return fail


def free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 2**40 - count, count))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["os.fsync", "os.makedirs", "builtins.open"])
def test_a_write_names_the_file_the_need_and_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    file = Storage.open(str(tmp_path)) / "deep" / "a.bin"
    free(monkeypatch, 1234)
    with monkeypatch.context() as full:
        full.setattr(call, fails_with(OSError(code, os.strerror(code))))
        with pytest.raises(NoSpace) as error:
            file.write_bytes(bytes(56789))
    assert str(error.value) == (
        f"{tmp_path}/deep/a.bin: no space left: 56,789 bytes to write, 1,234 free; make room, then the same command "
        "goes on"
    )
    assert not file.exists()
    file.write_bytes(b"after room was made")
    assert os.listdir(tmp_path / "deep") == ["a.bin"]


def test_a_bucket_that_is_full_says_so_without_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Storage.open("s3://me:passphrase@bucket/runs?region=eu-west-1")
    answer = "When ...: AWS Error UNKNOWN (HTTP status 507) during PutObject operation: XMinioStorageFull"
    monkeypatch.setattr(Storage, "_write", fails_with(OSError(answer)))
    with pytest.raises(NoSpace) as error:
        (root / "a").write_bytes(b"1")
    assert str(error.value).startswith(
        "s3://***@bucket/runs/a?region=eu-west-1: no space left: 1 bytes to write; make room"
    )


@pytest.mark.parametrize(
    ("error", "left", "what"),
    [
        (FULL, 2**30, NoSpace),
        (RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"), 2**30, NoSpace),
        # What torch.save says of a full disk.
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"), 100, NoSpace),
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"), 2**30, RuntimeError),
        (PermissionError(errno.EACCES, "denied"), 100, PermissionError),
        (FileNotFoundError(errno.ENOENT, "gone"), 100, FileNotFoundError),
    ],
)
def test_libraries_say_it_in_their_own_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, left: int, what: type[Exception]
) -> None:
    free(monkeypatch, left)
    with pytest.raises(what) as raised, explained(tmp_path / "a", 10**6):
        raise error
    assert (type(raised.value) is NoSpace) == (what is NoSpace)


def test_an_explained_error_is_not_explained_again(tmp_path: Path) -> None:
    inner = NoSpace("/inner: no space left")
    with pytest.raises(NoSpace) as raised, explained(tmp_path, 5):
        raise inner
    assert raised.value is inner


def test_an_object_store_that_gave_up_is_named_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 223.4])
    monkeypatch.setattr("infocse_ray.storage.errors.monotonic", lambda: next(clock))
    with pytest.raises(StorageUnavailable) as raised, explained("s3://bucket/a"):
        raise OSError("When reading: AWS Error SLOW_DOWN during GetObject operation: slow")
    assert str(raised.value).startswith("s3://bucket/a: the object store failed for 123 s, retries and all (AWS Error ")
    assert "retry_limit_seconds" in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(code, os.strerror(code), "/a") for code in (errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOTCONN)),
        # As pyarrow has it, and as Ray has it of a task.
        OSError("[Errno 30] Failed to open local file '/a'. Detail: [errno 30] Read-only file system"),
        RuntimeError("ray::f()\n  File 'a.py', line 1\nOSError: [Errno 5] Input/output error: '/a'\n"),
    ],
    ids=str,
)
def test_a_mounted_folder_out_of_reach_is_named_with_what_it_said(error: Exception) -> None:
    with pytest.raises(StorageUnavailable) as raised, explained("/shared/a"):
        raise error
    line = str(raised.value)
    assert line.startswith("/shared/a: the file system failed (")
    assert "\n" not in line
    assert line.endswith("the same command goes on")


def test_a_folder_that_could_never_be_written_is_a_mistake_in_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Storage, "_write", fails_with(OSError(errno.EROFS, "Read-only file system")))
    with pytest.raises(ValueError, match=r"^storage = .*: can't be written: .*Read-only file system; name another"):
        Storage.for_runs(str(tmp_path))
    monkeypatch.setattr(Storage, "_write", fails_with(OSError(errno.ESTALE, "Stale file handle")))
    with pytest.raises(StorageUnavailable, match="Stale file handle"):
        Storage.for_runs(str(tmp_path))


def test_what_an_object_store_refuses_is_not_taken_for_being_out_of_reach() -> None:
    with pytest.raises(OSError, match="ACCESS_DENIED") as raised, explained("s3://bucket/a"):
        raise OSError("When ...: AWS Error ACCESS_DENIED during PutObject operation: no")
    assert type(raised.value) is OSError


def test_a_stage_on_a_full_disk_tells_of_its_own_file_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Storage.open(str(tmp_path))

    def work(stage: Stage) -> dict:
        if not (stage.folder / "one").exists():
            (stage.folder / "one").write_bytes(b"1")
        (stage.folder / "two").write_bytes(b"2")
        return {}

    write = Storage._write
    left = [2]  # started.json and the first piece

    def until_full(self: Storage, data: bytes, content_type: str | None = None) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise FULL
        write(self, data, content_type)

    with monkeypatch.context() as full:
        full.setattr(Storage, "_write", until_full)
        with pytest.raises(NoSpace, match="/a/two: no space left"):
            run_stage(root, root / "a", "test", "f1", work)
    before = (tmp_path / "a" / "one").stat().st_mtime_ns
    assert run_stage(root, root / "a", "test", "f1", work).summary is not None
    assert (tmp_path / "a" / "one").stat().st_mtime_ns == before


def test_storage_that_is_full_from_the_start_is_no_mistake_in_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Storage, "_write", fails_with(FULL))
    with pytest.raises(NoSpace, match="no space left"):
        Storage.for_runs(str(tmp_path))


def test_the_temporary_folder_may_be_what_is_full(
    tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = encoder_in(tiny_encoder).load()
    weights = 4 * sum(weight.numel() for weight in encoder.parameters())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(type(encoder), "save", fails_with(FULL))
    with pytest.raises(NoSpace, match=rf"^{tmp_path}/\w+: no space left: {weights:,} bytes to write"):
        EncoderFolder.save(encoder, Storage.open(f"memory://{uuid.uuid4().hex}/model"))


def test_a_local_copy_that_does_not_fit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Storage.open(f"memory://{uuid.uuid4().hex}/model")
    (folder / "a.bin").write_bytes(b"12345")
    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", fails_with(FULL))
        with pytest.raises(NoSpace, match=r"/a\.bin: no space left: 5 bytes to write"):
            folder.local_copy("key")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    copy = folder.local_copy("key")
    assert (copy / "a.bin").read_bytes() == b"12345"
    assert len(list(copy.parent.iterdir())) == 2, "the copy, and the list of its files"
