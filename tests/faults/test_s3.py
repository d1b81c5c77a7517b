"""An object store that answers errors for a while: retried, then given up on, and nothing half-written is taken."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import ray

from infocse_ray.corpus.prepare import prepare, rejected_rows, show_rejected
from infocse_ray.corpus.read import read_rows
from infocse_ray.corpus.source import find_source
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.errors import StorageUnavailable
from infocse_ray.loop.infocse import pretrain
from infocse_ray.settings import Corpus, Settings
from infocse_ray.stages.stage import Stage, find_stage, run_stage
from infocse_ray.storage import s3
from infocse_ray.storage.folder import Storage, open_filesystem
from infocse_ray.storage.parquet import open_parquet, write_parquet
from infocse_ray.storage.s3 import open_s3, retries_within
from tests.conftest import make_documents
from tests.faults.s3_server import ERROR, KEY, SECRET, SILENCE, SLOW_DOWN, Request, S3Server, s3_server

pytest.importorskip("moto")

DATA = bytes(range(256)) * 100
LARGE = os.urandom(2**20) * 25
"""Of several parts: pyarrow's are of 10 MiB."""


ODD = ["my news.jsonl", "100%25.jsonl", "café.jsonl", "a#b.jsonl", "part[1].jsonl", "a+b=c@d.jsonl", "what?.jsonl"]
"""Keys that a URI has no letters for, or other ones."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def uri(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of its own, whose errors are retried for about a second."""
    monkeypatch.setattr(s3, "_ANSWER_SECONDS", 1.0)
    yield server.uri(f"bucket/{uuid.uuid4().hex}", retry_limit_seconds=1)
    server.recover()


def test_a_page_is_stored_as_one_that_browsers_show(uri: str) -> None:
    file = Storage.open(uri) / "report.html"
    file.write_bytes(b"<!doctype html>", content_type="text/html; charset=utf-8")
    with file.filesystem.open_input_stream(file.path) as stream:
        assert stream.metadata()["Content-Type"] == b"text/html; charset=utf-8"
    assert file.read_bytes() == b"<!doctype html>"


@pytest.mark.parametrize("fault", [ERROR, SLOW_DOWN, SILENCE])
def test_errors_for_a_while_are_waited_out(server: S3Server, uri: str, fault: tuple[int, str]) -> None:
    folder = Storage.open(uri)
    times = 1 if fault == SILENCE else 4
    for do in (
        lambda: (folder / "a").write_bytes(DATA),
        lambda: (folder / "a").exists(),
        lambda: (folder / "a").read_bytes(),
        lambda: list(folder.files()),
        lambda: (folder / "a").delete(),
    ):
        before = len(server.requests)
        server.fail(fault, requests=times)
        found = do()
        assert len(server.requests) - before > times
        assert found in (None, True, DATA, ["a"])
    assert not (folder / "a").exists()


def test_a_large_object_whose_parts_are_refused_for_a_while_is_whole(server: S3Server, uri: str) -> None:
    folder = Storage.open(uri)
    before = len(server.requests)
    server.fail(SLOW_DOWN, requests=3, concerns=lambda request: "partNumber=2" in request.query)
    (folder / "a").write_bytes(LARGE)
    assert sum("partNumber=2" in request.query for request in server.requests[before:]) >= 1 + 3
    assert (folder / "a").read_bytes() == LARGE


def test_a_file_that_is_being_read_is_read_on(server: S3Server, uri: str) -> None:
    table = pa.table({"n": list(range(1000))})
    file = Storage.open(uri) / "t.parquet"
    write_parquet(file, table, [500, 500])
    with open_parquet(file) as parquet:
        server.fail(ERROR, requests=3)
        assert parquet.read_row_group(1)["n"].to_pylist() == list(range(500, 1000))


