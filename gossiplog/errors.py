"""Every exception that GossipLog raises, in one tree under `GossipLogError`."""

from typing import ClassVar


def shortened(text: str, chars_max: int) -> str:
    """Cut the middle out of a text that is too long, such as one from others that an error quotes."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]} … ({len(text) - 2 * half:,} characters left out) … {text[-half:]}"


class GossipLogError(Exception):
    """The root of the tree.

    Attributes:
        hint_default: The class's hint, for exceptions raised without one.
    """

    hint_default: ClassVar[str | None] = None
    _hint: str | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint or self.hint_default

    @property
    def hint(self) -> str | None:
        """One sentence that tells the user what to do, or None. Tracebacks show it as a note."""
        return self._hint

    @hint.setter
    def hint(self, hint: str | None) -> None:
        if self._hint is not None:
            self.__notes__.remove(f"hint: {self._hint}")
        self._hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")


class LocalProtocolError(GossipLogError):
    """The caller made a mistake: an argument is wrong, or calls came in the wrong order."""


class ClosedError(LocalProtocolError):
    """The log, or the stream, was closed before the call or during it."""


class NotOpened(LocalProtocolError, AttributeError):
    """An object that is open only within a block, such as a log, was used outside of it."""


class RemoteProtocolError(GossipLogError):
    """A peer broke the protocol.

    Attributes:
        peer: The peer as the driver names it, or None if no network is involved.
    """

    def __init__(self, message: str, *, peer: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.peer = peer


class ProtocolNotSupported(GossipLogError):
    """A peer supports none of the protocols proposed for a stream."""


class CannotListen(GossipLogError):
    """Listening on an address failed: it is in use, or not an address of this machine."""


class CannotConnect(GossipLogError):
    """A peer or server cannot be reached, or something else answers at its address."""


class StreamReset(GossipLogError):
    """A stream was cut off: the peer reset it, or the connection is gone."""


class SyncAborted(GossipLogError):
    """A sync session ended early, but not because of its data; it can be resumed.

    Attributes:
        cooldown_s: Seconds to wait before the next session, as the server asked.
    """

    def __init__(self, message: str, *, cooldown_s: float = 0.0) -> None:
        super().__init__(message)
        self.cooldown_s = cooldown_s


class DecodeError(GossipLogError):
    """Bytes or text that a decoder refuses. Decoders raise nothing else."""


class EncodeError(GossipLogError):
    """A value that has no portable canonical form.

    Attributes:
        path: The place in the value, like `$.items[3]["a b"]`; `$` is the value itself. A long path is cut in the middle.
    """

    def __init__(self, message: str, *, path: str = "$", hint: str | None = None) -> None:
        super().__init__(f"{path}: {message}", hint=hint)
        self.path = path


class KeyFileError(GossipLogError):
    """A private key's file is missing, unreadable, readable by others, or contains no key."""


class NotFound(GossipLogError):
    """No entry has this id."""

    def __init__(self, entry_id: str, *, where: str = "", hint: str | None = None) -> None:
        super().__init__(f"no entry {entry_id}{where}", hint=hint)
        self.id = entry_id


class AmbiguousId(GossipLogError):
    """Several ids begin with the given prefix."""

    def __init__(self, prefix: str, matches: list[str]) -> None:
        super().__init__(f"id prefix {prefix!r} matches {', '.join(matches)} and maybe more", hint="give more characters of the id")
        self.matches = matches


class NotAuthorised(GossipLogError):
    """The log's access rule refused an append of ours; nothing was stored."""


class Reject(Exception):
    """Raised by an application's `apply` to set one entry aside: it stays in the log without effect on the application's tables.

    Attributes:
        id: The entry's id; with None the log finds out which of the entries given to `apply` it was.
        reason: A text for people, shown in lists of set-aside entries.
    """

    def __init__(self, reason: str, *, id: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.id = id


class Rejected(GossipLogError):
    """The log's `apply` refused an append of ours with `Reject`; nothing was stored."""


class StoreError(GossipLogError):
    """The store cannot do what was asked. Earlier commits are unaffected."""


class LogNotFound(StoreError):
    """There is no log at this path."""


class ForeignFile(StoreError):
    """The file exists but is not a log of this package."""


class DamagedLog(StoreError):
    """The file is a log, but parts of it cannot be read.

    Attributes:
        location: The log's place, for messages; None if unknown.
    """

    location: str | None = None
    hint_default = "run `gossiplog fsck` to see what is affected; undamaged parts can still be read"


class LogReplaced(StoreError):
    """A follower's position is not in this log, which was replaced by another log or an older state of it."""


class RepairRefused(StoreError):
    """A repair would quarantine more entries than allowed; nothing changed."""

    def __init__(self, set_aside: int, entries: int) -> None:
        super().__init__(f"the repair would set {set_aside:,} of {entries:,} entries aside")
        self.set_aside = set_aside
        self.entries = entries


class NewerVersion(StoreError):
    """The log was written by a newer version than this one."""


class ReadOnlyLog(StoreError):
    """The log, or its folder or database, cannot be written to."""


class TopicMismatch(StoreError):
    """The log has another topic than the one asked for."""


class LogBusy(StoreError):
    """Another process is writing to this log."""


class ShelfFull(StoreError):
    """The most logs that are allowed are open and in use, or in the folder."""


class SnapshotExpired(StoreError):
    """The store revoked a snapshot that kept it from tidying up; start again with a new one."""


class StorageFull(StoreError):
    """The disk or a quota is full; the whole transaction was rolled back."""

    hint_default = "free some space and try again; nothing that was acknowledged is affected"


class BucketError(GossipLogError):
    """A bucket's storage failed, or its contents stop a publisher."""


class DamagedBucket(BucketError):
    """A bucket's contents are malformed, or not those that the publisher signed."""


class StoreUnavailable(StoreError):
    """The database server cannot be reached, or refuses us."""


class ConnectionLost(StoreUnavailable):
    """The connection to the database broke before a commit: no entry was stored, and the work can be repeated."""


class CommitError(StoreError):
    """A transaction failed and was rolled back as a whole."""


class StatementError(CommitError):
    """The database refused an application's statement; the effects of earlier statements stay."""
