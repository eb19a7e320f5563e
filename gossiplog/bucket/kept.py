"""Files beside a log about its buckets: the checkpoints seen and signed, and how far each place was read.

A signed checkpoint binds its publisher for good. So the largest verified one of each publisher and generation is kept; a checkpoint that
contradicts it is kept beside it as evidence. Files are small and replaced as a whole.

Source: docs/spec/bucket.md, "Beside the log".
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from ..entry.message_id import decode_id, encode_id
from ..errors import BucketError, DecodeError
from ..tlog.note import Checkpoint, Origin, parse_checkpoint, unsigned
from ..tlog.segment import SEGMENT_WIDTH
from .folder import read_plain, replace_file

if TYPE_CHECKING:
    from ..replica.log import Replica

T = TypeVar("T")

_STEPS_MAX = 16
_HOLES_MAX = 64
_KEPT_BYTES_MAX = 16 * 1024 * 1024
"""The largest file read: for 10,000 publishers 5 MB are kept, and 13 if all have holes; for 16 checkpoints 2."""


@dataclass(frozen=True, slots=True)
class Step:
    """A checkpoint that this log's key signed.

    Attributes:
        seq: The insertion number of its last entry; 0 for an empty tree.
        key: That entry's key; None for an empty tree.
    """

    note: bytes
    seq: int
    key: bytes | None

    @property
    def checkpoint(self) -> Checkpoint:
        """The parsed checkpoint."""
        return parse_checkpoint(self.note)[1]


@dataclass(frozen=True, slots=True)
class Signed:
    """What a key has signed for this log.

    Attributes:
        log: The log's identity, which `ReadPlace` calls its generation.
        steps: The last 16 checkpoints, all of one generation, the latest last.
    """

    log: str = ""
    steps: tuple[Step, ...] = ()

    def index(self, note: bytes | None) -> int | None:
        """Return which step a note is, whatever its cosignatures; None if it is none of them."""
        return next((at for at, step in enumerate(self.steps) if note is not None and unsigned(step.note) == unsigned(note)), None)


@dataclass(slots=True)
class TakenState:
    """How far a publisher's log was taken from one place.

    Attributes:
        checkpoint: The last one read there, without the log's root.
        taken: Everything before this leaf is done, except the holes.
        holes: Segments before it of which something could not be read; ascending, at most 64.
        left: A leaf at or before the first entry left out for its signature scheme; None if none was.
        schemes: The schemes that the log accepted then.
    """

    checkpoint: Checkpoint
    taken: int
    holes: Sequence[int] = ()
    left: int | None = None
    schemes: frozenset[str] = frozenset()

    @property
    def unread(self) -> list[range]:
        """The leaves that are still to be read, ascending: the segments with holes, and all from `taken` on."""
        holes = [range(number * SEGMENT_WIDTH, (number + 1) * SEGMENT_WIDTH) for number in self.holes]
        return [*holes, range(self.taken, self.checkpoint.size)]

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to be read."""
        return self.taken == self.checkpoint.size and not self.holes

    def advance(self, taken: int, holes: Iterable[int]) -> None:
        """Note that everything before a leaf is done, except the holes known and these."""
        self.taken, self.holes = max(self.taken, taken), sorted({*self.holes, *holes})
        # Everything from the 65th on is read again, and from the tail on, which will grow.
        tail = self.checkpoint.size // SEGMENT_WIDTH
        end = next((number for at, number in enumerate(self.holes) if at == _HOLES_MAX or number == tail), None)
        if end is not None:
            self.go_back(end * SEGMENT_WIDTH)

    def go_back(self, leaf: int) -> None:
        """Note that everything from a leaf on is to be read again."""
        self.taken = min(self.taken, leaf)
        self.holes = [number for number in self.holes if number * SEGMENT_WIDTH < leaf]


