"""The error behind Ray's errors, whether Ray kept it or only its text."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path

import pytest
from ray.exceptions import ObjectStoreFullError, OutOfDiskError, RayActorError, RayTaskError, UserCodeException
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback
from ray.train.v2.api.exceptions import ControllerError

from infocse_ray.commands.job import run_job
from infocse_ray.errors import (
    ConstantVectors,
    LeaseLost,
    NoSpace,
    OutOfMemory,
    RunInUse,
    SourceChanged,
    StorageUnavailable,
    TrainingStopped,
    UnreadableFile,
    WorkersLost,
)
from infocse_ray.runtime.failures import cause_of, caused_by, not_shared, one_line, storage_failure, told_plainly
from infocse_ray.settings import Section

TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 1, in f
    raise {kind}: not this one
FileNotFoundError: [Errno 2] No such file or directory: 'b'

The above exception was the direct cause of the following exception:

ray::f() (pid=1, ip=192.0.2.1)
  File "a.py", line 2, in f
{kind}: {message}

The above exception was the direct cause of the following exception:

ray::f() (pid=1, ip=192.0.2.1)
ray.exceptions.UserCodeException: UDF failed to process a data block.
To change retry attempts, see `ray.data.DataContext.get_current()`."""


def task_error(cause: Exception, text: str = "") -> RayTaskError:
    """What `ray.get` raises when a task raised `cause`."""
    error = RayTaskError("f", text or f"ray::f()\n{type(cause).__name__}: {cause}", cause, "ray", 1, "192.0.2.1")
    return error.as_instanceof_cause()


def only_text(kind: str, message: str) -> RayTaskError:
    """What Ray Data raises when a call in an actor failed: the cause itself is lost."""
    return task_error(UserCodeException("UDF failed"), TRACEBACK.format(kind=kind, message=message))


def test_the_cause_of_a_task_is_what_it_raised() -> None:
    cause = NoSpace("/a: no space left")
    assert cause_of(task_error(cause)) is cause
    assert cause_of(task_error(task_error(cause))) is cause
    assert one_line(task_error(cause)) == "/a: no space left"


def test_the_cause_of_failed_workers_is_what_one_of_them_raised() -> None:
    cause = KeyError("x")
    for failure in (cause, UserExceptionWithTraceback(cause, "Traceback\nKeyError: 'x'"), task_error(cause)):
        assert cause_of(WorkerGroupError("Traceback ...", {1: failure})) is cause
        assert one_line(WorkerGroupError("Traceback ...", {1: failure})) == "KeyError: 'x'"
    assert cause_of(ControllerError(cause)) is cause


def test_an_error_that_says_what_caused_it_is_not_looked_behind() -> None:
    error = ValueError("train.k = 0: raise it")
    error.__cause__ = OSError("a detail")
    assert cause_of(error) is error
    assert cause_of(task_error(error)) is error
    assert one_line(error) == "train.k = 0: raise it"


def test_text_stands_in_for_a_cause_that_is_lost() -> None:
    assert cause_of(only_text("infocse_ray.x.Odd", "what happened")) == "infocse_ray.x.Odd: what happened"
    assert cause_of(WorkerGroupError("Traceback\n  File\nRuntimeError: boom\n", {})) == "RuntimeError: boom"
    died = RayActorError(error_msg="The actor died.\n\tclass_name: D\nIts node is gone.")
    assert one_line(died) == "Its node is gone."
    advised = RayActorError(error_msg="The actor is dead. Some common causes include: (1) the process was killed.")
    assert one_line(advised) == "The actor is dead."


def test_the_kind_is_named_where_the_message_alone_says_little() -> None:
    assert one_line(KeyError("x")) == "KeyError: 'x'"
    assert one_line(RuntimeError("first\nsecond")) == "RuntimeError: first"
    assert one_line(RuntimeError()) == "RuntimeError"
    assert one_line(ValueError()) == "ValueError"


