"""How commands end: of work that needs neither torch nor Ray, and with a traceback where it is asked for."""

from __future__ import annotations

import errno
from typing import NoReturn

import pytest

from infocse_ray.commands.job import run_at_once, run_job
from infocse_ray.errors import NoSpace, OutOfMemory, RunInUse, StorageUnavailable, WorkersLost
from infocse_ray.settings import Section


class Nothing(Section):
    """No settings."""


def failing(error: Exception):
    """Work that raises it."""

    def work(_: Section) -> NoReturn:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("storage = 's3://KEY:a-password@bucket': no such folder"), 2),
        (RunInUse("runs = 's3://KEY:a-password@bucket': a driver is at work on it"), 1),
        (StorageUnavailable("s3://KEY:a-password@bucket: out of reach"), 1),
        (NoSpace("s3://KEY:a-password@bucket: no space left"), 1),
        (OSError(errno.EIO, "Input/output error", "s3://KEY:a-password@bucket"), 1),
    ],
)
def test_work_of_a_moment_ends_in_a_line(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFOCSE_TRACEBACK", raising=False)
    with pytest.raises(SystemExit) as ended:
        run_at_once(Nothing, [], "infocse runs", "", failing(error))
    assert ended.value.code == status
    said = capsys.readouterr().err
    assert said == f"infocse runs: error: {str(error).replace('KEY:a-password', '***')}\n"


def test_storage_that_lets_nobody_in_is_to_be_changed_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFOCSE_TRACEBACK", raising=False)
    said = "When getting information for 'runs': AWS Error ACCESS_DENIED during HeadObject operation: No response body."
    with pytest.raises(SystemExit) as ended:
        run_at_once(Nothing, [], "infocse runs", "", failing(OSError(said)))
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(
        f"infocse runs: error: {said}; let the user, or the role, of this process"
    )


class OfAModel(Section):
    """Settings of a command that calls an encoder `model`."""

    model: str = "m"


@pytest.mark.parametrize("kind", [ValueError, OutOfMemory])
def test_settings_are_called_as_the_command_calls_them(
    kind: type[Exception], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFOCSE_TRACEBACK", raising=False)
    for model, name in ((OfAModel, "model"), (Nothing, "encoder.model")):
        with pytest.raises(SystemExit) as ended:
            run_job(model, [], "infocse x", "", failing(kind("encoder.model = 'm': too large; lower train.batch_size")))
        assert ended.value.code == 2
        line = f"infocse x: error: {name} = 'm': too large; lower train.batch_size\n"
        assert capsys.readouterr().err.endswith(line)


def test_what_goes_on_is_called_as_the_command_calls_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFOCSE_TRACEBACK", raising=False)
    lost, again = WorkersLost("the workers failed; the same command goes on"), "the same command with --storage /a"
    with pytest.raises(SystemExit):
        run_job(Nothing, [], "infocse demo", "", failing(lost), again=again)
    assert capsys.readouterr().err.endswith(f"infocse demo: error: the workers failed; {again} goes on\n")


@pytest.mark.parametrize("error", [ValueError("a"), NoSpace("b"), RunInUse("c")])
def test_a_traceback_is_there_where_it_is_asked_for(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFOCSE_TRACEBACK", "1")
    for run in (run_job, run_at_once):
        with pytest.raises(type(error)) as raised:
            run(Nothing, [], "infocse x", "", failing(error))
        assert raised.value is error