@pytest.mark.parametrize("size", [1, 30, 300])
def test_what_is_shorter_than_an_error_s_text_is_retried_as_well(server: S3Server, uri: str, size: int) -> None:
    file = Storage.open(uri) / "a"
    file.write_bytes(DATA[:size])

    def read(request: Request) -> bool:
        return request.method == "GET"

    before = len(server.requests)
    server.fail(SLOW_DOWN, requests=4, concerns=read)
    assert file.read_bytes() == DATA[:size]
    assert sum(map(read, server.requests[before:])) == 1 + 4
    with file.filesystem.open_input_file(file.path) as source:
        server.fail(ERROR, requests=4, concerns=read)
        assert file.read_at(source, 5, size // 2) == DATA[:size][size // 2 :][:5]
    server.fail(SLOW_DOWN, concerns=read)
    before = len(server.requests)
    with pytest.raises(StorageUnavailable):
        file.read_bytes()
    assert sum(map(read, server.requests[before:])) == 1 + retries_within(1), "it gives up in the end"


def test_a_large_object_is_read_in_few_requests(server: S3Server, uri: str) -> None:
    file = Storage.open(uri) / "a"
    file.write_bytes(LARGE)
    before = len(server.requests)
    assert file.read_bytes() == LARGE
    # Each once: a busy machine may answer so late that one is made again.
    assert sorted(request.method for request in set(server.requests[before:])) == ["GET", "GET", "HEAD"]


def test_it_gives_up_after_the_stated_time_and_says_so(server: S3Server, uri: str) -> None:
    folder = Storage.open(uri)
    (folder / "a").write_bytes(b"old")
    server.fail(SLOW_DOWN)
    for do in (
        (folder / "a").exists,
        (folder / "a").read_bytes,
        folder.files,
        lambda: (folder / "a").write_bytes(DATA),
    ):
        before = len(server.requests)
        with pytest.raises(StorageUnavailable) as error:
            do()
        assert len(server.requests) - before == 1 + retries_within(1)
        said = str(error.value)
        assert "the object store failed for" in said
        assert "AWS Error" in said
        assert "retry_limit_seconds" in said
        assert said.startswith("s3://***@bucket/")
        assert len(said.splitlines()) == 1
    server.recover()
    assert (folder / "a").read_bytes() == b"old"
    assert list(folder.files()) == ["a"]


def test_a_large_object_that_could_not_be_finished_is_not_there(server: S3Server, uri: str) -> None:
    folder = Storage.open(uri)
    server.fail(ERROR, concerns=lambda request: "partNumber=2" in request.query)
    with pytest.raises(StorageUnavailable, match="for"):
        (folder / "a").write_bytes(LARGE)
    server.recover()
    assert not (folder / "a").exists()
    (folder / "a").write_bytes(LARGE)
    assert (folder / "a").read_bytes() == LARGE


def test_a_writer_killed_in_the_middle_leaves_nothing(server: S3Server, uri: str) -> None:
    script = (
        "import os, sys; from infocse_ray.storage.folder import open_filesystem\n"
        "filesystem, path = open_filesystem(sys.argv[1])\n"
        "stream = filesystem.open_output_stream(path, compression=None)\n"
        "stream.write(os.urandom(2**20) * 25); stream.flush(); os.kill(os.getpid(), 9)"
    )
    before = len(server.requests)
    target = Storage.open(uri) / "a"
    assert subprocess.run([sys.executable, "-c", script, target.uri], check=False).returncode == -9
    assert any("partNumber" in request.query for request in server.requests[before:]), "something was written"
    assert not target.exists()


def test_a_stage_cut_off_by_storage_goes_on_with_the_pieces_it_has(server: S3Server, uri: str) -> None:
    root = Storage.open(uri)
    done = []

    def work(stage: Stage) -> dict:
        for piece in ("one", "two", "three"):
            if not (stage.folder / piece).exists():
                (stage.folder / piece).write_bytes(piece.encode())
                done.append(piece)
        return {"pieces": 3}

    server.fail(SLOW_DOWN, concerns=lambda request: request.path.endswith("/two") and request.method in ("PUT", "POST"))
    with pytest.raises(StorageUnavailable, match="/a/two"):
        run_stage(root, root / "a", "test", "f1", work)
    server.recover()
    assert find_stage(root, root / "a", "f1") is None
    assert run_stage(root, root / "a", "test", "f1", work).summary is not None
    assert done == ["one", "two", "three"]
    assert find_stage(root, root / "a", "f1") is not None


def test_patience_survives_being_sent_to_a_worker(server: S3Server, uri: str) -> None:
    filesystem, path = open_filesystem(uri)
    again = pickle.loads(pickle.dumps(filesystem))
    options = again.__reduce__()[1][1]
    assert options["request_timeout"] == options["connect_timeout"] == s3._ANSWER_SECONDS
    server.fail(ERROR)
    before = len(server.requests)
    with pytest.raises(OSError, match="HTTP status 500"):
        again.get_file_info(path)
    assert len(server.requests) - before == 1 + retries_within(1)


def test_files_of_a_bucket_share_connections(uri: str) -> None:
    assert open_s3(uri)[0] is open_s3(uri.replace("?", "/deeper/a%20b?"))[0]
    assert open_s3(uri.replace("?", "/deeper/a%20b?"))[1].endswith("/deeper/a b")
    assert open_s3(uri)[0] is not open_s3(uri.replace("retry_limit_seconds=1", "retry_limit_seconds=2"))[0]


def test_retry_limits() -> None:
    for seconds in (1, 10, 100, 1000):
        waits = [s3._UNIT_SECONDS * 2**k for k in range(1, retries_within(seconds))]
        assert seconds / 1.5 < sum(waits) < seconds * 1.5


@pytest.mark.parametrize("wrong", ["soon", "0", "-1", "nan", "inf", ""])
def test_a_wrong_retry_limit_is_refused(server: S3Server, wrong: str) -> None:
    with pytest.raises(ValueError, match=f"retry_limit_seconds = '{wrong}': give a number of seconds"):
        open_filesystem(server.uri("bucket", retry_limit_seconds=wrong))


def test_a_parameter_that_nobody_knows_is_refused(server: S3Server) -> None:
    with pytest.raises(ValueError, match="can't be opened: Unexpected query parameter in S3 URI: 'retries'"):
        open_filesystem(server.uri("bucket", retries=3))


def test_a_corpus_out_of_reach_is_not_called_unreadable(server: S3Server, uri: str) -> None:
    (Storage.open(uri) / "a.jsonl").write_bytes(rows(2))
    server.fail(SLOW_DOWN, concerns=lambda request: request.path.endswith(".jsonl") and request.method == "GET")
    with pytest.raises(StorageUnavailable, match=r"^s3://\*\*\*@bucket/\w+/a.jsonl\S*: the object store failed"):
        find_source(Corpus(source=uri))
    server.fail(SLOW_DOWN)
    with pytest.raises(StorageUnavailable, match=r"^corpus.source = 's3://\*\*\*@bucket/\w+\?\S+': the object store"):
        find_source(Corpus(source=uri))


def rows(count: int) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in make_documents(count)).encode()