def test_an_error_of_a_kind_is_found_however_deep() -> None:
    unreadable = UnreadableFile("corpus.source: a: can't be read: bad\nmagic")
    named = "corpus.source: a: can't be read: bad"
    for error in (
        unreadable,
        task_error(unreadable),
        WorkerGroupError("text", {0: OSError("other"), 1: unreadable}),
        only_text("infocse_ray.corpus.read.UnreadableFile", named),
    ):
        found = caused_by(error, UnreadableFile)
        assert type(found) is UnreadableFile
        assert str(found) == named
    outer = RuntimeError("outer")
    outer.__cause__ = task_error(unreadable)
    assert str(caused_by(outer, UnreadableFile)) == named
    assert caused_by(task_error(ValueError("b")), UnreadableFile) is None


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (task_error(ConstantVectors("encoder.whiten: all the same")), ConstantVectors, "encoder.whiten: all the same"),
        (task_error(NoSpace("/a: no space left")), NoSpace, "/a: no space left"),
        (only_text("infocse_ray.storage.errors.NoSpace", "/a: no space left"), NoSpace, "/a: no space left"),
        (
            task_error(PermissionError(13, "Permission denied", "/a")),
            ValueError,
            "Permission denied: '/a'; let the user",
        ),
        (task_error(OutOfMemory("out of GPU memory: lower b")), OutOfMemory, "out of GPU memory: lower b"),
        (only_text("infocse_ray.errors.OutOfMemory", "out of GPU memory: a"), OutOfMemory, "out of GPU memory: a"),
        (RayActorError(error_msg="Its node is gone."), WorkersLost, "Its node is gone; what is finished is kept"),
    ],
)
def test_python_is_told_what_was_raised_elsewhere_in_a_line(error: Exception, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as told, told_plainly():
        raise error
    assert type(told.value) is kind
    assert said in str(told.value)
    assert "\n" not in str(told.value)
    assert told.value.__cause__ is error


def test_what_is_plain_is_raised_as_it_is() -> None:
    plain = NoSpace("/a: no space left")
    plain.__cause__ = task_error(OSError("other"))
    for error in (plain, ValueError("a"), PermissionError("b"), task_error(KeyError("of one's own"))):
        with pytest.raises(type(error)) as told, told_plainly():
            raise error
        assert told.value is error


def test_an_error_that_causes_itself_is_looked_at_once() -> None:
    error = RuntimeError("a")
    error.__cause__ = error
    assert caused_by(error, NoSpace) is None
    assert cause_of(error) is error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (task_error(NoSpace("/a: no space left")), NoSpace),
        (only_text("infocse_ray.storage.errors.NoSpace", "/a: no space left"), NoSpace),
        (ControllerError(OSError(errno.ENOSPC, "No space left on device", "/a")), NoSpace),
        (only_text("OSError", "[Errno 122] Error writing bytes to file. Disk quota exceeded"), NoSpace),
        (task_error(OSError("When ...: AWS Error SLOW_DOWN during PutObject operation: wait")), StorageUnavailable),
    ],
)
def test_failures_of_storage_are_told_from_others(error: Exception, kind: type[Exception]) -> None:
    assert type(storage_failure(error, "/a")) is kind
    assert str(storage_failure(error, "/a")).startswith("/a: ")


