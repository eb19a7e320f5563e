"""`log.presence`: what is true only now of those who have the log open. It is told to them and never stored.

Source: docs/spec/presence.md.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
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
from ..pubsub.types import PeerId
from ..store import NOTE_BYTES_MAX, TalkingStore
from .members import LogMember
from .reader import LogReader
from .subscription import follow_members

_PROCESSES = PeerId("other processes on this database")
"""What they tell is heard like what a peer of a mesh does; they never go, so what they told ends with its time."""
OWN_PER_S, OWN_BURST = 25.0, 50
"""What we state of ourselves at most: less than anybody passes on of one author."""


class PresenceCarrier(Protocol):
    """Carries frames to peers, as long as the log is on the network."""

    def send(self, peers: Sequence[PeerId], data: bytes) -> None:
        """Send frames to each of these peers, and tell `PeerBlocked` if that has to wait."""
        ...

    def on_fault(self, peer: PeerId, reason: str) -> None:
        """Have a peer answer for what it sent."""
        ...


@dataclass(frozen=True, slots=True)
class PresenceChange:
    """What an author is by a name is another thing now."""

    author: str
    name: str
    value: Any


class Presence:
    """What is true only now of those who have the log open, by author and name: cursors, who is here, who types.

    It is signed, told to those who are connected, and never stored. The newest counts, and is over after its time, or when the author's
    connection is lost. `async for change in log.presence` begins with what is true, and goes on with what changes.

    Attributes:
        in_use: Set once anybody wants it, here or by way of us.
        carrier: Carries it to peers, while the log is on the network.
    """

    def __init__(self, log: LogReader, choose_signer: Callable[[Signer | None], Signer], others: TalkingStore | None = None) -> None:
        self.in_use = trio.Event()
        self.carrier: PresenceCarrier | None = None
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
        """What is true now: for each author, by did, what it stated, by name. Our own is among it."""
        self.use()
        return self._room.states()

    async def set(self, states: Mapping[str, Any], *, ttl_s: float = 10.0, signer: Signer | None = None) -> None:
        """State something about oneself, which stays true for some seconds unless it is stated again, or taken back.

        It goes to everybody connected, and to those who connect before it expires. At most 25 a second go out; more wait.

        Args:
            states: What is true, by names of 1 to 64 characters; None takes a name back. Other names stay as they are. 16 names and
                1,024 bytes at most.
            ttl_s: How long, at most 60 seconds.
            signer: Whose presence it is, instead of the log's own signer's. An Ed25519 signer.

        Raises:
            LocalProtocolError: There is no signer, it is not of Ed25519, or a limit is broken.
            EncodeError: A state has no portable form, or they are too large.
        """
        if not 0 < ttl_s <= TTL_MS_MAX / 1_000:
            raise LocalProtocolError(f"ttl_s {ttl_s}, expected more than 0 and at most {TTL_MS_MAX // 1_000}")
        if not states:
            raise LocalProtocolError("no states", hint="`leave` takes everything back")
        chosen = self._choose_signer(signer)
        await self._state(chosen, states, max(1, round(1_000 * ttl_s)))
        self._signers[chosen.did] = chosen

    async def leave(self) -> None:
        """Say goodbye: everything that was stated here is over. The end of the connection says so as well."""
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
                # It may ask a device.
                statement = await trio.to_thread.run_sync(sign_statement, *arguments)
        self.tell(StatementMade(statement))

    # For followers and for who carries it

    def use(self) -> None:
        """Begin to take part, unless that was done before.

        Raises:
            ClosedError: The log is closed.
        """
        if self._is_over:
            raise ClosedError("the log is closed")
        if not self._has_begun:
            self._has_begun = True
            self._log.tasks.start_soon(self._run)
            if self._log.has_members:
                # Nobody is heard, and no peer is asked, before it is known who they are.
                self.tell(MembersRead(frozenset()))
                self._log.tasks.start_soon(follow_members, self._log, self._on_members)
            else:
                self._enter()

    def follow(self, changes: PresenceChanges) -> list[tuple[str, str]]:
        """Have somebody told what changes; return what there is, by author and name."""
        self.use()
        self._followers.add(changes)
        return [(did, name) for did, states in self._room.states().items() for name in states]

    def value(self, did: str, name: str) -> Any:
        """Return what an author is by a name now; None for nothing."""
        return self._room.value(did, name)

    def tell(self, event: RoomEvent) -> None:
        """Hand an event to the room, and carry out what it asks for. Returns at once, and raises nothing."""
        for action in self._room.handle(event, trio.current_time()):
            match action:
                case PresenceChanged(did, name):
                    for changes in self._followers:
                        changes.on_changed(did, name)
                case SendFrames(peers, data):
                    if _PROCESSES in peers:
                        self._note(data)
                    if self.carrier is not None:
                        self.carrier.send([peer for peer in peers if peer != _PROCESSES], data)
                case FaultyPeer(peer, reason) if self.carrier is not None and peer != _PROCESSES:
                    self.carrier.on_fault(peer, reason)
                case _:
                    pass
        if self._sleep.deadline != self._room.next_at:
            self._sleep.deadline = self._room.next_at

    def _on_members(self, members: Sequence[LogMember]) -> None:
        self.tell(MembersRead(frozenset(member.did for member in members if member.is_held)))
        self._enter()

    def _enter(self) -> None:
        """Begin to speak: with peers, and with other processes on this database. An empty note asks those for what is true."""
        if not self.in_use.is_set():
            self.in_use.set()
            if self._others is not None:
                self._tell_others = self._others.talk(self._on_note)

    def _on_note(self, note: bytes | None) -> None:
        if self._is_over or self._tell_others is None:
            return
        if not note:
            # We hear others from now on, or one of them does: what each knows by itself is told again.
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
            return  # nothing of ours

    def _note(self, data: bytes) -> None:
        """Tell other processes, in notes that end with a frame."""
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
    """An endless asynchronous iterator over what changes. Who is slow gets the newest of each name, and misses what lay between."""

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
        """Return all changes that are at hand, waiting for the first if need be."""
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
        """Note that something may be another thing now. Only what is shown, or has become true, is kept."""
        each, value = (did, name), self._presence.value(did, name)
        if value == self._shown.get(each):
            self._changed.pop(each, None)
        else:
            self._changed[each] = None
            self.wake()

    def wake(self) -> None:
        """Look again."""
        self._more.set()


def _unix_ms() -> int:
    return int(1_000 * time.time())
