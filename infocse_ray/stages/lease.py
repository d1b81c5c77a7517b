"""A lease: of several drivers one at a time works on a run, or on a stage; one that died blocks nobody for long.

1. The holder's file says who it is; a thread renews it with a counter, as long as the process lives.
2. Whoever finds the file of another watches it: a change says that the holder lives, none over the whole expiry that
   it is dead. Clocks of two machines are never compared.
3. A holder on this machine whose process is gone is dead at once: a restart after `kill -9` doesn't wait.
4. A holder that finds its lease taken, or couldn't renew it for so long that it may have been, commits nothing more.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import secrets
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import BinaryIO

import pyarrow.fs as pafs

from infocse_ray.errors import LeaseLost, RunInUse
from infocse_ray.runtime.progress import say
from infocse_ray.storage.errors import explained
from infocse_ray.storage.folder import Storage


@dataclasses.dataclass(frozen=True)
class Holder:
    """The driver that holds a lease, as the lease's file names it."""

    token: str
    host: str
    machine: str | None
    """Names the boot and the process namespace in which `pid` means something; None where the system doesn't tell."""
    pid: int
    begun: str | None
    """When the process began, by its own machine's count: a pid is used again."""
    since: str
    """For people: by the holder's clock."""
    expiry: float
    """Seconds without a renewal after which it is dead."""

    @classmethod
    def here(cls, expiry: float) -> Holder:
        """This process."""
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        pid = os.getpid()
        return cls(secrets.token_hex(16), socket.gethostname(), _machine(), pid, _begun(pid), since, expiry)

    def runs(self) -> bool | None:
        """Whether the process is there; None where it can't be told, for it is of another machine."""
        if self.machine is None or (self.host, self.machine) != (socket.gethostname(), _machine()):
            return None
        return self.begun == _begun(self.pid)

    def __str__(self) -> str:
        return f"host {self.host}, pid {self.pid}, since {self.since}"


def driver_at(file: Storage, age: float) -> str | None:
    """Who may be at work by a lease's file, for people; None where it is sure to be nobody.

    Args:
        file: of the lease, which is there.
        age: seconds since it was last written, as far as that is known. A driver of another machine counts as gone
            once that is many times the expiry, for clocks of machines differ; whoever is to rely on it takes the lease.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    holder = _holder(content)
    runs = None if holder is None else holder.runs()
    if runs is None:
        runs = age < _SURELY * (60.0 if holder is None else holder.expiry)
    return str(holder or "unknown") if runs else None


_LOOKS_AT_HALF, _HALF_SECONDS = 10, 0.2
"""How often a holder reads its lease again that isn't readable, and after how long. Where files don't appear whole, as
over SFTP, it is mostly this driver's own renewal, half written."""
_AGAIN_SECONDS = 600.0
"""How often it is said that a driver is waited for."""
_SURELY = 10
"""Expiries without a sign after which a driver is gone by whatever clock."""


