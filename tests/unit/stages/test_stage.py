import contextlib
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from infocse_ray.errors import DamagedFile
from infocse_ray.runtime import progress
from infocse_ray.stages.stage import Stage, claim, find_stage, look_again, read_stage, read_whole_stage, run_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet


@pytest.fixture
def root(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path))


class Work:
    """Writes one piece a call, as stages do, and knows how often it was called."""

    def __init__(self, piece: str = "piece") -> None:
        self.piece, self.calls, self.seen = piece, 0, {}

    def __call__(self, stage: Stage) -> dict:
        self.calls += 1
        self.seen = stage.folder.files()
        (stage.folder / self.piece).write_bytes(b"1")
        return {"pieces": 1}


class Crash(BaseException):
    pass


def run(root: Storage, folder: str, fingerprint: str, work) -> Stage:
    return run_stage(root, root / folder, "test", fingerprint, work)


def test_work_is_done_once(root):
    work = Work()
    first = run(root, "a", "f1", work)
    second = run(root, "a", "f1", work)
    assert work.calls == 1
    assert first.summary == second.summary
    assert first.summary is not None
    assert first.summary["pieces"] == 1
    assert second.seconds is not None
    assert second.seconds >= 0
    found = read_stage(root / "a")
    assert (found.kind, found.fingerprint, found.summary) == ("test", "f1", first.summary)


