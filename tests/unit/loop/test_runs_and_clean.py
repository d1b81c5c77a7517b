"""What `infocse runs` lists, and what `infocse clean` finds and removes, in a storage with runs that share stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileInfo

from infocse_ray.cli import main
from infocse_ray.errors import NoSpace, RunInUse
from infocse_ray.loop.contents import Contents, bytes_of
from infocse_ray.loop.listed import table
from infocse_ray.loop.manifest import Manifest
from infocse_ray.loop.unreferred import _index, _removed, leftovers
from infocse_ray.stages.at_work import at_work
from infocse_ray.stages.lease import Lease
from infocse_ray.stages.stage import Stage, find_stage, run_stage
from infocse_ray.storage.folder import Storage

SETTINGS: dict[str, Any] = {"corpus": {"source": "/data/news.parquet"}}


def made(root: Storage, folder: str, fingerprint: str, size: int = 100) -> Stage:
    def work(stage: Stage) -> dict[str, Any]:
        (stage.folder / "part.bin").write_bytes(b"x" * size)
        return {}

    return run_stage(root, root / folder, "stage", fingerprint, work)


def half_made(root: Storage, folder: str, fingerprint: str) -> None:
    def work(stage: Stage) -> dict[str, Any]:
        (stage.folder / "part.bin").write_bytes(b"x")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        run_stage(root, root / folder, "stage", fingerprint, work)


def run_of(root: Storage, name: str, stages: dict[str, Stage], finish: bool = True, **settings: Any) -> None:
    manifest = Manifest(root / name)
    manifest.begin("pretrain", SETTINGS | settings, {})
    for stage, found in stages.items():
        manifest._content["stages"][stage] = {
            "kind": found.kind,
            "fingerprint": found.fingerprint,
            "folder": found.folder.relative,
            "seconds": 1.0,
        }
    manifest._write()
    if finish:
        (root / name / "model" / "weights").write_bytes(b"w" * 1000)
        line = "WIN, against the encoder as it came: test recall@5 0.50 to 0.60"
        (root / name / "metrics.json").write_json({"verdict": {"label": "WIN", "line": line}})
        manifest.finish("i", ["weights"])


@pytest.fixture
def root(tmp_path: Path) -> Storage:
    """Runs `a` and `b` share a corpus and a's annotations; `c` was stopped in its training."""
    root = Storage.open(str(tmp_path / "runs"))
    corpus, other = made(root, "corpora/c1", "c1"), made(root, "corpora/c2", "c2")
    shared = made(root, "a/iteration_1/annotations", "n1")
    run_of(root, "a", {"corpus": corpus, "annotations": shared, "train": made(root, "a/iteration_1/train", "t1")})
    run_of(root, "b", {"corpus": corpus, "annotations": shared, "train": made(root, "b/iteration_1/train", "t2")})
    run_of(root, "c", {"corpus": other}, finish=False)
    half_made(root, "c/iteration_1/train", "t3")
    return root


def paths(root: Storage, *remove: str) -> list[str]:
    return [one.path for one in leftovers(Contents.of(root), remove)]


def cleaned(root: Storage, *options: str) -> int:
    return main(["clean", "--storage", root.root, *options])


def age(root: Storage, hours: float = 2.0) -> None:
    then = time.time() - 3600 * hours
    for path in Path(root.root).rglob("*"):
        os.utime(path, (then, then))


def test_runs_are_listed_with_state_size_and_verdict(root, capsys):
    assert main(["runs", "--storage", root.root]) == 0
    head, a, b, c, end = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "command", "state", "last", "written", "size", "verdict"]
    assert a.split()[:3] == ["a", "pretrain", "finished"]
    assert a.endswith("WIN, against the encoder as it came: test recall@5 0.50 to 0.60")
    assert b.split()[:3] == ["b", "pretrain", "finished"]
    assert c.split()[:3] == ["c", "pretrain", "stopped"]
    assert "kB" in a
    assert end.startswith("3 runs, ")
    assert "corpora " in end


