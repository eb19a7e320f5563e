"""A witness's memory on disk: for each log the last checkpoint that it signed, written before it answers.

With a lost or older state, a witness would sign checkpoints that contradict those it has signed.

Source: C2SP tlog-witness; docs/spec/bucket.md, "Witnesses".
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import trio

from ..entry.signing import Signer
from ..errors import BucketError, DecodeError, LogBusy
from ..store.sqlite.lock import WriterLock
from ..tlog.note import COSIGNATURE, Note, Origin, VerifierKey, cosign, publisher_of, tree_head
from ..tlog.witness import AddCheckpoint, WitnessRefusal, judge
from .kept import Kept

_ORIGINS_MAX = 100_000


class Cosigner:
    """Signs checkpoints.

    Args:
        folder: Its state: for each log the note that it signed last, with its own line. Only one process may use it, see `locked`.
        name: Its name in signature lines, without spaces and plus signs.
        signer: Its Ed25519 signer, which should sign nothing else.
        logs: The keys of logs that it signs for, of any program.
        publishers: The names of publishers all of whose logs it signs for; None for every publisher of this format.

    Attributes:
        key: Verifies its cosignatures.
        signed: How many checkpoints it has signed since it began.
    """

    def __init__(
        self, folder: Path, name: str, signer: Signer, *, logs: Collection[VerifierKey] = (), publishers: Collection[str] | None = ()
    ) -> None:
        # An origin reads the key from a publisher's name, which is the signer's did.
        self.key = VerifierKey(name, COSIGNATURE, Origin("-", publisher_of(signer), 1).key.public_key)
        self.signed = 0
        self._folder = folder
        self._files = Kept(folder)
        self._signer = signer
        self._logs = {key.name: key for key in logs}
        self._publishers = publishers
        self._turn = trio.Lock()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for a block; it is made if necessary. Raises LogBusy if another process holds the lock."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = WriterLock.on(self._folder / "lock")
            if lock is None:
                raise LogBusy(f"another process is a witness with {self._folder}", hint="each witness has a folder and a key of its own")
            for draft in self._folder.glob(".*.note.*"):
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise BucketError(f"{error.filename or self._folder}: {error.strerror}") from error
        try:
            yield
        finally:
            lock.release()

    async def add(self, data: bytes) -> str:
        """Sign a checkpoint, and return the signature line. Requests are judged one at a time.

        Raises:
            WitnessRefusal: It may not be signed.
            BucketError: The state cannot be read or written; nothing was signed.
        """
        try:
            request = AddCheckpoint.parse(data)
        except DecodeError as error:
            raise WitnessRefusal(400, str(error)) from None
        async with self._turn:
            # Not abandoned on cancellation: the next request must find what this one kept.
            return await trio.to_thread.run_sync(self._add, request)

    def _add(self, request: AddCheckpoint) -> str:
        note = judge(request, self._key_of, self._last_of)
        origin = tree_head(note.text)[0]
        last = self._last_of(origin)
        if last is None and sum(1 for _ in self._folder.glob("*.note")) >= _ORIGINS_MAX:
            raise WitnessRefusal(403, f"this witness knows {_ORIGINS_MAX:,} logs, and takes no more")
        # For one origin the time never goes back, even if the clock does.
        before = 0 if last is None else last.verify(self.key) or 0
        line = cosign(note.text, self.key, self._signer, max(int(time.time()), before))
        self._files.write(name_of(origin), Note(note.text, (*note.signatures, line)).to_bytes())
        self.signed += 1
        return str(line)

    def _key_of(self, origin: str) -> VerifierKey | None:
        if (key := self._logs.get(origin)) is not None:
            return key
        try:
            found = Origin.parse(origin)
            return found.key if self._publishers is None or found.publisher in self._publishers else None
        except DecodeError:
            return None

    def _last_of(self, origin: str) -> Note | None:
        data = self._files.read(name_of(origin))
        try:
            note = None if data is None else Note.parse(data)
            if note is not None and (tree_head(note.text)[0] != origin or note.verify(self.key) is None):
                raise DecodeError("it is of another log, or of another witness")
        except DecodeError as error:
            # Signing as if this were the first could contradict the last.
            path, hint = self._folder / name_of(origin), "put back what was there; nothing is signed for this log"
            raise BucketError(f"{path} cannot be used: {error}", hint=hint) from error
        return note


def name_of(origin: str) -> str:
    """Return the name of the file that keeps what was signed for a log."""
    return f"{sha256(origin.encode()).hexdigest()}.note"
