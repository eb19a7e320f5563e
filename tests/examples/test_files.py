"""The example `examples/files`: folders of real processes become the same, also after kill -9, in bounded memory."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from example_support import DEADLINE_S, EXAMPLES, poison_like, stranger

from gossiplog import blocking

FOLDER = str(EXAMPLES / "files" / "folder.py")
TOPIC = "files.example.com"
MEMORY_MIB = 143
"""150 MB."""
LARGE_BYTES = 100_000_000
CHUNK_BYTES = 48 * 1024


class Peer:
    """One that shares a folder. At the end of the block it is killed, if it has not ended."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        command = [sys.executable, "-u", FOLDER, str(folder), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so, while the peer runs."""
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert self.process.poll() is None, self.lines
            assert time.monotonic() < end, self.lines
            time.sleep(0.02)

    def wait_for(self, line: str) -> None:
        self.wait(lambda: any(re.search(line, said) for said in self.lines))

    @property
    def url(self) -> str:
        self.wait_for("--connect ")
        return self.lines[0].rpartition(" ")[2]

    def peak_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in iter(self.process.stdout.readline, ""))


def file_of(folder: Path, name: str, content: bytes) -> Path:
    """Put a file into a folder as a program that takes care does it."""
    folder.mkdir(exist_ok=True)
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    # It is old enough to be whole.
    os.utime(place, ns=(1, 1))
    return place


def content(folder: Path) -> dict[str, bytes]:
    return {str(place.relative_to(folder)): place.read_bytes() for place in folder.rglob("*") if place.is_file()}


def test_folders_become_the_same_and_a_stranger_changes_nothing_outside(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    file_of(a, "notes/one.txt", b"one")
    file_of(a, "empty", b"")
    with Peer(a, "--listen", "127.0.0.1:0") as here, Peer(b, "--connect", here.url) as there:
        there.wait(lambda: content(b) == {"notes/one.txt": b"one", "empty": b""})
        there.wait_for("got notes/one.txt")
        file_of(b, "two.txt", b"two")
        file_of(b, "notes/one.txt", b"one, changed")
        here.wait(lambda: content(a) == {"notes/one.txt": b"one, changed", "empty": b"", "two.txt": b"two"})
        here.wait_for("got two.txt")
        (a / "two.txt").unlink()
        there.wait(lambda: not (b / "two.txt").exists())
        with stranger(here.url, TOPIC) as log:
            paths = ["../out", "/out", "x/../../out", ".hidden", "..", "", "a\\b", "empty/below", "notes", "n" * 300, "\x1b[2J"]
            log.append_many([{"part": "folder", "op": "begin", "path": path, "size": 0, "chunks": 0} for path in paths])
            begin = {"part": "folder", "op": "begin", "path": "x", "size": 2, "chunks": 1}
            chunk = {"part": "folder", "op": "chunk", "file": "0" * 32, "index": 0, "data": b"x"}
            log.append_many([*poison_like(begin), *poison_like(chunk)])
            log.append({"part": "folder", "op": "begin", "path": "last", "size": 0, "chunks": 0})
            for peer, folder in ((here, a), (there, b)):
                peer.wait_for("got x")
                peer.wait_for("got last")
                assert content(folder) == {"notes/one.txt": b"one, changed", "empty": b"", "x": b"", "last": b""}
        file_of(a, "three.txt", b"three")
        there.wait(lambda: content(b).get("three.txt") == b"three")
        assert here.process.poll() is there.process.poll() is None
        there_are = {path.name.partition(".")[0] for path in tmp_path.iterdir()}
        assert there_are == {"a", "b"}


@pytest.mark.slow
def test_a_hundred_megabytes_arrive_in_bounded_memory_although_both_are_killed(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    large = Random(1).randbytes(LARGE_BYTES)
    file_of(a, "large.bin", large)
    with Peer(a, "--listen", "127.0.0.1:0") as here:
        port = here.url.rpartition(":")[2]
        here.wait(lambda: size(tmp_path / "a.db") > LARGE_BYTES / 3)
        here.process.send_signal(signal.SIGKILL)
    with Peer(a, "--listen", f"127.0.0.1:{port}") as here:
        with Peer(b, "--connect", here.url) as there:
            there.wait(lambda: size(tmp_path / "b.db") > LARGE_BYTES / 2)
            there.process.send_signal(signal.SIGKILL)
        with Peer(b, "--connect", here.url) as there:
            there.wait_for("got large.bin")
            peaks = [here.peak_mib(), there.peak_mib()]
        here.process.send_signal(signal.SIGINT)
        assert here.process.wait(DEADLINE_S) == 0
    assert hashlib.sha256((b / "large.bin").read_bytes()).digest() == hashlib.sha256(large).digest()
    print(f"peak memory: {peaks[0]:.0f} MiB where it came from, {peaks[1]:.0f} MiB where it went")
    assert max(peaks) < MEMORY_MIB
    with blocking.open(tmp_path / "b.db") as log:
        # It was gone on with, not begun again.
        assert log.count() == 1 + -(-LARGE_BYTES // CHUNK_BYTES)


def size(log: Path) -> int:
    """How much a log has on the disk, what it has not yet put into its file included."""
    return sum(path.stat().st_size for path in (log, log.with_name(f"{log.name}-wal")) if path.exists())
