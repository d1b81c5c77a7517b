"""What every command does around its work: settings from the command line, errors in one line.

Torch and Ray take seconds to load, so nothing here or in a command's file imports them before the settings are read:
a command's work is a function that imports what it needs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from infocse_ray import __version__
from infocse_ray.errors import (
    Interrupted,
    LeaseLost,
    NoSpace,
    OutOfMemory,
    RunInUse,
    SourceChanged,
    StorageUnavailable,
    TrainingStopped,
    WorkersLost,
)
from infocse_ray.settings.command_line import Model, given_by_user, parse
from infocse_ray.settings.explain import named_here
from infocse_ray.settings.unread import Unread, given_for_nothing
from infocse_ray.storage.redact import redact_tracebacks, redacted

Result = TypeVar("Result")

_AGAIN = "the same command"
"""What errors call what goes on from there."""


def run_job(
    model: type[Model],
    argv: Sequence[str] | None,
    prog: str,
    description: str,
    work: Callable[[Model], Result],
    essentials: Sequence[str] = (),
    unnamed: str | None = None,
    again: str = _AGAIN,
    unread: Callable[[Model], Unread] | None = None,
) -> Result:
    """Read settings, do the work; a user's mistake ends the job with status 2 and one line that says the fix.

    A full disk, storage out of reach, a process that was lost too often, or another driver at work on the same, ends it
    with such a line and status 1: the same command may go well later.
    SIGTERM and Ctrl-C end it at a checkpoint, with a line that says how to go on and 128 + the signal's number.

    Args:
        model: the settings that the command takes.
        argv: its arguments, without the program's name; None for those of the process.
        prog: its name.
        description: for `--help`.
        work: gets the settings. What it had finished stays finished whatever it raises.
        essentials: the settings that the short help has.
        unnamed: the setting that an argument without a name is (several, of a list).
        again: what goes on from there after it was stopped, or failed.
        unread: says what of these settings it takes and doesn't read. Whoever gives that, and not as the default is, is
            told.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # Ray's tasks are the parallelism
    redact_tracebacks()
    settings = parse(model, argv, prog, description, essentials, unnamed)
    if not {"torch", "ray"} <= sys.modules.keys():
        print(f"infocse {__version__}: loading torch and Ray ...", file=sys.stderr, flush=True)
    from infocse_ray.runtime.failures import (
        cause_of,
        caused_by,
        not_shared,
        one_line,
        process_lost,
        refused,
        storage_failure,
    )
    from infocse_ray.runtime.interrupts import listening, lost_in
    from infocse_ray.runtime.libraries import quiet_libraries
    from infocse_ray.runtime.progress import say

    quiet_libraries()
    if unread is not None:
        for line in given_for_nothing(settings, given_by_user(model, argv), prog, unread(settings)):
            say(f"warning: {line}")
    with listening():
        try:
            return work(settings)
        except (ValueError, TrainingStopped, LeaseLost) as error:
            if os.environ.get("INFOCSE_TRACEBACK"):
                raise
            line = named_here(redacted(str(cause_of(error))), model)
            print(f"{prog}: error: {line.replace(_AGAIN, again)}", file=sys.stderr)
            raise SystemExit(_status(error)) from None
        except Interrupted as stopped:
            _end_stopped(prog, stopped, again)
        except Exception as error:
            if (stopped := lost_in(error)) is not None:
                _end_stopped(prog, stopped, again)
            failure, status = storage_failure(error), 1
            if failure is None and (failure := refused(error) or not_shared(error)) is not None:
                status = 2
            elif failure is None and (full := caused_by(error, OutOfMemory)) is not None:
                failure, status = named_here(str(full), model), 2
            elif failure is None and process_lost(error):
                failure = f"{one_line(error).rstrip('.')}; what is finished is kept, and {_AGAIN} goes on"
            if failure is None or os.environ.get("INFOCSE_TRACEBACK"):
                raise
            print(f"{prog}: error: {redacted(str(failure)).replace(_AGAIN, again)}", file=sys.stderr)
            raise SystemExit(status) from None


def _status(error: Exception) -> int:
    """1 for what may go well later with the same command, 2 for what must be changed first."""
    return 1 if isinstance(error, (RunInUse, LeaseLost, SourceChanged, WorkersLost, OSError)) else 2


def _end_stopped(prog: str, stopped: Interrupted, again: str) -> NoReturn:
    from infocse_ray.runtime.interrupts import end

    print(f"{prog}: {stopped}; what is finished is kept; {again} resumes", file=sys.stderr)
    end(stopped)


def run_at_once(
    model: type[Model],
    argv: Sequence[str] | None,
    prog: str,
    description: str,
    work: Callable[[Model], Result],
    essentials: Sequence[str] = (),
    unnamed: str | None = None,
) -> Result:
    """As `run_job`, for work that needs neither torch nor Ray: what ends it ends it at once."""
    redact_tracebacks()
    settings = parse(model, argv, prog, description, essentials, unnamed)
    try:
        return work(settings)
    except (ValueError, OSError) as error:
        if os.environ.get("INFOCSE_TRACEBACK"):
            raise
        from infocse_ray.runtime.failures import refused

        said_already = isinstance(error, (ValueError, NoSpace, StorageUnavailable))
        not_let_in = None if said_already else refused(error)
        print(f"{prog}: error: {redacted(not_let_in or str(error))}", file=sys.stderr)
        raise SystemExit(2 if not_let_in else _status(error)) from None
