"""`log.presence`: what those who have the log open say of themselves for now. It is sent to the others and never stored.

Source: docs/spec/presence.md.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never, cast
from weakref import WeakSet

import trio

from ..codec.framing import FrameDecoder, encode_frame
from ..entry.signing import Ed25519Signer, Signer
from ..errors import ClosedError, DecodeError, LocalProtocolError
from ..limits import TokenBucket
from ..presence.messages import FRAME_BYTES_MAX, SESSION_BYTES, TTL_MS_MAX, sign_statement
from ..presence.room import (
    FaultyPeer,
    FrameReceived,
    MembersRead,
    PeerEntered,
    PresenceChanged,
    PresenceRoom,
    RoomEvent,
    SendFrames,
    StatementMade,
    TimePassed,
)
from ..store import NOTE_BYTES_MAX, TalkingStore
from .members import LogMember
from .reader import LogReader
from .subscription import follow_members

if TYPE_CHECKING:
    from ..pubsub.types import PeerId

_PROCESSES = cast("PeerId", "other processes on this database")
"""Other processes are treated like one peer of a mesh. It never leaves, so its statements end by their expiry."""
OWN_PER_S, OWN_BURST = 25.0, 50
"""The most statements we make: fewer than any peer forwards of one author."""


@dataclass(frozen=True, slots=True)
class PresenceChange:
    """An author's state under a name has changed. `value` is the new state; None means there is none."""

    author: str
    name: str
    value: Any


class Presence:
    """The states that those who have the log open give themselves for now, by author and name: cursors, who is here, who is typing.

    States are signed, sent to everyone connected, and never stored. The newest counts, until it expires or the author's connection is lost.
    `async for change in log.presence` yields the present states, and then every change.

    Attributes:
        in_use: Set once anybody uses presence, here or through us.
        carry: Carries out what the room wants of peers on the network; does nothing while the log is not there.
    """

    def __init__(self, log: LogReader, choose_signer: Callable[[Signer | None], Signer], others: TalkingStore | None = None) -> None:
        self.in_use = trio.Event()
        self.carry: Callable[[SendFrames | FaultyPeer], None] = lambda action: None
        self._log = log
        self._choose_signer = choose_signer
        self._others = others
        self._tell_others: Callable[[bytes], None] | None = None
        self._room = PresenceRoom(log.topic)
        self._session = secrets.token_bytes(SESSION_BYTES)
        self._seq = 0
        self._signers: dict[str, Signer] = {}
        self._turn = trio.Lock()
        self._own: TokenBucket | None = None
        self._sleep = trio.CancelScope()
        self._has_begun = self._is_over = False
        self._followers: WeakSet[PresenceChanges] = WeakSet()

    @property
    def states(self) -> dict[str, dict[str, Any]]:
        """The present states, by author's did and then by name, including our own."""
        self.use()
        return self._room.states()

    async def set(self, states: Mapping[str, Any], *, ttl_s: float = 10.0, signer: Signer | None = None) -> None:
        """Set states of our own. They expire after some seconds, unless they are set again or removed before.

        They go to everybody connected, and to those who connect before they expire. At most 25 calls a second are sent; further calls wait.

        Args:
            states: Values by name, of 1 to 64 characters; None removes a name. Other names stay as they are. At most 16 names and 1,024
                bytes.
            ttl_s: After how long they expire, at most 60 seconds.
            signer: An Ed25519 signer whose states these are, instead of the log's own.

        Raises:
            LocalProtocolError: There is no Ed25519 signer, or a limit is exceeded.
            EncodeError: A state has no portable form, or the states are too large.
        """
        if not 0 < ttl_s <= TTL_MS_MAX / 1_000:
            raise LocalProtocolError(f"ttl_s {ttl_s}, expected more than 0 and at most {TTL_MS_MAX // 1_000}")
        if not states:
            raise LocalProtocolError("no states", hint="`leave` takes everything back")
        chosen = self._choose_signer(signer)
        await self._state(chosen, states, max(1, round(1_000 * ttl_s)))
        self._signers[chosen.did] = chosen

    async def leave(self) -> None:
        """Say goodbye: remove all states that were set here. The end of the connection does the same."""
        for did, signer in list(self._signers.items()):
            await self._state(signer, {}, 0)
            self._signers.pop(did, None)

    def __aiter__(self) -> PresenceChanges:
        return PresenceChanges(self)

    async def _state(self, signer: Signer, states: Mapping[str, Any], ttl_ms: int) -> None:
        self.use()
        async with self._turn:
            now = trio.current_time()
            self._own = self._own or TokenBucket(OWN_PER_S, OWN_BURST, now)
            while not self._own.take(1, trio.current_time()):
                await trio.sleep_until(self._own.ready_at(trio.current_time()))
            self._seq = max(self._seq + 1, _unix_ms())
            arguments = signer, self._session, self._log.topic, self._seq, states, ttl_ms
            if isinstance(signer, Ed25519Signer):
                statement = sign_statement(*arguments)
            else:
                # It may wait for a device.
                statement = await trio.to_thread.run_sync(sign_statement, *arguments)
        self.tell(StatementMade(statement))

    # For followers and the carrier

    def use(self) -> None:
        """Begin to take part, if that has not happened yet.

        Raises:
            ClosedError: The log is closed.
        """
        if self._is_over:
            raise ClosedError("the log is closed")
        if not self._has_begun:
            self._has_begun = True
            self._log.tasks.start_soon(self._run)
            if self._log.has_members:
                # Until the members are known, nobody is heard and no peer is asked.
                self.tell(MembersRead(frozenset()))
                self._log.tasks.start_soon(follow_members, self._log, self._on_members)
            else:
                self._enter()

    def follow(self, changes: PresenceChanges) -> list[tuple[str, str]]:
        """Add a follower, which is told of changes; return the author and name of each present state."""
        self.use()
        self._followers.add(changes)
        return [(did, name) for did, states in self._room.states().items() for name in states]

    def value(self, did: str, name: str) -> Any:
        """Return an author's state under a name; None if there is none."""
        return self._room.value(did, name)

    def tell(self, event: RoomEvent) -> None:
        """Give the room an event, and carry out its actions. Returns at once and raises nothing."""
        for action in self._room.handle(event, trio.current_time()):
            match action:
                case PresenceChanged(did, name):
                    for changes in self._followers:
                        changes.on_changed(did, name)
                case SendFrames() | FaultyPeer():
                    if isinstance(action, SendFrames) and _PROCESSES in action.peers:
                        self._note(action.data)
                    self.carry(action)
                case _:
                    assert_never(action)
        if self._sleep.deadline != self._room.next_at:
            self._sleep.deadline = self._room.next_at

    def _on_members(self, members: Sequence[LogMember]) -> None:
        self.tell(MembersRead(frozenset(member.did for member in members if member.is_held)))
        self._enter()

    def _enter(self) -> None:
        """Begin to exchange states, with peers and with other processes on this database. An empty note asks those for their states."""
        if not self.in_use.is_set():
            self.in_use.set()
            if self._others is not None:
                self._tell_others = self._others.talk(self._on_note)

    def _on_note(self, note: bytes | None) -> None:
        if self._is_over or self._tell_others is None:
            return
        if not note:
            # We have begun to listen, or another process has: each sends the states that it knows by itself again.
            self.tell(PeerEntered(_PROCESSES))
            if note is None:
                self._tell_others(b"")
            return
        frames = FrameDecoder(FRAME_BYTES_MAX)
        frames.feed(note)
        try:
            while (body := frames.next()) is not None:
                self.tell(FrameReceived(_PROCESSES, body, _unix_ms()))
        except DecodeError:
            return  # not a note of ours

    def _note(self, data: bytes) -> None:
        """Send frames to other processes, in notes of whole frames."""
        assert self._tell_others is not None
        frames, note = FrameDecoder(FRAME_BYTES_MAX), b""
        frames.feed(data)
        while (body := frames.next()) is not None:
            frame = encode_frame(body)
            if len(note) + len(frame) > NOTE_BYTES_MAX:
                self._tell_others(note)
                note = b""
            note += frame
        if note:
            self._tell_others(note)

    async def _run(self) -> None:
        try:
            while True:
                with trio.CancelScope(deadline=self._room.next_at) as self._sleep:
                    await trio.sleep_forever()
                self._sleep = trio.CancelScope()
                self.tell(TimePassed())
        finally:
            self._is_over = True
            for changes in self._followers:
                changes.wake()


