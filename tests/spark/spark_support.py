"""What the tests of the data pipeline share."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import trio
from log_support import opened

from gossiplog.archive import car_block, car_header
from gossiplog.log import Entry


@dataclass(frozen=True)
class Log:
    """A log in a file, and the entries that were put into it."""

    path: str
    entries: list[Entry]

    @property
    def by_key(self) -> dict[bytes, Entry]:
        return {entry.key: entry for entry in self.entries}


def write_log(path: Path, entries: list[Entry]) -> Log:
    async def insert() -> None:
        async with opened(path) as log:
            verdicts = await log.insert_many([entry.value for entry in entries])
            assert all(verdict.accepted for verdict in verdicts)

    trio.run(insert)
    return Log(str(path), entries)


@dataclass(frozen=True)
class Foreign:
    """A file of somebody else's entries, and what has to be said of each line: (rule, None for accepted)."""

    path: str
    rules: list[str | None]


def write_car(path: Path, entries: list[Entry]) -> Path:
    roots = [hashlib.sha256(entries[-1].value).digest()]
    path.write_bytes(car_header(roots) + b"".join(car_block(entry.value) for entry in entries))
    return path