def _machine() -> str | None:
    """This boot of this machine, and the namespace of its processes: containers share the one, not the other."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _begun(pid: int) -> str | None:
    """The start of a process in clock ticks since the boot; None if it is gone."""
    try:
        # The second field, the name, may have blanks and brackets of its own.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Lease:
    """A lease on what its file stands for; `with lease:` gives it up at the end.

    On a local filesystem the file is created exclusively, so of any number of drivers one gets a lease that nobody
    has. Object stores have no such thing here: a driver writes its own token, waits `settle` seconds and reads it
    back. Of drivers that write within that time all but the last find another's token, so that one goes on, provided
    that a read sees the last write (S3, GCS and Azure say so) and that no write takes longer than `settle` to land. The
    same holds for taking a dead driver's lease, anywhere. If a write does take longer, two drivers go on for a
    while, until the next renewal or the next commit: whoever then reads another's token raises `LeaseLost` and has
    committed nothing since. What the two wrote till then is pieces of stages, which are the same whoever writes them.
    """

    def __init__(
        self, file: Storage, what: str, expiry: float = 60.0, every: float = 15.0, settle: float | None = None
    ) -> None:
        """Nothing is taken yet.

        Args:
            file: of the lease; not in a folder that is deleted in the meantime.
            what: it is of, for people; errors begin with it.
            expiry: seconds without renewal after which others may take it.
            every: seconds between renewals.
            settle: seconds after which a write is visible to all.
        """
        self.file, self.what, self.expiry, self._every = file, what, expiry, every
        self._local = isinstance(file.filesystem, pafs.LocalFileSystem)
        self._settle = settle if settle is not None else 0.3 if self._local else 2.0
        self._me, self._count = Holder.here(expiry), 0
        self._renewed, self._lost = monotonic(), ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease of {what}", daemon=True)

    def take(self, done: Callable[[], bool] | None = None) -> bool:
        """Take the lease.

        Args:
            done: while another has it, asked again and again whether it is still needed; None: don't wait for a holder
                that lives.

        Returns:
            Whether it was taken; False: `done()`.

        Raises:
            RunInUse: another driver has it, and `done` is None.
        """
        seen, changed, told = None, monotonic(), -math.inf
        while True:
            began = monotonic()
            if (content := self._read()) is None:
                if self._create():
                    break
                continue
            holder = _holder(content)
            runs = None if holder is None else holder.runs()
            expiry = self.expiry if holder is None else holder.expiry
            if done is None and (runs or (seen is not None and content != seen)):
                raise RunInUse(self._refusal(holder, expiry))
            if content != seen:
                seen, changed = content, began
            if runs is False or monotonic() - changed > expiry:
                if self._replace(content):
                    say(f"{self.what}: the driver that had it is gone ({holder or 'unknown'}); this one goes on")
                    break
                continue
            if done is not None and done():
                return False
            if monotonic() - told >= _AGAIN_SECONDS:
                told = monotonic()
                say(self._waiting(holder, expiry, done is None))
            sleep(min(2.0, expiry / 10))
        self._renewed = began
        self._thread.start()
        return True

    def _refusal(self, holder: Holder | None, expiry: float) -> str:
        return (
            f"{self.what}: another driver is at work on it ({holder or 'unknown'}); its lease (lock) expires "
            f"{expiry:.0f} s after it ends; wait for it, stop it, or work under another name"
        )

    def _waiting(self, holder: Holder | None, expiry: float, watching: bool) -> str:
        who = f"another driver has it ({holder or 'unknown'})"
        if watching:
            return f"{self.what}: {who}; checking for at most {expiry:.0f} s whether it is alive"
        return (
            f"{self.what}: {who}; waiting until it is done or its lease (lock) expires ({expiry:.0f} s without a sign "
            "of life)"
        )

    def check(self) -> None:
        """Go on only if this driver has the lease.

        Raises:
            LeaseLost: it doesn't, or that can't be said any more.
        """
        try:
            lost = self._lost or self._taken()
        except OSError as error:
            # What is to be committed meets the same storage; a lease that others can't have taken is kept.
            lost = self._too_long(error)
        if lost:
            self._lost = lost
            raise LeaseLost(f"{self.what}: {lost}; this driver stops and commits nothing more")

    def give_up(self) -> None:
        """Release the lease if this process holds it. Raises nothing: a lease that can't be released expires."""
        if os.getpid() != self._me.pid or not self._thread.is_alive():
            return
        self._stop.set()
        self._thread.join(timeout=10.0)
        try:
            if not self._taken():
                self.file.delete()
        except Exception:  # an error here would hide the one that ended the work
            pass

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_up()

    def _renew(self) -> None:
        while not self._stop.wait(self._every):
            began = monotonic()
            try:
                if not (lost := self._lost or self._taken()):
                    self._count += 1
                    self.file.write_bytes(self._content())
                    self._renewed = began
            except Exception as error:  # of storage, which may answer again before the lease expires
                lost = self._too_long(error)
            if lost:
                self._lost = lost
                break
        self._stop.wait()  # alive for as long as there is something to give up

    def _too_long(self, error: Exception) -> str:
        """Why the lease may be another's, after an error; empty if it can't."""
        if monotonic() - self._renewed <= self.expiry:
            return ""
        return f"its lease couldn't be renewed for {self.expiry:.0f} s ({error}), so another driver may have taken it"

    def _taken(self) -> str:
        """Why the lease isn't this driver's; empty if it is."""
        content = self._read()
        if content is None:
            return f"its lease, {self.file}, was removed"
        holder = _holder(content)
        for _ in range(_LOOKS_AT_HALF):
            if holder is not None:
                break
            sleep(_HALF_SECONDS)
            holder = _holder(self._read() or b"")
        if holder is not None and holder.token == self._me.token:
            return ""
        return f"its lease was taken by another driver ({holder or 'unknown'})"

    def _content(self) -> bytes:
        return json.dumps(dataclasses.asdict(self._me) | {"renewed": self._count}).encode()

    def _read(self) -> bytes | None:
        try:
            return self.file.read_bytes()
        except FileNotFoundError:
            return None

    def _create(self) -> bool:
        if not self._local:
            return self._write_and_look()
        path = Path(self.file.path)
        content = self._content()
        with explained(self.file, len(content)):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("xb") as stream:
                    _fill(path, stream, content)
            except FileExistsError:
                return False
        return True

    def _replace(self, content: bytes) -> bool:
        return self._read() == content and self._write_and_look()

    def _write_and_look(self) -> bool:
        self.file.write_bytes(self._content())
        sleep(self._settle)
        return not self._taken()


def _fill(path: Path, stream: BinaryIO, content: bytes) -> None:
    """Write a file that was just created, or remove it: an empty one would be taken for a driver's for minutes."""
    try:
        stream.write(content)
        stream.flush()
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _holder(content: bytes) -> Holder | None:
    """Who wrote it; None where it can't be read, as of one that is writing it now."""
    try:
        fields = json.loads(content)
        return Holder(**{field.name: fields[field.name] for field in dataclasses.fields(Holder)})
    except (ValueError, KeyError, TypeError):
        return None
