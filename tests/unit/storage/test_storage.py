import os
import pickle
import uuid
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from infocse_ray.storage import folder as folder_module
from infocse_ray.storage.folder import Storage, is_remote, open_filesystem
from infocse_ray.storage.fsspec_times import written
from infocse_ray.storage.parquet import open_parquet, write_parquet


@pytest.fixture
def may_be_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs may be in memory, which stands for an object store here."""
    monkeypatch.setattr(folder_module, "_OF_ONE_PROCESS", "nothing://")


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    # The memory filesystem is one a process, so every test has a folder of its own.
    return Storage.open(str(tmp_path / "run") if request.param == "local" else f"memory://{uuid.uuid4().hex}/run")


def test_what_is_written_is_read(folder):
    file = folder / "a" / "b.bin"
    assert not file.exists()
    file.write_bytes(b"one")
    assert file.exists()
    assert (folder / "a").exists()
    assert file.read_bytes() == b"one"
    file.write_bytes(pa.py_buffer(b"two"))
    assert file.read_bytes() == b"two"
    assert file.name == "b.bin"
    assert (Storage(folder.root) / "a/b.bin").read_bytes() == b"two"


def test_bytes_are_kept_as_they_are_whatever_the_name_says(folder):
    (folder / "plain.gz").write_bytes(b"not compressed")
    assert (folder / "plain.gz").read_bytes() == b"not compressed"


@pytest.mark.parametrize("opened", [Storage.of_runs, Storage.for_runs])
def test_a_storage_that_is_a_file_or_names_no_bucket_or_cant_be_opened_is_refused(tmp_path, opened):
    (tmp_path / "env.sh").write_text("")
    with pytest.raises(ValueError, match=r"storage = '.*env.sh': is a file; name a folder"):
        opened(str(tmp_path / "env.sh"))
    with pytest.raises(ValueError, match="storage = 's3://': names no bucket"):
        opened("s3://")
    with pytest.raises(ValueError, match=r"^storage = '': names no folder; give one, or a URI$"):
        opened("")
    with pytest.raises(ValueError, match=r"^storage = 'nowhere://a': nowhere://a can't be opened: .*; name"):
        opened("nowhere://a")


@pytest.mark.usefixtures("may_be_of_one_process")
def test_storage_for_runs_can_be_written_and_lasts(folder, tmp_path):
    assert Storage.for_runs(str(folder)).files() == {}
    (tmp_path / "file").write_bytes(b"")
    for wrong, said in (
        (tmp_path / "file" / "runs", "can't be written"),
        (tmp_path / "working_dir_files" / "_ray_pkg_0123" / "runs", "give an absolute path or a URI"),
    ):
        with pytest.raises(ValueError, match=rf"^storage = '{wrong}': .*{said}"):
            Storage.for_runs(str(wrong))


@pytest.mark.usefixtures("may_be_of_one_process")
def test_threads_and_containers_of_the_same_number_dont_try_it_with_the_same_file(folder, monkeypatch):
    tried = []
    monkeypatch.setattr(Storage, "write_bytes", lambda file, data: tried.append(file.name))
    for _ in range(2):
        Storage.for_runs(str(folder))
    assert len(set(tried)) == 2
    assert all(name.startswith(".probe-") for name in tried), "by which `infocse clean` knows what was left"


def test_a_storage_that_can_only_be_read_is_refused():
    with pytest.raises(ValueError, match=r"^storage = 'https://a\.b/c': can't be written: it can only be read; name"):
        Storage.for_runs("https://a.b/c")


def test_json(folder):
    (folder / "a.json").write_json({"b": [1, None, "ü"]})
    assert (folder / "a.json").read_json() == {"b": [1, None, "ü"]}


def test_missing_file(folder):
    with pytest.raises(FileNotFoundError):
        (folder / "none").read_bytes()


def test_files_are_listed_with_their_sizes(folder):
    assert folder.files() == {}
    (folder / "a.bin").write_bytes(b"1")
    (folder / "deep" / "er" / "b.bin").write_bytes(b"22")
    assert {name: info.size for name, info in folder.files().items()} == {"a.bin": 1, "deep/er/b.bin": 2}
    assert list((folder / "deep").files()) == ["er/b.bin"]


def test_delete_removes_files_folders_and_nothing_else(folder):
    folder.delete()
    for name in ("a.bin", "b.bin", "deep/c.bin"):
        (folder / name).write_bytes(b"1")
    (folder / "a.bin").delete()
    (folder / "a.bin").delete()
    assert sorted(folder.files()) == ["b.bin", "deep/c.bin"]
    (folder / "deep").delete()
    assert sorted(folder.files()) == ["b.bin"]
    folder.delete()
    assert not folder.exists()


def test_upload_copies_a_folder(folder, tmp_path):
    (tmp_path / "model" / "sub").mkdir(parents=True)
    (tmp_path / "model" / "a.bin").write_bytes(b"1")
    (tmp_path / "model" / "sub" / "b.bin").write_bytes(b"22")
    (folder / "model").upload(tmp_path / "model")
    assert sorted(folder.files()) == ["model/a.bin", "model/sub/b.bin"]
    assert (folder / "model" / "sub" / "b.bin").read_bytes() == b"22"


def test_parquet_has_the_row_groups_asked_for(folder):
    table = pa.table({"n": list(range(10))})
    write_parquet(folder / "t.parquet", table, [4, 5, 1])
    with open_parquet(folder / "t.parquet") as file:
        assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [4, 5, 1]
        assert file.read_row_group(1)["n"].to_pylist() == [4, 5, 6, 7, 8]
        assert file.read().equals(table)


def test_parquet_without_rows_keeps_its_schema(folder):
    table = pa.table({"n": pa.array([], pa.int64())})
    write_parquet(folder / "t.parquet", table, [])
    with open_parquet(folder / "t.parquet") as file:
        assert file.num_row_groups == 0
        assert file.schema_arrow == table.schema


def test_pickled_storage_opens_again(folder):
    (folder / "a").write_bytes(b"1")
    again = pickle.loads(pickle.dumps(folder / "a"))
    assert str(again) == str(folder / "a")
    assert again.read_bytes() == b"1"


def test_local_copy_of_a_local_folder_is_itself(tmp_path):
    assert Storage.open(str(tmp_path)).local_copy("key") == tmp_path


def test_local_copy_of_a_remote_folder_is_made_once_a_key(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Storage.open(f"memory://{uuid.uuid4().hex}/model")
    (folder / "a.bin").write_bytes(b"old")
    (folder / "sub" / "b.bin").write_bytes(b"2")
    copy = folder.local_copy("one")
    assert (copy / "sub" / "b.bin").read_bytes() == b"2"
    (folder / "a.bin").write_bytes(b"new")
    assert folder.local_copy("one") == copy
    assert (copy / "a.bin").read_bytes() == b"old"
    assert (folder.local_copy("two") / "a.bin").read_bytes() == b"new"


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_who_may_read_what_is_written_says_the_umask(tmp_path: Path, umask: int, mode: int):
    before = os.umask(umask)
    try:
        (Storage.open(str(tmp_path)) / "rows.json").write_json({"text": "private"})
    finally:
        os.umask(before)
    assert (tmp_path / "rows.json").stat().st_mode & 0o777 == mode


def test_copies_are_each_users_own(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Storage.open(f"memory://{uuid.uuid4().hex}/model")
    (folder / "a.bin").write_bytes(b"1")
    mine = folder.local_copy("key")
    assert mine.parent.stat().st_mode & 0o777 == 0o700
    mine.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="others may write there; remove it, or set TMPDIR"):
        folder.local_copy("key")
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="infocse_ray-12345: others may write there"):
        folder.local_copy("key")  # somebody else's, under that name


def test_files_that_a_killed_process_left_are_none_of_the_folder(tmp_path):
    folder = Storage.open(str(tmp_path))
    for name in ("a.bin", ".writing-1", "sub/b.bin", "sub/.writing-2"):
        (folder / name).write_bytes(b"1")
    assert set(folder.files()) == {"a.bin", "sub/b.bin"}
    assert set(folder.files(unfinished=True)) == {"a.bin", ".writing-1", "sub/b.bin", "sub/.writing-2"}


_WHEN = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "info",
    [
        {"mtime": _WHEN.timestamp()},
        {"mtime": None, "LastModified": _WHEN},
        {"last_modified": _WHEN.astimezone(timezone(timedelta(hours=5)))},
        {"updated": "2024-02-29T12:30:00.000Z"},
        {"modified": "Thu, 29 Feb 2024 12:30:00 GMT"},
        {"created": _WHEN.replace(tzinfo=None)},
    ],
)
def test_filesystems_of_fsspec_say_in_many_ways_when_a_file_was_written(info):
    assert written(info) == _WHEN
    for value in ("yesterday", float("nan"), 1.7e18):
        assert written({"size": 1, "modified": value}) is None


def test_a_file_of_fsspec_that_is_written_again_is_another_one():
    file = Storage.open(f"memory://{uuid.uuid4().hex}/a.bin")
    file.write_bytes(b"1")
    before = file.filesystem.get_file_info(file.path).mtime_ns
    file.write_bytes(b"2")
    assert before is not None
    assert file.filesystem.get_file_info(file.path).mtime_ns != before


def test_local_copy_that_lost_a_file_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Storage.open(f"memory://{uuid.uuid4().hex}/model")
    (folder / "a.bin").write_bytes(b"1")
    (folder / "sub" / "b.bin").write_bytes(b"2")
    (folder.local_copy("key") / "sub" / "b.bin").unlink()
    copy = folder.local_copy("key")
    assert (copy / "a.bin").read_bytes() + (copy / "sub" / "b.bin").read_bytes() == b"12"
    for name in ("a.bin", "sub/b.bin"):  # as whoever tidies up leaves it: folders without files
        (copy / name).unlink()
    copy.with_name(f"{copy.name}.files").unlink()
    assert (folder.local_copy("key") / "a.bin").read_bytes() == b"1"


def test_local_copies_that_nobody_wants_go(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Storage.open(f"memory://{uuid.uuid4().hex}/model")
    (folder / "a.bin").write_bytes(b"1")
    unused, used = folder.local_copy("unused"), folder.local_copy("used")
    for path in (unused, used, unused.with_name(f"{unused.name}.files"), used.with_name(f"{used.name}.files")):
        os.utime(path, (0, 0))
    assert folder.local_copy("used") == used
    folder.local_copy("another")
    assert used.exists()
    assert not unused.exists()
    assert len(list(used.parent.iterdir())) == 4, "two copies and their lists"


def test_local_copy_that_broke_off_is_no_copy(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Storage.open(f"memory://{uuid.uuid4().hex}/model")
    (folder / "a.bin").write_bytes(b"1")
    (folder / "b.bin").write_bytes(b"2")
    read = Storage.read_bytes

    def fails(self: Storage) -> bytes:
        if self.name == "b.bin":
            raise OSError("gone")
        return read(self)

    with monkeypatch.context() as broken:
        broken.setattr(Storage, "read_bytes", fails)
        with pytest.raises(OSError, match="gone"):
            folder.local_copy("key")
    assert sorted(f.name for f in folder.local_copy("key").iterdir()) == ["a.bin", "b.bin"]


@pytest.mark.parametrize("fails", ["write", "os.fsync", "os.replace"])
def test_failed_write_leaves_the_old_content_and_nothing_else(tmp_path, monkeypatch, fails: str):
    file = Storage.open(str(tmp_path)) / "a.bin"
    file.write_bytes(b"old")

    def fail(*_: object) -> None:
        assert file.read_bytes() == b"old"
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        if fails != "write":
            broken.setattr(fails, fail)
        with pytest.raises(TypeError if fails == "write" else OSError):
            file.write_bytes("text is refused" if fails == "write" else b"new")  # pyright: ignore
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_relative_path_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Storage.open("runs")
    (folder / "a").write_bytes(b"1")
    monkeypatch.chdir("/")
    assert str(folder) == str(tmp_path / "runs")
    assert (folder / "a").read_bytes() == b"1"


def test_file_uri_and_home_are_local(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(Storage.open(f"file://{tmp_path}/x")) == str(tmp_path / "x")
    assert str(Storage.open("~/x")) == str(tmp_path / "x")
    for uri in ((tmp_path / "a b%").as_uri(), f"file://localhost{tmp_path}/a%20b%25"):
        assert str(Storage.open(uri)) == str(tmp_path / "a b%")
    assert not is_remote("file://localhost/a")
    with pytest.raises(ValueError, match=r"^storage = 'file://nfs/runs': .*of a machine 'nfs'; .* three slashes"):
        Storage.of_runs("file://nfs/runs")


def test_what_one_process_has_alone_is_no_storage():
    with pytest.raises(ValueError, match=r"^output = 'memory://v': is of one process; give a folder, or a URI that"):
        Storage.lasting("memory://v", "output")


def test_query_of_a_uri_stays_at_its_end():
    assert str(Storage.open("s3://bucket/runs?region=eu") / "a" / "b") == "s3://bucket/runs/a/b?region=eu"
    assert str(Storage.open("s3://bucket/runs/") / "a") == "s3://bucket/runs/a"


def test_a_question_mark_in_a_local_path_is_a_letter(tmp_path):
    file = Storage.open(str(tmp_path / "why?" / "runs")) / "a"
    file.write_bytes(b"")
    assert file.uri == file.path == str(tmp_path / "why?" / "runs" / "a")
    assert Storage.open(file.uri).exists()


@pytest.mark.parametrize(
    ("uri", "remote"),
    [
        ("s3://bucket/a", True),
        ("memory://a", True),
        ("file:///a", False),
        ("/a", False),
        ("a", False),
        ("C:/a", False),
    ],
)
def test_what_is_remote(uri: str, remote: bool):
    assert is_remote(uri) == remote


def test_unknown_scheme_is_refused():
    with pytest.raises(ValueError, match="nowhere://bucket/a can't be opened"):
        open_filesystem("nowhere://bucket/a")
    with pytest.raises(ValueError, match="nowhere://bucket can't be opened"):
        (Storage.open("nowhere://bucket") / "a").exists()


def test_what_a_folder_has_already_is_linked_and_not_written_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "same").write_bytes(b"weights")
    (source / "other").write_bytes(b"new")
    storage = Storage.open(str(tmp_path / "runs"))
    (storage / "a" / "same").write_bytes(b"weights")
    (storage / "a" / "other").write_bytes(b"old")
    for _ in range(2):
        (storage / "b").upload(source, like=storage / "a")
        assert {name: (storage / "b" / name).read_bytes() for name in ("same", "other")} == {
            "same": b"weights",
            "other": b"new",
        }
    inodes = {name: Path((storage / name).path).stat().st_ino for name in ("a/same", "b/same", "a/other", "b/other")}
    assert inodes["a/same"] == inodes["b/same"]
    assert inodes["a/other"] != inodes["b/other"]
    # What is written later replaces the one, not the other.
    (storage / "a" / "same").write_bytes(b"later")
    (storage / "c").upload(source)
    assert (storage / "b" / "same").read_bytes() == b"weights"
    assert Path((storage / "c" / "same").path).stat().st_ino != inodes["b/same"]
    memory = Storage.open("memory://linked")
    (memory / "b").upload(source, like=memory / "a")
    assert (memory / "b" / "same").read_bytes() == b"weights"


@pytest.mark.parametrize("times", [4, 5])
def test_a_folder_that_others_change_is_listed_again(tmp_path, monkeypatch, times):
    folder = Storage.open(str(tmp_path))
    (folder / "models" / "weights").write_bytes(b"")
    inner, failed = folder.filesystem, list[str]()

    class Changing:
        def get_file_info(self, below):
            if len(failed) < times:
                failed.append(below.base_dir)
                raise FileNotFoundError("Cannot list directory")
            return inner.get_file_info(below)

    monkeypatch.setattr(Storage, "filesystem", property(lambda _: Changing()))
    if times == 5:
        with pytest.raises(FileNotFoundError, match="Cannot list"):
            folder.files()
    else:
        assert set(folder.files()) == {"models/weights"}
    assert failed == [folder.path] * times
