"""Every error a user can meet, by name.

A mistake in the settings, or in what they name, is a `ValueError` with one line: the setting, its value and the fix.
Of these, the ones a program may want to tell apart have a class here.
"""

from __future__ import annotations

import signal


class NoSpace(OSError):
    """The disk is full; the message names the path and how much was needed."""


class StorageUnavailable(OSError):
    """The object store failed for as long as it was tried, or a mounted folder is out of reach.

    The message names the path and the time, or what the file system said.
    """


class UnreadableFile(ValueError):
    """A whole file of the corpus can't be read; the message names it."""


class SourceChanged(ValueError):
    """A file of the corpus changed, or went, while it was read; it may go well later."""


class NoExamples(ValueError):
    """No document of the corpus gives an example to train on; the message says what all have."""


class NoSuchDocument(ValueError):
    """An index has no document of that id; the message names both."""


class IndexReplaced(ValueError):
    """Files of an index that is open are gone: another took its place, or it was removed; it is to be opened again."""


class DamagedFile(ValueError):
    """A file's content differs from what was written; the message names it."""


class RunInUse(ValueError):
    """Another driver (the process that leads a run) holds the lease, which is its lock; the message names it."""


class LeaseLost(RuntimeError):
    """Another driver took over this run's lease (its lock), or may have; this one commits nothing more."""


class ConstantVectors(ValueError):
    """All vectors are the same, so that there is nothing to whiten: the corpus repeats, or a training collapsed."""


class OutOfMemory(RuntimeError):
    """A worker ran out of memory; the message says what to lower."""


class TrainingStopped(RuntimeError):
    """Training can't go on; the message says why and what to change."""


class WorkersLost(TrainingStopped):
    """Workers, or their nodes, were lost more often than may be, or Ray itself didn't start.

    What is finished is kept, and it may go well later.
    """


class NonFinite(TrainingStopped):
    """The loss, or its gradient, is not a finite number; the message names the step and the batch's documents."""


class Interrupted(BaseException):
    """The run was asked to stop. Like KeyboardInterrupt no `Exception`, as handlers of errors must let it pass."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number

    @property
    def status(self) -> int:
        """The exit status, as a shell reports a process that the signal ended."""
        return 128 + self.number
