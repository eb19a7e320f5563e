"""A hub and two devices, each a process: they write offline, meet, and agree. `python demo.py` shows it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TODO = Path(__file__).with_name("todo.py")


class Device:
    """One `todo.py` that is typed into."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        command = [sys.executable, str(TODO), str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        self.wait_for("nothing to do", ".")

    def type(self, *lines: str) -> None:
        """Type lines."""
        for line in lines:
            print(f"{self.name} $ {line.partition(' ws:')[0]}")
            print(line, file=self.process.stdin, flush=True)

    def wait_for(self, *expected: str) -> None:
        """Read what it prints until the last lines are these."""
        seen: list[str] = []
        while tuple(seen[-len(expected) :]) != expected:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit(f"{self.name} ended after {seen}")
            seen.append(line.rstrip("\n"))

    def shows(self, *lines: str) -> None:
        """Wait until its list is this one, and print it."""
        self.wait_for(*lines, ".")
        print(*(f"{self.name:>8} | {line}" for line in lines), sep="\n")


@contextmanager
def running(folder: Path) -> Iterator[tuple[str, Device, Device]]:
    """Start a hub, which is `gossiplog serve` as it is, and two devices; end them all."""
    gossiplog, hub_log = [sys.executable, "-m", "gossiplog"], str(folder / "hub.db")
    subprocess.run([*gossiplog, "init", hub_log, "--topic", "todo.example.com"], check=True, capture_output=True)
    serve = [*gossiplog, "serve", hub_log, "--listen", "127.0.0.1:0"]
    hub = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    processes = [hub]
    try:
        (url,) = json.loads(hub.stdout.readline())["urls"]
        devices = []
        for name in ("phone", "laptop"):
            devices.append(Device(folder / f"{name}.db"))
            processes.append(devices[-1].process)
        yield url, *devices
    finally:
        for process in processes[::-1]:
            process.terminate()
            process.communicate()


def main() -> None:
    """Show it."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as (url, phone, laptop):
        phone.type("add bread", "add milk", f"online {url}")
        laptop.type(f"online {url}")
        laptop.shows("1 [ ] bread", "2 [ ] milk")

        print("\nBoth go offline, and go on.\n")
        for device in (phone, laptop):
            device.type("offline")
            device.wait_for("offline")
        phone.type("done 1", "add tea")
        phone.shows("1 [x] bread", "2 [ ] milk", "3 [ ] tea")
        laptop.type("remove 2", "add jam")
        laptop.shows("1 [ ] bread", "2 [ ] jam")

        print("\nThey meet.\n")
        for device in (phone, laptop):
            device.type(f"online {url}")
        for device in (phone, laptop):
            device.shows("1 [x] bread", "2 [ ] jam", "3 [ ] tea")


if __name__ == "__main__":
    main()