def test_nothing_is_rewritten_when_it_was_done(root, tmp_path):
    run(root, "a", "f1", Work())
    before = {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*")}
    run(root, "a", "f1", Work())
    assert {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*")} == before


def test_another_fingerprint_goes_beside_what_is_finished_which_other_runs_may_share(root, capsys):
    old = run(root, "a", "f1", Work("old"))
    new = Work("new")
    stage = run(root, "a", "f2", new)
    assert new.calls == 1
    assert not new.seen.keys() - {"started.json"}
    assert stage.folder.name == "a-f2"
    assert "goes to a-f2" in capsys.readouterr().out
    assert (old.folder / "old").exists()
    for fingerprint, place in (("f1", "a"), ("f2", "a-f2")):
        again = run(root, "a", fingerprint, lambda stage: pytest.fail("done again"))
        assert again.folder.name == place
        (root / "stages" / f"{fingerprint}.json").delete()  # as after a crash before the index was written
        assert run(root, "a", fingerprint, lambda stage: pytest.fail("done again")).folder.name == place


def test_leftovers_of_an_unfinished_stage_of_another_fingerprint_are_removed(root):
    def crash(stage: Stage) -> dict:
        (stage.folder / "old").write_bytes(b"1")
        raise Crash

    with pytest.raises(Crash):
        run(root, "a", "f1", crash)
    new = Work("new")
    run(root, "a", "f2", new)
    assert "old" not in new.seen


def test_crash_leaves_pieces_for_the_next_call(root):
    def crash(stage: Stage) -> dict:
        (stage.folder / "half").write_bytes(b"1")
        raise Crash

    with pytest.raises(Crash):
        run(root, "a", "f1", crash)
    assert find_stage(root, root / "a", "f1") is None
    with pytest.raises(FileNotFoundError):
        read_stage(root / "a")
    work = Work()
    run(root, "a", "f1", work)
    assert work.calls == 1
    assert "half" in work.seen


def test_seconds_of_a_crashed_call_are_counted(root, monkeypatch):
    clock = iter([0.0, 40.0, 100.0, 102.0])
    monkeypatch.setattr("infocse_ray.stages.stage.time.monotonic", lambda: next(clock))

    def crash(_: Stage) -> dict:
        raise Crash

    with pytest.raises(Crash):
        run(root, "a", "f1", crash)
    assert run(root, "a", "f1", Work()).seconds == 42.0


def test_what_passes_until_its_workers_have_done_something_is_kept(root, monkeypatch):
    now = SimpleNamespace(monotonic=lambda: clock)
    clock = 10.0

    def work(_: Stage) -> dict:
        nonlocal clock
        with monkeypatch.context() as patch:
            patch.setattr(progress, "time", now)
            bar = progress.Bar("working", 2, "pieces")
            for moment, done in ((11.0, 0), (14.0, 1), (20.0, 2)):
                clock = moment
                bar.to(done)
        return {}

    assert run_stage(root, root / "a", "test", "f1", work).starting == 4.0
    look_again()
    assert read_stage(root / "a").starting == 4.0
    assert run_stage(root, root / "b", "test", "f2", lambda _: {}).starting is None


def test_commit_is_written_last_and_the_index_after_it(root, monkeypatch):
    written = []
    write = Storage.write_bytes

    def spy(self: Storage, data: bytes) -> None:
        written.append(self.relative)
        write(self, data)

    monkeypatch.setattr(Storage, "write_bytes", spy)
    run(root, "a", "f1", Work())
    assert written == ["a/started.json", "a/piece", "a/stage.json", "stages/f1.json"]


def test_runs_share_a_stage_by_its_fingerprint(root):
    run(root, "one/a", "f1", Work())
    work = Work()
    stage = run(root, "two/a", "f1", work)
    assert work.calls == 0
    assert stage.folder.relative == "one/a"
    assert (stage.folder / "piece").exists()
    assert not (root / "two").exists()


def test_shared_stage_survives_a_move_of_the_storage(root, tmp_path):
    run(root, "one/a", "f1", Work())
    moved = tmp_path.with_name(tmp_path.name + "-moved")
    tmp_path.rename(moved)
    work = Work()
    stage = run(Storage.open(str(moved)), "two/a", "f1", work)
    assert work.calls == 0
    assert (stage.folder / "piece").read_bytes() == b"1"


def test_index_that_points_to_a_deleted_folder_is_ignored(root):
    run(root, "one/a", "f1", Work()).folder.delete()
    work = Work()
    assert run(root, "two/a", "f1", work).folder.relative == "two/a"
    assert work.calls == 1


def test_index_that_points_to_a_folder_made_again_is_ignored(root):
    run(root, "one/a", "f1", Work())
    (root / "one" / "a").delete()
    run(root, "one/a", "f2", Work())
    work = Work()
    assert run(root, "two/a", "f1", work).folder.relative == "two/a"
    assert work.calls == 1


def test_claim_keeps_the_pieces_of_its_own_fingerprint_only(root):
    folder = root / "a"
    claim(folder, "test", "f1")
    (folder / "piece").write_bytes(b"1")
    claim(folder, "test", "f1")
    assert (folder / "piece").exists()
    claim(folder, "test", "f2")
    assert not (folder / "piece").exists()


def two_pieces(stage: Stage) -> dict:
    """Makes what is missing, as annotating does, and says what it made."""
    made = [name for name in ("a.parquet", "b.parquet") if not (stage.folder / name).exists()]
    for name in made:
        write_parquet(stage.folder / name, pa.table({"n": [1, 2, 3]}), [3])
    return {"made": made}


def again(root: Storage, work=two_pieces, piecewise: bool = True) -> Stage:
    look_again()  # as in another process
    return run_stage(root, root / "a", "test", "f1", work, piecewise)


def cut_off(file: Storage) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def flip(file: Storage) -> None:
    """Flip a bit where the size stays, and let a reader find it."""
    content = file.read_bytes()
    file.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    with pytest.raises(DamagedFile):
        open_parquet(file).read()


@pytest.mark.parametrize("harm", [cut_off, flip, Storage.delete], ids=["cut off", "flipped", "deleted"])
def test_a_damaged_piece_of_a_finished_stage_is_named_and_made_again_alone(root, capsys, harm):
    run_stage(root, root / "a", "test", "f1", two_pieces, piecewise=True)
    whole = {name: (root / "a" / name).read_bytes() for name in ("a.parquet", "b.parquet")}
    kept = (root / "a").files()["a.parquet"].mtime
    harm(root / "a" / "b.parquet")
    look_again()
    assert find_stage(root, root / "a", "f1") is None
    stage = again(root)
    assert (stage.summary or {})["made"] == ["b.parquet"]
    assert {name: (root / "a" / name).read_bytes() for name in whole} == whole
    assert (root / "a").files()["a.parquet"].mtime == kept
    assert not [name for name in (root / "a").files() if name.endswith(".damaged")]
    said = capsys.readouterr().out
    assert f"test: {root / 'a' / 'b.parquet'} is damaged (" in said
    assert said.count("\n") == 1
    assert again(root, lambda _: pytest.fail("made again")).summary == stage.summary


def test_a_damaged_stage_that_is_not_made_in_pieces_is_begun_anew(root):
    run(root, "a", "f1", two_pieces)
    cut_off(root / "a" / "b.parquet")
    assert (again(root, piecewise=False).summary or {})["made"] == ["a.parquet", "b.parquet"]


def test_a_damaged_stage_of_another_run_is_made_again_where_it_is(root):
    run(root, "one/a", "f1", two_pieces)
    cut_off(root / "one" / "a" / "b.parquet")
    look_again()
    stage = run_stage(root, root / "two" / "a", "test", "f1", two_pieces, piecewise=True)
    assert stage.folder.relative == "one/a"
    assert (stage.summary or {})["made"] == ["b.parquet"]


def test_no_flipped_byte_of_a_commit_gives_another_summary(root, capsys):
    def work(_: Stage) -> dict:
        return {"pieces": 1, "recall": 0.25}

    done = run(root, "a", "f1", work)
    file = root / "a" / "stage.json"
    good = file.read_bytes()
    for place in range(0, len(good), 7):
        file.write_bytes(good[:place] + bytes([good[place] ^ 0x11]) + good[place + 1 :])
        found = again(root, work).summary or {}
        assert {**found, "seconds": 0} == {**(done.summary or {}), "seconds": 0}, place
        file.write_bytes(good)
    assert "stage.json is damaged" in capsys.readouterr().out


def test_pieces_of_a_stage_whose_commit_is_damaged_stay(root):
    run(root, "a", "f1", two_pieces)
    cut_off(root / "a" / "stage.json")
    (root / "a" / "stage.json").write_bytes(b"{")
    assert (again(root, piecewise=False).summary or {})["made"] == []


def test_a_marked_piece_of_an_unfinished_stage_is_made_again(root, capsys):
    def crash(stage: Stage) -> dict:
        two_pieces(stage)
        flip(stage.folder / "b.parquet")
        raise Crash

    with pytest.raises(Crash):
        run(root, "a", "f1", crash)
    assert (again(root).summary or {})["made"] == ["b.parquet"]
    assert "b.parquet is damaged (its content" in capsys.readouterr().out


class Killed:
    """Ends the process, as it were, instead of one of its writes and removals; of a folder some files stay."""

    def __init__(self, monkeypatch, after: int, stay: tuple[str, ...]) -> None:
        self.left, self.stay = after, stay
        for kind in ("write_bytes", "delete"):
            monkeypatch.setattr(Storage, kind, self.instead_of(getattr(Storage, kind)))

    def instead_of(self, real):
        def step(storage: Storage, *given) -> None:
            self.left -= 1
            if self.left == 0:
                for file in Path(storage.path).iterdir() if Path(storage.path).is_dir() else ():
                    if file.name not in self.stay:
                        file.unlink()
                raise Crash
            real(storage, *given)

        return step


@pytest.mark.parametrize("piecewise", [True, False])
@pytest.mark.parametrize("harm", [cut_off, flip], ids=["cut off", "flipped"])
def test_killed_anywhere_while_damage_is_removed_nothing_damaged_is_taken_for_whole(root, monkeypatch, harm, piecewise):
    steps, ended = 0, False
    while not ended:
        steps += 1
        storage = root / str(steps)
        made = run_stage(storage, storage / "a", "test", "f1", two_pieces, piecewise)
        whole = {name: (made.folder / name).read_bytes() for name in ("a.parquet", "b.parquet")}
        harm(made.folder / "b.parquet")
        with monkeypatch.context() as patch:
            killed = Killed(patch, steps, ("started.json", "b.parquet"))
            with contextlib.suppress(Crash):
                again(storage, piecewise=piecewise)
            ended = killed.left > 0
        stage = again(storage, piecewise=piecewise)
        assert {name: (stage.folder / name).read_bytes() for name in whole} == whole, f"killed at step {steps}"
    assert steps > 4


def test_what_was_lost_since_this_process_looked_is_seen_by_who_asks_for_a_whole_stage(root):
    run(root, "a", "f1", two_pieces)
    run(root, "a", "f1", two_pieces)
    assert read_whole_stage(root / "a").fingerprint == "f1"
    (root / "a" / "b.parquet").delete()
    assert read_stage(root / "a").fingerprint == "f1"
    with pytest.raises(DamagedFile, match=r"b\.parquet is damaged \(it is missing\)$"):
        read_whole_stage(root / "a")


def test_a_damaged_index_is_as_none(root):
    run(root, "a", "f1", Work())
    (root / "stages" / "f1.json").write_bytes(b'{"folder": ')
    assert run(root, "a", "f1", lambda _: pytest.fail("made again")).summary
    work = Work()
    assert run(root, "b", "f1", work).folder.relative == "b"
    assert (root / "stages" / "f1.json").read_json()["folder"] == "b"


def test_a_stage_of_a_version_without_checksums_is_found(root):
    run(root, "a", "f1", Work())
    (root / "a" / "stage.json").write_json({"kind": "test", "fingerprint": "f1", "summary": {"seconds": 1.0}})
    assert again(root, lambda _: pytest.fail("made again")).seconds == 1.0


def test_finished_files_are_listed_once_a_process(root, monkeypatch):
    run(root, "a", "f1", Work())
    look_again()
    listed = []
    files = Storage.files
    monkeypatch.setattr(Storage, "files", lambda self: listed.append(self.relative) or files(self))
    for _ in range(3):
        run(root, "a", "f1", lambda _: pytest.fail("made again"))
    assert listed == ["a"]