def test_a_run_under_way_is_listed_with_its_driver(root):
    with Lease(root / "c" / "driver.lease", "c") as lease:
        lease.take()
        [line] = [line for line in table(Contents.of(root)) if line.startswith("c ")]
        assert "under way" in line
        assert f"pid {os.getpid()}" in line


def test_what_runs_refer_to_and_may_go_on_with_is_not_left_over(root):
    assert paths(root) == []


def test_all_files_are_gone_through_no_more_often_the_more_is_left_over(root):
    class Counted(dict[str, FileInfo]):
        times = 0

        def __iter__(self):
            self.times += 1
            return super().__iter__()

    times = []
    for number in range(2):
        for other in range(10 * number):
            made(root, f"a/iteration_1/train-old{other}", f"o{other}")
            (root / "sources" / f"{other:032x}" / "part.parquet").write_bytes(b"x")
        age(root)
        contents = Contents.of(root)
        files = Counted(contents.files)
        assert len(leftovers(contents._replace(files=files))) == 20 * number
        times.append(files.times)
    assert times[0] == times[1]


def test_manifests_verdicts_and_the_index_are_read_several_files_at_once(root, monkeypatch):
    together: dict[str, threading.Barrier] = {}
    read = Storage.read_bytes

    def waits(file: Storage) -> bytes:
        kind = "stages" if file.relative.startswith("stages/") else file.name
        if kind in ("stages", "manifest.json", "metrics.json"):
            together.setdefault(kind, threading.Barrier(2)).wait(10)  # for another that is being read meanwhile
        return read(file)

    (root / "c").delete()  # two of each kind of file, or more
    for extra in range(sum(path.endswith(".json") for path in (root / "stages").files()) % 2):
        made(root, f"corpora/e{extra}", f"e{extra}")
    monkeypatch.setattr(Storage, "read_bytes", waits)
    contents = Contents.of(root)
    assert len(table(contents)) == 4
    _index(contents)
    assert together.keys() == {"stages", "manifest.json", "metrics.json"}


def test_a_dry_run_lists_and_changes_nothing(root, capsys):
    made(root, "a/iteration_1/train-old", "t0", 5000)
    made(root, "corpora/c9", "c9")
    before = set(root.files())
    assert cleaned(root) == 0
    assert set(root.files()) == before
    printed = capsys.readouterr().out
    assert "a/iteration_1/train-old  (no run refers to it)" in printed
    assert "corpora/c9" in printed
    assert "nothing is changed without --yes" in printed


def test_what_no_run_refers_to_goes_with_its_entry_in_the_index(root, capsys):
    before = set(root.files())
    made(root, "a/iteration_1/train-old", "t0")
    made(root, "encoders/e9", "e9")
    made(root, "evaluations/v9", "v9")
    half_made(root, "a/iteration_2/train", "t9")
    assert cleaned(root, "--yes") == 0
    assert set(root.files()) == before
    assert "4 removed" in capsys.readouterr().out
    assert not Path(root.root, "a/iteration_2").exists()
    assert find_stage(root, root / "x", "t0") is None
    assert find_stage(root, root / "x", "n1") is not None


def test_a_run_that_is_removed_leaves_what_others_refer_to(root):
    assert cleaned(root, "--runs", "a,c", "--yes=true") == 0
    there = set(root.files())
    assert {path.split("/")[0] for path in there} == {"a", "b", "corpora", "stages"}
    assert {path for path in there if path.startswith("a/")} == {
        f"a/iteration_1/annotations/{name}" for name in ("part.bin", "stage.json", "started.json")
    }
    assert {path.split("/")[1] for path in there if path.startswith("corpora/")} == {"c1"}
    assert cleaned(root, "--runs", "b", "--yes") == 0
    assert root.files() == {}