class PresenceChanges:
    """An endless asynchronous iterator over changes. A slow reader gets the newest state of each name, and misses those in between."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._has_begun = False
        self._shown: dict[tuple[str, str], Any] = {}
        self._changed: dict[tuple[str, str], None] = {}
        self._more = trio.Event()

    def __aiter__(self) -> PresenceChanges:
        return self

    async def __anext__(self) -> PresenceChange:
        """Return the next change, waiting for it if need be. A cancelled call loses nothing.

        Raises:
            ClosedError: The log is closed.
        """
        return (await self._take(1))[0]

    async def next_page(self) -> list[PresenceChange]:
        """Return all changes at hand, waiting for the first if there are none."""
        return await self._take(None)

    async def _take(self, count: int | None) -> list[PresenceChange]:
        await trio.lowlevel.checkpoint()
        if not self._has_begun:
            self._has_begun = True
            self._changed = dict.fromkeys(self._presence.follow(self))
        while not self._changed:
            self._presence.use()
            self._more = trio.Event()
            await self._more.wait()
        taken = list(self._changed)[:count]
        for each in taken:
            del self._changed[each]
        changes = [PresenceChange(did, name, self._presence.value(did, name)) for did, name in taken]
        for each, change in zip(taken, changes, strict=True):
            if change.value is None:
                self._shown.pop(each, None)
            else:
                self._shown[each] = change.value
        return changes

    def on_changed(self, did: str, name: str) -> None:
        """Note that a state may have changed. Changes back to the state that was last returned are dropped."""
        each, value = (did, name), self._presence.value(did, name)
        if value == self._shown.get(each):
            self._changed.pop(each, None)
        else:
            self._changed[each] = None
            self.wake()

    def wake(self) -> None:
        """Wake the reader, because there may be a change or the log is closed."""
        self._more.set()


def _unix_ms() -> int:
    return int(1_000 * time.time())