class Kept:
    """The files in a folder, which for a log is `LOG-buckets`. Without a folder they are in memory."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._files: dict[str, bytes] = {}

    @classmethod
    def beside(cls, log: Replica) -> Kept:
        """Return a log's files; for a log in PostgreSQL they are below XDG_STATE_HOME, by default `~/.local/state`."""
        location = log.location
        if location == ":memory:":
            return _OF_MEMORY.setdefault(log, cls(None))
        if "://" in location:
            base = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
            return cls(base / "gossiplog" / "buckets" / _short(location))
        return cls(Path(os.path.realpath(location) + "-buckets"))

    def seen(self, origin: Origin) -> Checkpoint | None:
        """Return the largest checkpoint of this origin that was verified here."""
        data = self.read(_note_name(origin))
        if data is None:
            return None
        try:
            return parse_checkpoint(data)[1]
        except DecodeError as error:
            hint = "remove it to trust the publisher anew"
            raise BucketError(f"{self._place(_note_name(origin))} is damaged: {error}", hint=hint) from None

    def keep_seen(self, checkpoint: Checkpoint, note: bytes) -> None:
        """Keep a checkpoint after verifying that it extends the previous one."""
        self.write(_note_name(checkpoint.origin), note)

    def keep_evidence(self, checkpoint: Checkpoint, note: bytes) -> list[str]:
        """Keep a checkpoint that contradicts the one seen before; return the paths of both."""
        name = _note_name(checkpoint.origin).replace(".note", f".{_short(note)}.note")
        self.write(name, note)
        return [self._place(_note_name(checkpoint.origin)), self._place(name)]

    def owner(self) -> bytes:
        """Return the mark by which this log claims its folder in storage without locks: 32 hexadecimal digits, drawn once."""
        owner = self.read("owner")
        if owner is None:
            self.write("owner", owner := secrets.token_hex(16).encode())
        return owner

    def signed(self, publisher: str) -> Signed:
        """Return what a publisher has signed for this log; no steps if nothing."""

        def parse(record: dict[str, Any]) -> Signed:
            steps = [Step(each["note"].encode(), each["seq"], each["id"] and decode_id(each["id"])) for each in record["steps"]]
            return Signed(record["log"], tuple(steps))

        return self._read_json(f"signed-{publisher}.json", parse) or Signed()

    def keep_signed(self, publisher: str, signed: Signed) -> None:
        """Keep the last 16 signed checkpoints, durably."""
        steps = [
            {"note": step.note.decode(), "seq": step.seq, "id": step.key and encode_id(step.key)} for step in signed.steps[-_STEPS_MAX:]
        ]
        self.write(f"signed-{publisher}.json", json.dumps({"log": signed.log, "steps": steps}).encode())

    def taken(self, url: str) -> dict[str, TakenState]:
        """Return how far each publisher's log was taken from one place."""

        def parse(record: dict[str, Any]) -> dict[str, TakenState]:
            found = {}
            for name, each in record["publishers"].items():
                checkpoint = Checkpoint(Origin.parse(each["origin"]), each["size"], bytes.fromhex(each["root"]))
                holes, schemes = each.get("holes", ()), frozenset[str](each.get("schemes", ()))
                found[name] = TakenState(checkpoint, each["taken"], holes, each.get("left"), schemes)
            return found

        return self._read_json(_taken_name(url), parse) or {}

    def keep_taken(self, url: str, taken: dict[str, TakenState]) -> None:
        """Keep how far each publisher's log was taken, not durably: if the file is lost, entries are read again."""
        publishers = {
            name: {
                "origin": str(each.checkpoint.origin),
                "size": each.checkpoint.size,
                "root": each.checkpoint.root.hex(),
                "taken": each.taken,
            }
            | ({"holes": each.holes} if each.holes else {})
            | ({} if each.left is None else {"left": each.left, "schemes": sorted(each.schemes)})
            for name, each in taken.items()
        }
        record = json.dumps({"url": url, "publishers": publishers}, indent=1)
        self.write(_taken_name(url), record.encode(), is_durable=False)

    def keep_place(self, url: str) -> None:
        """Remember a place that was published to."""
        if self._read_json(_taken_name(url), dict) is None:
            self.keep_taken(url, {})

    def places(self) -> list[str]:
        """Return the URLs of the places that were taken from or published to."""
        names = [] if self.folder is None or not self.folder.is_dir() else sorted(path.name for path in self.folder.glob("taken-*.json"))
        return [url for name in names if (url := self._read_json(name, lambda record: str(record["url"]))) is not None]

    def _place(self, name: str) -> str:
        return name if self.folder is None else str(self.folder / name)

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, at most 16 MiB; None if there is none. Raises BucketError if it cannot be read."""
        if self.folder is None:
            return self._files.get(name)
        try:
            found = read_plain(self.folder / name, 0, _KEPT_BYTES_MAX)
        except OSError as error:
            raise BucketError(f"{self._place(name)}: {error.strerror}") from error
        return None if found is None else found[0]

    def _read_json(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
        data = self.read(name)
        try:
            return None if data is None else parse(json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, DecodeError):
            hint = "remove it: the bucket is then read again from its beginning"
            raise BucketError(f"{self._place(name)} is damaged", hint=hint) from None

    def write(self, name: str, data: bytes, *, is_durable: bool = True) -> None:
        """Replace a file as a whole. Raises BucketError if it cannot be written."""
        if self.folder is None:
            self._files[name] = data
            return
        try:
            replace_file(self.folder / name, data, is_durable=is_durable)
        except OSError as error:
            raise BucketError(f"{self._place(name)}: {error.strerror}", hint="what was seen and signed is kept beside the log") from error


_OF_MEMORY: WeakKeyDictionary[Replica, Kept] = WeakKeyDictionary()
"""The files of logs in memory, while these are open."""


def _note_name(origin: Origin) -> str:
    return f"{origin.publisher}-{origin.generation}.note"


def _taken_name(url: str) -> str:
    return f"taken-{_short(url)}.json"


def _short(name: str | bytes) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