def test_a_run_that_goes_on_still_refers_to_what_it_had(root):
    Manifest(root / "a").begin("pretrain", SETTINGS, {})
    Manifest(root / "b").begin("pretrain", SETTINGS, {})
    assert paths(root) == []
    run_of(root, "a", {"corpus": made(root, "corpora/c1", "c1")})
    assert paths(root) == ["a/iteration_1/train"], "b had the annotations"


def test_what_a_live_lease_holds_is_kept_and_what_a_dead_one_held_is_not(root):
    made(root, "corpora/c9", "c9")
    half_made(root, "a/iteration_2/train", "t9")
    half_made(root, "evaluations/v9", "v9")
    with Lease(root / "stages" / "t9.lease", "train") as lease:
        lease.take()
        assert paths(root) == [], "whoever makes t9 may read any corpus, and whoever evaluates what it made"
        assert cleaned(root, "--yes") == 0
        assert (root / "a/iteration_2/train/part.bin").exists()
    holder = f"""
from infocse_ray.stages.lease import Lease
from infocse_ray.storage.folder import Storage
import os
Lease(Storage({root.root!r}) / "stages" / "t9.lease", "train").take()
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", holder], check=False)
    assert (root / "stages" / "t9.lease").exists()
    assert set(paths(root)) == {"corpora/c9", "evaluations/v9", "a/iteration_2/train"}
    assert cleaned(root, "--yes") == 0
    assert not (root / "a/iteration_2/train").exists()
    assert not (root / "stages" / "t9.lease").exists()


def test_what_a_command_without_a_run_reads_is_kept(root):
    made(root, "corpora/c9", "c9")
    made(root, "evaluations/v9", "v9")
    with at_work(root, "embed"):
        assert paths(root) == []
        assert cleaned(root, "--yes") == 0
        with pytest.raises(
            RunInUse, match=r"^runs = 'a': a driver may be reading its encoders \(host .*\); wait for it$"
        ):
            paths(root, "a")
    assert paths(root) == ["corpora/c9", "evaluations/v9"]


def test_what_a_stopped_run_finished_and_didnt_name_stays_until_the_run_is_finished(root):
    made(root, "c/iteration_1/annotations", "n9")
    (root / "c" / "manifest.json").write_bytes(b"{}x")
    Manifest(root / "c").begin("pretrain", SETTINGS, {})
    made(root, "corpora/c9", "c9")
    assert paths(root) == [], "it may be the corpus that the run was prepared with"
    run_of(root, "c", {"corpus": made(root, "corpora/c2", "c2")})
    assert set(paths(root)) == {"c/iteration_1/annotations", "c/iteration_1/train", "corpora/c9"}


def test_a_users_own_folders_stay(root):
    for path in ("corpora/news/part.parquet", "encoders/minilm/config.json", "sources/crawl/a.jsonl"):
        (root / path).write_bytes(b"mine")
    age(root)
    assert paths(root) == []


def test_the_sign_of_a_command_that_was_killed_goes(root):
    dead = """
import os, sys
from infocse_ray.stages.at_work import at_work
from infocse_ray.storage.folder import Storage
with at_work(Storage.open(sys.argv[1]), "embed"):
    os._exit(9)
