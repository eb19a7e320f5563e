"""A folder that peers share: `python folder.py shared`, and what it prints for others. What is in it lies in the log, whole and signed.

Peers may be offline, and may be killed: what was half sent or half received goes on where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import time
from pathlib import Path, PurePosixPath

import trio

import gossiplog
from gossiplog import kit

LOOK_S = 0.5
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
files = kit.Files("folder")
application = kit.compose("files", 1, files)


class Folder:
    """A folder, and the log that has the same files once both have been looked at."""

    def __init__(self, log: gossiplog.GossipLog, root: Path, kept: Path, author: str) -> None:
        self.log, self.root, self.kept, self.author = log, root.resolve(), kept, author
        # Of each file the version that lies in the folder, None while it is being sent, and its size and time there.
        self.known: dict[str, list[str | int | None]] = json.loads(kept.read_text()) if kept.exists() else {}
        self.refused: set[str] = set()

    def keep(self, path: str, *state: str | int | None) -> None:
        """Note what lies in the folder under a path; nothing, if nothing does."""
        self.known.pop(path, None)
        if state:
            self.known[path] = list(state)
        partial = self.kept.with_suffix(".new")
        partial.write_text(json.dumps(self.known))
        partial.replace(self.kept)

    def place(self, path: str) -> Path | None:
        """Say where a file of the log belongs; None if it would be outside, or hidden."""
        parts, place = PurePosixPath(path).parts, self.root / path
        if "/".join(parts) != path or "\\" in path or not path.isprintable() or any(part.startswith(".") for part in parts):
            return None
        try:
            return place if parts and place.parent.resolve().is_relative_to(self.root) and not place.is_symlink() else None
        except OSError:
            return None

    def stat(self, path: str) -> list[int] | None:
        """Return a file's size and time."""
        try:
            found = (self.root / path).stat()
        except OSError:
            return None
        return [found.st_size, found.st_mtime_ns]

    async def send(self) -> None:
        """Write to the log what was changed in the folder."""
        found = {}
        for place in sorted(self.root.rglob("*")):
            path = place.relative_to(self.root).as_posix()
            if self.place(path) is not None and place.is_file() and len(path) <= 1_024:
                found[path] = self.stat(path)
        for path, stat in found.items():
            known = self.known.get(path, [None])
            # What was changed just now is perhaps not yet whole.
            if stat is None or (known[1:] == stat and known[0]) or time.time_ns() - stat[1] < LOOK_S * 1e9:
                continue
            versions = await files.versions(self.log)
            if path in versions and await self.is_same(path):
                self.keep(path, versions[path], *stat)
                continue
            begun = (await files.unfinished(self.log, self.author)).get(path) if known == [None, *stat] else None
            self.keep(path, None, *stat)
            if begun is not None:
                await files.resume(self.log, begun, self.root / path)
            else:
                begun = await files.write(self.log, path, self.root / path)
            self.keep(path, begun, *stat)
            print(f"sent {path}", flush=True)
        for path in [path for path in self.known if path not in found and self.stat(path) is None]:
            await self.log.append(files.remove(path))
            self.keep(path)
            print(f"removed {path}", flush=True)

    async def receive(self) -> None:
        """Write to the folder what the log has."""
        versions = await files.versions(self.log)
        for path, version in versions.items():
            known = self.known.get(path, [None])
            place = self.place(path)
            if place is None or version in (known[0], *self.refused) or self.stat(path) not in (None, known[1:]):
                continue
            partial = self.kept.with_suffix(".part")
            with partial.open("wb") as file:
                async for chunk in files.read(self.log, path):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                partial.replace(place)
            except OSError as error:
                self.refused.add(version)
                print(f"cannot have {path!r}: {error.strerror}", flush=True)
                continue
            self.keep(path, version, *(self.stat(path) or ()))
            print(f"got {path}", flush=True)
        for path in [path for path in self.known if path not in versions]:
            if self.known[path][0] is not None and self.stat(path) == self.known[path][1:]:
                (self.root / path).unlink()
                self.keep(path)
                print(f"{path} was removed", flush=True)

    async def is_same(self, path: str) -> bool:
        """Say whether the log has what the folder has."""
        with (self.root / path).open("rb") as file:
            async for chunk in files.read(self.log, path):
                if file.read(len(chunk)) != chunk:
                    return False
            return not file.read(1)


async def main(options: argparse.Namespace) -> None:
    """Share a folder until Ctrl-C."""
    options.folder.mkdir(parents=True, exist_ok=True)
    location = options.folder.resolve().with_name(f"{options.folder.resolve().name}.db")
    key = location.with_suffix(".pem")
    if not key.exists():
        gossiplog.Ed25519Signer.generate().save(key)
    signer = gossiplog.Ed25519Signer.load(key)
    async with (
        gossiplog.open(location, topic="files.example.com", signer=signer, app=application) as log,
        log.connect(options.connect) if options.connect else log.listen(options.listen) as peer,
    ):
        print("sharing" if options.connect else f"for others: python folder.py THEIRS --connect {peer.urls[0]}", flush=True)
        folder = Folder(log, options.folder, location.with_suffix(".json"), signer.did)
        while True:
            await folder.send()
            await folder.receive()
            await trio.sleep(LOOK_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--connect", metavar="URL", help="another's folder, or a hub: `gossiplog serve`")
    parser.add_argument("--listen", default="127.0.0.1:8766", metavar="HOST:PORT", help="otherwise, where others connect")
    with contextlib.suppress(OSError, AttributeError):
        # Linux: one heap for all threads, and none of it for a chunk, which leaves holes there.
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_ARENA_MAX, 1)
        libc.mallopt(M_MMAP_THRESHOLD, 32 * 1024)
    try:
        trio.run(main, parser.parse_args())
    except* KeyboardInterrupt:
        pass