@pytest.mark.parametrize("kind", [OutOfDiskError, ObjectStoreFullError])
def test_a_full_object_store_of_rays_is_a_line(kind: type[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    errors = [kind("f"), task_error(kind("f")), RayTaskError("f", f"ray.exceptions.{kind.__name__}: f", ValueError())]
    for error in errors:
        status, said = outcome(error, capsys)
        assert status == 1
        assert said.startswith("job.py: error: Ray's ")
        assert said.endswith("then the same command goes on\n")
        assert len(said.splitlines()) == 1


def test_other_errors_are_no_failures_of_storage() -> None:
    for error in (FileNotFoundError("/a"), task_error(KeyError("x")), PermissionError(errno.EACCES, "denied")):
        assert storage_failure(error) is None


def test_they_survive_being_sent() -> None:
    for error in (NoSpace("a"), StorageUnavailable("b")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))


class Nothing(Section):
    pass


def outcome(error: Exception, capsys: pytest.CaptureFixture[str], **how: str) -> tuple[object, str]:
    def work(_: Nothing) -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        run_job(Nothing, [], "job.py", "", work, **how)  # pyright: ignore[reportArgumentType]
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied", "/shared/stages/a.lease"),
        task_error(PermissionError(errno.EACCES, "Permission denied", "/shared/stages/a"), TRACEBACK),
        only_text("OSError", "When writing '/shared/stages/a': AWS Error ACCESS_DENIED during PutObject operation: no"),
        # As S3 answers a HEAD with credentials that have expired.
        OSError("When reading '/shared/stages/a': AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No"),
    ],
    ids=["driver", "task", "text", "expired"],
)
def test_storage_that_lets_nobody_in_is_no_traceback(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFOCSE_TRACEBACK", raising=False)
    status, said = outcome(error, capsys)
    assert (status, said.count("\n")) == (2, 1)
    assert "/shared/stages/a" in said
    assert (
        "; let the user, or the role, of this process and of all nodes read and write there (are its credentials"
        in said
    )
    assert outcome(PermissionError("/tmp/a: others may write there; remove it"), capsys) == (
        2,
        "job.py: error: /tmp/a: others may write there; remove it\n",
    )


def test_a_file_that_only_a_worker_does_not_find_is_one_that_its_node_has_not_mounted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFOCSE_TRACEBACK", raising=False)
    (file := tmp_path / "shard-0.parquet").write_bytes(b"")
    cause = FileNotFoundError(
        f"[Errno 2] Failed to open local file '{file}'. Detail: [errno 2] No such file or directory"
    )
    line = f"storage: a worker doesn't find {file}, which this process does; mount one folder under this path"
    for error in (task_error(cause), WorkerGroupError("Traceback ...", {0: cause})):
        assert one_line(error).startswith(line)
        status, said = outcome(error, capsys)
        assert (status, said.count("\n")) == (2, 1)
        assert line in said
    assert not_shared(cause) is None, "this process's own"
    file.unlink()
    assert not_shared(task_error(cause)) is None


def test_a_job_says_in_one_line_what_a_worker_ran_into(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFOCSE_TRACEBACK", raising=False)
    full = task_error(NoSpace("/a: no space left: 5 bytes to write"), TRACEBACK)
    assert outcome(full, capsys) == (1, "job.py: error: /a: no space left: 5 bytes to write\n")
    mistake = task_error(ValueError("corpus.source: a: no such file"), TRACEBACK)
    assert outcome(mistake, capsys) == (2, "job.py: error: corpus.source: a: no such file\n")
    died = RayActorError(error_msg="The actor died.")
    line = "job.py: error: The actor died; what is finished is kept, and the same command goes on\n"
    assert outcome(died, capsys) == (1, line)
    again = "the same command with --storage /a"
    assert outcome(died, capsys, again=again) == (1, line.replace("the same command", again))
    full = NoSpace("/a: no space left; make room, then the same command goes on")
    assert outcome(full, capsys, again=again) == (
        1,
        f"job.py: error: /a: no space left; make room, then {again} goes on\n",
    )
    lost = WorkersLost("training: the workers failed: it died; the same command goes on")
    assert outcome(lost, capsys, again=again)[0] == 1
    assert outcome(RunInUse("name = 'a': another driver is at work on it"), capsys)[0] == 1, "later it may go well"
    assert outcome(LeaseLost("name = 'a': taken"), capsys)[0] == 1
    assert outcome(SourceChanged("corpus.source: a.jsonl changed while the corpus was read"), capsys)[0] == 1
    assert outcome(TrainingStopped("training: the loss is not finite"), capsys)[0] == 2
    line = "job.py: error: out of GPU memory: one text of 9 tokens; lower max_length\n"
    for kind in (
        task_error,
        lambda error: error,
        lambda error: only_text("infocse_ray.errors.OutOfMemory", str(error)),
    ):
        assert outcome(kind(OutOfMemory("out of GPU memory: one text of 9 tokens; lower max_length")), capsys) == (
            2,
            line,
        )
    with pytest.raises(KeyError, match="a bug"):
        run_job(Nothing, [], "job.py", "", lambda _: {}["a bug"])