"""
    subprocess.run([sys.executable, "-c", dead, root.root], check=False)
    [sign] = [name for name in (root / "stages").files() if name.startswith("at-work-")]
    os.utime(root.root + f"/stages/{sign}", (0, 0))
    assert paths(root) == [f"stages/{sign}"]
    assert cleaned(root, "--yes") == 0
    assert paths(root) == []


def test_a_run_under_way_keeps_all_it_has(root, capsys):
    made(root, "c/iteration_1/train-old", "t0")
    half_made(root, "a/iteration_2/train", "t9")
    with Lease(root / "c" / "driver.lease", "c") as lease:
        lease.take()
        assert paths(root) == ["a/iteration_2/train"]
        with pytest.raises(SystemExit) as ended:
            cleaned(root, "--runs", "c", "--yes")
        assert ended.value.code == 1, "as of every command that another driver is in the way of"
        assert "runs = 'c': a driver is at work on it" in capsys.readouterr().err
    assert paths(root) == ["a/iteration_2/train"], "it may go on"
    run_of(root, "c", {"corpus": made(root, "corpora/c2", "c2")})
    assert set(paths(root)) == {"a/iteration_2/train", "c/iteration_1/train", "c/iteration_1/train-old"}


def test_a_driver_that_began_after_the_look_keeps_its_run(root, capsys):
    half_made(root, "a/iteration_2/train", "t9")
    [one] = leftovers(contents := Contents.of(root))
    with Lease(root / "a" / "driver.lease", "a") as lease:
        lease.take()
        assert _removed(contents, [one]) == [one]
    assert (root / "a/iteration_2/train/part.bin").exists()
    assert "kept: " in capsys.readouterr().out


def test_what_a_driver_may_have_found_since_the_look_is_kept(root, capsys):
    made(root, "corpora/c9", "c9")
    [one] = leftovers(contents := Contents.of(root))
    assert one.path == "corpora/c9"
    with at_work(root, "embed"):
        assert _removed(contents, [one]) == [one]
    assert "kept: corpora/c9: a driver has begun since (host " in capsys.readouterr().out
    with Lease(root / "d" / "driver.lease", "d") as lease:  # a run's first
        lease.take()
        assert _removed(contents, [one]) == [one]
    assert find_stage(root, root / "x", "c9") is not None
    assert not _removed(contents, [one])
    assert find_stage(root, root / "x", "c9") is None


def test_for_many_things_who_has_come_is_looked_for_once(root, monkeypatch):
    looked: list[int] = []
    come_since = Contents.come_since
    monkeypatch.setattr(
        Contents, "come_since", lambda self, besides: looked.append(len(besides)) or come_since(self, besides)
    )
    for number in range(5):
        half_made(root, f"a/iteration_{number + 2}/train", f"h{number}")
        made(root, f"corpora/m{number}", f"m{number}")
    found = leftovers(contents := Contents.of(root))
    assert len(found) == 10
    assert _removed(contents, found) == []
    assert looked == [11], "each has a lease of its own, and five share that of their run"
    assert paths(root) == []
    assert not Path(root.root, "corpora", "m0").exists()


def test_what_others_find_things_by_goes_before_all_else_of_any(root, monkeypatch):
    for number in range(3):
        made(root, f"corpora/m{number}", f"m{number}")
    found = leftovers(contents := Contents.of(root))
    gone: list[str] = []
    delete = Storage.delete
    monkeypatch.setattr(Storage, "delete", lambda self: gone.append(self.relative) or delete(self))
    assert _removed(contents, found) == []
    kinds = ["index" if "stages/" in one else "stage" if one.endswith("stage.json") else "rest" for one in gone]
    first = [kind for one, kind in zip(gone, kinds, strict=True) if not one.endswith(".lease")]
    assert first == sorted(first, key=["index", "stage", "rest"].index)
    assert first.count("index") == first.count("stage") == 3


def test_what_a_run_under_way_has_found_since_the_look_is_kept(root, capsys):
    made(root, "b/iteration_2/train", "t8")
    with Lease(root / "c" / "driver.lease", "c") as lease:
        lease.take()
        [one] = leftovers(contents := Contents.of(root))
        assert one.path == "b/iteration_2/train"
        manifest = Manifest(root / "c")
        manifest.begin("pretrain", SETTINGS, {})
        found = find_stage(root, root / "x", "t8")
        assert found is not None
        manifest.add("train", found)
        assert _removed(contents, [one]) == [one]
    assert "kept: b/iteration_2/train: a run under way has found b/iteration_2/train since" in capsys.readouterr().out
    assert find_stage(root, root / "x", "t8") is not None


def test_room_is_made_on_a_full_disk_where_no_lease_can_be_written(root, monkeypatch):
    half_made(root, "a/iteration_2/train", "t9")
    [one] = leftovers(contents := Contents.of(root))
    opened = Path.open

    def full(path: Path, mode: str = "r", **options: Any) -> Any:
        stream = opened(path, mode, **options)
        return opened(Path("/dev/full"), "wb") if mode == "xb" else stream

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(NoSpace, match=r"a/driver.lease: no space left: \d+ bytes to write"):
        Lease(root / "a" / "driver.lease", "a").take()
    assert not (root / "a" / "driver.lease").exists(), "nobody is taken for a driver"
    assert not _removed(contents, [one])
    assert not (root / "a/iteration_2/train/part.bin").exists()


def test_what_was_half_written_long_ago_goes_and_what_is_fresh_stays(root):
    read, unread, workers = (f"sources/{32 * '1'}", f"sources/{32 * '2'}", f"evaluations/workers-{32 * '3'}")
    (root / read / "part.parquet").write_bytes(b"documents")
    (root / unread / "part.parquet").write_bytes(b"documents")
    (root / "sources" / ".writing-1" / "part.parquet").write_bytes(b"docu")
    (root / "a" / "model" / ".writing-2").write_bytes(b"w")
    (root / workers / "state.json").write_bytes(b"{}")
    run_of(root, "d", {}, corpus={"source": f"{root.root}/{read}"})
    assert paths(root) == []
    age(root)
    assert set(paths(root)) == {unread, "sources/.writing-1", "a/model/.writing-2", workers}


def test_a_storage_that_does_not_say_when_files_were_written_is_listed(root, monkeypatch):
    listed = Storage.files

    def untimed(self: Storage, unfinished: bool = False) -> dict[str, FileInfo]:
        every = listed(self, unfinished).items()
        return {name: FileInfo(info.path, info.type, size=info.size) for name, info in every}

    monkeypatch.setattr(Storage, "files", untimed)
    contents = Contents.of(root)
    assert [run.changed for run in contents.runs.values()] == [None] * 3
    assert len(table(contents)) == 5
    assert {contents.age(path) for path in contents.files} == {0.0}, "what may be new stays"


def test_nothing_but_what_runs_write_is_looked_at(root):
    made(root, "a/old", "t0")
    for path in ("mine/stage.json", "mine/data.bin", "notes.txt"):
        (root / path).write_bytes(b"{}")
    age(root)
    assert paths(root) == ["a/old"]


@pytest.mark.parametrize("output", ["vectors-of-news", "a/vectors-of-news", "a", ""])
def test_embedded_vectors_stay_wherever_they_were_put(root, output):
    place = Storage(root.root, output)
    (place / "embedding.json").write_json({})
    for name in ("encoder", "vectors"):
        stage = f"{output}/{name}".removeprefix("/")
        run_stage(place, root / stage, name, f"embed-{name}", lambda stage: {})
    half_made(root, f"{output}/vectors-of-others".removeprefix("/"), "h1")
    age(root)
    assert paths(root) == []


def test_embedded_vectors_in_a_run_stay_when_it_is_removed(root, capsys):
    place = root / "a" / "vectors"
    (place / "embedding.json").write_json({})
    (place / "search" / "copy.lance").write_bytes(b"x")
    for name in ("encoder", "vectors"):
        run_stage(place, place / name, name, f"embed-{name}", lambda stage: {})
    there = sorted(place.files())
    assert cleaned(root, "--runs", "a", "--yes") == 0
    assert "kept: a/vectors, which `infocse embed` wrote" in capsys.readouterr().out
    assert sorted(place.files()) == there
    assert not (root / "a" / "manifest.json").exists()


def test_a_damaged_manifest_is_no_reason_to_remove_what_it_named(root, capsys):
    (root / "a" / "manifest.json").write_bytes(b"{}x")
    with pytest.raises(SystemExit) as ended:
        cleaned(root, "--yes")
    assert ended.value.code == 2
    assert "or remove it, all that is in its folder, with --runs a" in capsys.readouterr().err
    assert "a/iteration_1/annotations" not in paths(root, "a")


@pytest.mark.parametrize("content", [b'{"stages": ["a"]}', b'{"stages": {"a": {"cmd": "x"}}}', b"[]", b"null", b"{}"])
def test_what_may_be_a_runs_manifest_is_one_that_is_damaged(root, capsys, content: bytes):
    (root / "app" / "manifest.json").write_bytes(content)
    with pytest.raises(SystemExit):
        cleaned(root, "--yes")
    assert "so what it refers to can't be told" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["no checksum", "another key", "of other software"])
@pytest.mark.parametrize("lease", [False, True])
def test_a_run_whose_manifest_isnt_known_again_keeps_all_that_it_had(root, capsys, damage: str, lease: bool):
    manifest = json.loads((root / "a" / "manifest.json").read_bytes())
    checksum = manifest.pop("checksum")
    content = {"another key": manifest | {"checksun": checksum}, "of other software": {"name": "My app"}}
    (root / "a" / "manifest.json").write_bytes(json.dumps(content.get(damage, manifest)).encode())
    if lease:
        (root / "a" / "driver.lease").write_bytes(b"")
    there = sorted(root.files())
    with pytest.raises(SystemExit):
        cleaned(root, "--yes")
    assert "so what it refers to can't be told" in capsys.readouterr().err
    assert sorted(root.files()) == there


def test_a_manifest_of_other_software_is_no_runs(root, capsys):
    (root / "app" / "manifest.json").write_bytes(b'{"name": "My app", "icons": []}')
    (root / "app" / "index.html").write_bytes(b"mine")
    assert "app" not in Contents.of(root).runs
    cleaned(root, "--yes")
    assert sorted((root / "app").files()) == ["index.html", "manifest.json"]
    with pytest.raises(SystemExit):
        cleaned(root, "--runs", "app", "--yes")
    assert "runs = 'app': no such run" in capsys.readouterr().err
    (root / "app" / "driver.lease").write_bytes(b"")
    assert Contents.of(root).runs["app"].damaged, "a driver was there"


@pytest.mark.parametrize("content", [b"[]", b"null", b'{"verdict": null}', b'{"verdict": "WIN"}', b"x{"])
def test_a_run_whose_scores_are_of_another_shape_is_listed(root, content: bytes):
    (root / "a" / "metrics.json").write_bytes(content)
    [line] = [line for line in table(Contents.of(root)) if line.startswith("a ")]
    assert "its metrics.json can't be read" in line


def test_a_run_that_is_not_there_is_refused(root, tmp_path, capsys):
    for options, said in (
        (["--storage", root.root, "--runs", "bb"], "runs = 'bb': no such run"),
        (["--storage", str(tmp_path / "nowhere")], "no such folder"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["clean", *options])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["runs", "clean"])
def test_the_folder_of_a_run_is_no_storage(root, tmp_path, capsys, command):
    with pytest.raises(SystemExit) as ended:
        main([command, "--storage", str(tmp_path / "runs" / "a")])
    assert ended.value.code == 2
    assert f"is the folder of a run; name the one that it is in, {tmp_path}/runs\n" in capsys.readouterr().err


def test_the_folder_of_tables_is_listed_and_may_be_removed(root):
    (root / "tables" / "tables.json").write_bytes(b"{}")
    (root / "tables" / "cells" / "a.json").write_bytes(b"{}")
    [line] = [line for line in table(Contents.of(root)) if line.startswith("tables ")]
    assert line.split()[1] == "reproduce"
    assert paths(root) == []
    assert cleaned(root, "--runs", "tables", "--yes") == 0
    assert not Path(root.root, "tables").exists()


def test_sizes_for_people():
    assert [bytes_of(n) for n in (5, 176_400_000, 999_999, 2.5e12)] == ["5 B", "176 MB", "1 MB", "2.5 TB"]
