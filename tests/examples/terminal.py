"""Programs in a real terminal of their own: typed into, and read from the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

DEADLINE_S = 90.0
COLUMNS, LINES = 100, 24


class Terminal:
    """A program on a terminal of 100 columns and 24 lines. At the end of the block it is killed, if it has not ended."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        import pyte

        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        command = [sys.executable, *arguments]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self.screen)
        self._changed = threading.Condition()
        self._has_ended = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def text(self) -> str:
        """What the screen shows."""
        with self._changed:
            return "\n".join(line.rstrip() for line in self.screen.display)

    def wait(self, *expected: str, without: str | None = None) -> str:
        """Wait until the screen shows all of these, and something else not any more; return it."""

        def is_there() -> bool:
            text = "\n".join(self.screen.display)
            return all(each in text for each in expected) and (without is None or without not in text)

        with self._changed:
            if not self._changed.wait_for(lambda: is_there() or self._has_ended, DEADLINE_S) or not is_there():
                raise AssertionError(f"{expected} is not on the screen:\n" + "\n".join(self.screen.display))
        return self.text()

    def wait_ended(self) -> int:
        """Wait until the program has ended by itself."""
        return self.process.wait(DEADLINE_S)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65_536)
            except OSError:
                data = b""
            with self._changed:
                if data:
                    # Not a terminal of the kind that answers: the keyboard's protocol and the like.
                    self._stream.feed(data)
                self._has_ended = not data
                self._changed.notify_all()
            if not data:
                return
