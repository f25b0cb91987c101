"""Ctrl-C and SIGTERM as something a waiting loop can wait for, and count."""

import os
import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered, signals are counted instead of raised, and make :meth:`fileno` readable.

    Outside of the main thread Python delivers no signals: then the count stays 0.
    """

    def __init__(self) -> None:
        self.count = 0
        self._handlers: dict[signal.Signals, Any] = {}
        self._wakeup_before = -1
        self._read, self._write = -1, -1

    def __enter__(self) -> "Interrupts":
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        if threading.current_thread() is threading.main_thread():
            self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            self._handlers = {number: signal.signal(number, self._count) for number in _SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()
        os.close(self._read)
        os.close(self._write)

    def release(self) -> None:
        """Give the signals back to whom they were taken from; the count remains."""
        if self._handlers:
            signal.set_wakeup_fd(self._wakeup_before)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._handlers = {}

    def fileno(self) -> int:
        """The file descriptor to wait on."""
        return self._read

    def drain(self) -> None:
        """Make :meth:`fileno` unreadable until the next signal."""
        try:
            while os.read(self._read, 512):
                pass
        except BlockingIOError:
            return

    def _count(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.count += 1
