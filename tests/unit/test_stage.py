from pathlib import Path

import pytest

from infocse_ray.stage import Stage, claim, find_stage, read_stage, run_stage
from infocse_ray.storage import Storage


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
    monkeypatch.setattr("infocse_ray.stage.time.monotonic", lambda: next(clock))

    def crash(_: Stage) -> dict:
        raise Crash

    with pytest.raises(Crash):
        run(root, "a", "f1", crash)
    assert run(root, "a", "f1", Work()).seconds == 42.0


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
