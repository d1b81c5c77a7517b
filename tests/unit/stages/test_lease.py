"""Leases with real processes, which are killed or stopped, and with holders of other machines, which can't be asked."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.errors import LeaseLost, RunInUse
from infocse_ray.stages import lease as lease_module
from infocse_ray.stages.lease import Holder, Lease
from infocse_ray.stages.stage import Stage, making, run_stage
from infocse_ray.storage.folder import Storage

HOLDS = """
import sys, time
from infocse_ray.stages.lease import Lease
from infocse_ray.storage.folder import Storage
lease = Lease(Storage.open(sys.argv[1]) / "driver.lease", "run", expiry=30.0, every=0.05)
lease.take()
print("taken", flush=True)
time.sleep(60)
"""

MAKES = """
import sys, time
from infocse_ray.stages.stage import run_stage
from infocse_ray.storage.folder import Storage
root = Storage.open(sys.argv[1])
def work(stage):
    print("taken", flush=True)
    time.sleep(float(sys.argv[2]))
    (stage.folder / "piece").write_bytes(b"first")
    return {"by": "first"}
run_stage(root, root / "one" / "a", "annotate", "f1", work)
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process that says when it has its lease; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(code: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, str(tmp_path), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "taken":
                break
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(params=["local", "memory"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    root = str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}"
    return Storage.open(root) / "run" / "driver.lease"


def lease_on(file: Storage, expiry: float = 0.5, every: float = 0.05) -> Lease:
    return Lease(file, "name = 'news'", expiry, every, settle=0.05)


def of_another_machine(file: Storage, count: int = 0, expiry: float = 0.5) -> bytes:
    """Write the lease of a driver that can't be asked whether it runs."""
    elsewhere = dataclasses.replace(Holder.here(expiry), host="node-7", pid=41, token="theirs")
    content = json.dumps(dataclasses.asdict(elsewhere) | {"renewed": count}).encode()
    file.write_bytes(content)
    return content


def test_a_second_driver_refuses_at_once_naming_the_first_and_may_once_that_is_killed(start, tmp_path):
    first = start(HOLDS)
    second = lease_on(Storage.open(str(tmp_path)) / "driver.lease")
    with pytest.raises(RunInUse) as refusal:
        second.take()
    said = str(refusal.value)
    assert "\n" not in said
    assert f"pid {first.pid}, since 20" in said
    assert f"host {os.uname().nodename}" in said
    assert "expires 30 s after it ends" in said
    first.kill()
    first.wait()
    with lease_on(Storage.open(str(tmp_path)) / "driver.lease") as third:
        begun = time.monotonic()
        assert third.take()
        third.check()
        # The dead driver's lease would have lasted 30 s.
        assert time.monotonic() - begun < 15


def test_a_killed_process_that_nobody_has_waited_for_is_gone(start, tmp_path):
    first = start(HOLDS)
    os.kill(first.pid, signal.SIGKILL)
    while Path(f"/proc/{first.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    with lease_on(Storage.open(str(tmp_path)) / "driver.lease") as second:
        assert second.take()


def test_a_pid_that_another_process_has_now_is_not_the_holder(file):
    gone = dataclasses.replace(Holder.here(600.0), begun="1")
    file.write_bytes(json.dumps(dataclasses.asdict(gone)).encode())
    with lease_on(file) as lease:
        assert lease.take()


def test_the_same_process_cannot_take_it_twice(file):
    with lease_on(file) as first:
        first.take()
        with pytest.raises(RunInUse, match=f"pid {os.getpid()}"):
            lease_on(file).take()
    with lease_on(file) as again:
        assert again.take()


def test_a_driver_of_another_machine_is_dead_after_the_expiry_without_a_change(file, capsys):
    of_another_machine(file)
    file_time = time.monotonic()
    with lease_on(file) as lease:
        assert lease.take()
        assert time.monotonic() - file_time >= 0.5
        lease.check()
    said = capsys.readouterr().out
    assert "checking for at most" in said
    assert "the driver that had it is gone (host node-7, pid 41" in said


def test_a_driver_of_another_machine_that_renews_its_lease_is_refused_to(file):
    of_another_machine(file)
    renewal = threading.Timer(0.2, of_another_machine, (file, 1))
    renewal.start()
    with pytest.raises(RunInUse, match="host node-7, pid 41"):
        lease_on(file).take()
    renewal.join()


class Clock:
    """Time that passes where a lease sleeps, and does what is to be done by then."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, until: float = 110.0, meanwhile: Callable[[float], object] = float
    ) -> None:
        self.now, self._until, self._meanwhile = 100.0, until, meanwhile
        monkeypatch.setattr(lease_module, "monotonic", lambda: self.now)
        monkeypatch.setattr(lease_module, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < self._until, "it waits for ever"
        self._meanwhile(self.now - 100.0)


def test_who_waits_for_a_driver_of_another_machine_takes_nothing_while_that_renews_its_lease(file, monkeypatch):
    of_another_machine(file)
    clock = Clock(monkeypatch, meanwhile=lambda passed: of_another_machine(file, int(passed / 0.3)))
    assert not lease_on(file).take(done=lambda: clock.now > 103.0), "its lease expires after half a second"


def test_a_driver_of_another_machine_is_waited_for_as_long_as_its_own_lease_lasts(file, monkeypatch):
    of_another_machine(file, expiry=60.0)
    clock = Clock(monkeypatch, until=300.0)
    assert not lease_on(file, expiry=0.5).take(done=lambda: clock.now > 150.0)
    with lease_on(file, expiry=0.5) as lease:
        assert lease.take(done=lambda: clock.now > 250.0)


def test_that_a_driver_is_waited_for_is_said_again_every_ten_minutes(file, monkeypatch, capsys):
    of_another_machine(file)
    clock = Clock(monkeypatch, until=2_000.0, meanwhile=lambda passed: of_another_machine(file, int(passed / 0.3)))
    assert not lease_on(file).take(done=lambda: clock.now > 1_350.0)
    assert capsys.readouterr().out.count("waiting until it is done") == 3


def test_a_renewal_lasts_from_when_it_began(file, monkeypatch):
    with lease_on(file, expiry=30.0, every=600.0) as lease:
        lease.take()
        clock = Clock(monkeypatch)
        write = Storage.write_bytes

        def slow(self: Storage, *given: Any) -> None:
            write(self, *given)
            clock.now += 20.0
            lease._stop.set()

        monkeypatch.setattr(Storage, "write_bytes", slow)
        lease._every = 0.0
        lease._renew()
        assert lease._renewed == 100.0, "others may have seen it change then"


def test_a_forked_process_gives_up_nothing(file):
    with lease_on(file) as lease:
        lease.take()
        me, lease._me = lease._me, dataclasses.replace(lease._me, pid=os.getpid() + 1)
        lease.give_up()
        lease._me = me
        lease.check()
        assert file.exists(), "of the process that was forked it is still"


def test_what_a_holder_was_killed_while_writing_expires_too(file):
    file.write_bytes(b'{"token": "th')
    with lease_on(file) as lease:
        assert lease.take()


def test_it_is_renewed_for_as_long_as_it_is_held_and_gone_after_that(file):
    with lease_on(file) as lease:
        lease.take()
        first = file.read_bytes()
        while file.read_bytes() == first:
            time.sleep(0.01)
        lease.check()
    assert not file.exists()


def test_a_holder_that_finds_it_taken_stops_and_leaves_it_to_the_taker(file):
    with lease_on(file) as lease:
        lease.take()
        theirs = of_another_machine(file)
        time.sleep(0.3)
        assert file.read_bytes() == theirs, "renewed over the taker's"
        with pytest.raises(LeaseLost, match=r"name = 'news': .*taken by another driver \(host node-7, pid 41"):
            lease.check()
    assert file.read_bytes() == theirs, "given up for the taker"


def test_of_two_that_write_at_once_the_one_that_reads_the_others_token_has_not_got_it(file):
    content = of_another_machine(file)
    lease, other = lease_on(file), lease_on(file)
    lease._settle = 0.4
    late = threading.Timer(0.1, lambda: file.write_bytes(other._content()))
    late.start()
    assert not lease._replace(content)
    late.join()
    assert not lease._replace(content), "it isn't the dead driver's any more"


def test_a_holder_that_cannot_renew_it_for_longer_than_the_expiry_has_lost_it(file, monkeypatch):
    with lease_on(file) as lease:
        lease.take()

        def fails(self: Storage, *_: object) -> bytes:
            raise OSError("503 Slow Down")

        with monkeypatch.context() as broken:
            broken.setattr(Storage, "write_bytes", fails)
            broken.setattr(Storage, "read_bytes", fails)
            lease.check()  # nobody can have taken it yet
            while not lease._lost:
                time.sleep(0.02)
            with pytest.raises(LeaseLost, match=r"couldn't be renewed for .* \(503 Slow Down\)"):
                lease.check()
        with pytest.raises(LeaseLost):  # whatever storage says now
            lease.check()


def test_a_holder_that_reads_its_own_renewal_half_written_keeps_it(file, monkeypatch):
    with lease_on(file, expiry=60.0, every=60.0) as lease:
        lease.take()
        whole = file.read_bytes()
        monkeypatch.setattr("infocse_ray.stages.lease._HALF_SECONDS", 0.0)
        read = iter([b"", whole[:40], whole])
        monkeypatch.setattr(lease, "_read", lambda: next(read))
        lease.check()
        monkeypatch.setattr(lease, "_read", lambda: b"{")
        with pytest.raises(LeaseLost, match="taken by another driver \\(unknown\\)"):
            lease.check()


def test_giving_up_never_hides_the_error_that_ended_the_work(file, monkeypatch):
    def fails(_: Storage) -> None:
        raise OSError("storage is gone")

    def work() -> None:
        with lease_on(file) as lease:
            lease.take()
            monkeypatch.setattr(Storage, "delete", fails)
            raise RuntimeError("the real one")

    with pytest.raises(RuntimeError, match="the real one"):
        work()


def test_a_stage_that_another_driver_is_making_is_waited_for_and_taken(start, tmp_path, capsys):
    first = start(MAKES, "1.5")
    root = Storage.open(str(tmp_path))
    stage = run_stage(root, root / "two" / "a", "annotate", "f1", lambda _: pytest.fail("made twice"))
    assert stage.folder.relative == "one/a"
    assert (stage.summary or {})["by"] == "first"
    said = capsys.readouterr().out
    assert f"pid {first.pid}" in said
    assert said.count("\n") == 1
    assert "waiting until it is done" in said


def test_a_stage_whose_maker_is_killed_is_made_by_the_driver_that_waited(start, tmp_path):
    first = start(MAKES, "60")
    threading.Timer(0.3, first.kill).start()
    root = Storage.open(str(tmp_path))
    stage = run_stage(root, root / "two" / "a", "annotate", "f1", lambda _: {"by": "second"})
    assert (stage.summary or {})["by"] == "second"
    assert (root / "stages").files().keys() == {"f1.json"}, "the lease is given up"


def test_a_stage_that_was_finished_before_the_lease_was_there_is_made_by_nobody(tmp_path, monkeypatch):
    root = Storage.open(str(tmp_path))
    take = Lease.take

    def late(lease: Lease, done: Callable[[], bool] | None = None) -> bool:
        assert not done or not done()
        with monkeypatch.context() as patch:
            patch.setattr(Lease, "take", take)
            run_stage(root, root / "one" / "a", "annotate", "f1", lambda _: {"by": "another"})
        return take(lease, done)

    monkeypatch.setattr(Lease, "take", late)
    with making(root, root / "two" / "a", "annotate", "f1") as lease:
        assert lease is None


def test_a_stage_whose_lease_was_lost_is_not_committed(tmp_path):
    root = Storage.open(str(tmp_path))

    def work(stage: Stage) -> dict:
        of_another_machine(root / "stages" / "f1.lease")
        return {}

    with pytest.raises(LeaseLost, match="annotate: its lease was taken"):
        run_stage(root, root / "a", "annotate", "f1", work)
    assert not (root / "a" / "stage.json").exists()
    assert not (root / "stages" / "f1.json").exists()