def contents(folder: Storage) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in folder.files()}


def secrets_in(texts: dict[str, bytes]) -> list[str]:
    return [name for name, text in texts.items() if SECRET.encode() in text or KEY.encode() in text]


def ray_logs() -> dict[str, bytes]:
    folder = Path(ray._private.worker._global_node.get_logs_dir_path())  # pyright: ignore
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.usefixtures("ray_cluster")
def test_a_corpus_is_prepared_from_and_to_a_store_that_fails_now_and_then(
    server: S3Server, uri: str, tiny_encoder: Path, tmp_path: Path
) -> None:
    tokenizer = (tiny_encoder / "tokenizer.json").read_text()
    bad = b'{"id": "bad", "sentences": null}\n'
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.jsonl").write_bytes(rows(40) + bad)
    folder = Storage.open(uri) / "corpus"
    there = Corpus(source=folder.uri, lanes=2)
    (folder / "a.jsonl").write_bytes(rows(40) + bad)
    here = there.model_copy(update={"source": str(tmp_path / "c")})

    server.fail(SLOW_DOWN, every=5)
    root = Storage.for_runs((Storage.open(uri) / "runs").uri)
    store = prepare(root, there, find_source(there), CorpusTokenizer(tokenizer))
    server.recover()

    local = prepare(Storage.open(str(tmp_path / "runs")), here, find_source(here), CorpusTokenizer(tokenizer))
    for shard in range(store.shards):
        assert store.shard(shard).read_bytes() == local.shard(shard).read_bytes()
    written = contents(root)
    assert secrets_in(written) == []
    assert [row["file"] for row in rejected_rows(store)] == [str(folder / "a.jsonl")]
    assert SECRET not in show_rejected(store)
    before = len(server.requests)
    assert prepare(root, there, find_source(there), CorpusTokenizer(tokenizer)).fingerprint == store.fingerprint
    assert {request.method for request in server.requests[before:]} <= {"GET", "HEAD"}, "nothing is written again"


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_whole_run_on_s3_leaks_nothing_and_is_done_once(
    server: S3Server, uri: str, tiny_encoder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    base = Storage.open(uri)
    (base / "corpus" / "a.jsonl").write_bytes(rows(60) + b'{"id": "bad", "sentences": null}\n')
    (base / "encoder").upload(tiny_encoder)
    settings = Settings.model_validate(
        {
            "name": "run",
            "storage": (base / "runs").uri,
            "corpus": {"source": (base / "corpus" / "*.jsonl").uri, "lanes": 2, "valid_fraction": 0.3},
            "encoder": {"model": (base / "encoder").uri, "max_length": 16, "precision": "fp32"},
            "train": {"batch_size": 8, "max_steps": 4, "chunk_tokens": 128, "similarity": "cosine"},
            "validate": {"every": 2},
            "loop": {"max_iterations": 1, "initialization": "none"},
        }
    )
    server.fail(SLOW_DOWN, every=20)
    metrics = pretrain(settings)
    server.recover()
    assert metrics["settings"]["storage"] == settings.storage, "what is returned is not what is written"
    written = contents(base / "runs")
    assert {"run/manifest.json", "run/metrics.json", "run/model/model.safetensors"} <= written.keys()
    assert secrets_in(written) == []
    before = len(server.requests)
    pretrain(settings)
    assert {request.method for request in server.requests[before:]} <= {"GET", "HEAD"}, "nothing is done again"
    said = capfd.readouterr()
    assert "nothing to do" in said.out
    assert secrets_in({"out": said.out.encode(), "err": said.err.encode()} | ray_logs()) == []


def test_keys_of_any_letters_are_read_and_called_as_they_are(server: S3Server, tmp_path: Path) -> None:
    row = b'{"text": "A ship. A judge."}\n'
    place = f"bucket/{uuid.uuid4().hex}/sea & land"
    filesystem, path = open_filesystem(server.uri(place))
    for name in ODD:
        with filesystem.open_output_stream(f"{path}/{name}") as stream:
            stream.write(row)
        (tmp_path / name).write_bytes(row)
    there = find_source(Corpus(source=server.uri(place)))
    here = find_source(Corpus(source=str(tmp_path)))
    assert [piece.name for piece in there.pieces] == sorted(piece.name for piece in here.pieces)
    for piece in there.pieces:
        [found] = read_rows(piece, there.columns, False)
        assert found.values == {"text": "A ship. A judge."}
    [one] = find_source(Corpus(source=server.uri(f"{place}/[mn]y *.jsonl"))).pieces
    assert one.name == "my news.jsonl"
