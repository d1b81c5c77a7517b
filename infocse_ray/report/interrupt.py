"""Ctrl-C that stops the whole report, whatever handler the cell at work has installed.

Ray Train takes over SIGINT while it trains and keeps it afterwards: a press then ends the cell with an error like any
other, and the report would go on with the next cell.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from types import TracebackType


class Interrupt:
    """Notices SIGINT while the `with` block runs, and puts the handler back that was there before each cell."""

    def __enter__(self) -> Interrupt:
        self._pressed = False
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._read, self._write = socket.socketpair()
            self._read.setblocking(False)
            self._write.setblocking(False)
            # Python writes the number of every signal here, before and whichever handler it calls.
            self._before = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
            self._handler = signal.getsignal(signal.SIGINT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._main:
            self.restore()
            signal.set_wakeup_fd(self._before)
            self._read.close()
            self._write.close()

    def restore(self) -> None:
        """Let the next Ctrl-C raise KeyboardInterrupt again."""
        if self._main:
            signal.signal(signal.SIGINT, self._handler)

    def pressed(self) -> bool:
        """Whether SIGINT came since the block began."""
        if self._main and not self._pressed:
            with contextlib.suppress(BlockingIOError):
                while numbers := self._read.recv(4096):
                    self._pressed |= signal.SIGINT in numbers
        return self._pressed
