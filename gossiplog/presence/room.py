"""The machine of one log's presence: the newest state of each name, session and author, for as long as it is true.

Theory of operation. Statements of a session have increasing numbers. A statement whose number is not above the session's highest is a copy
or a replay, and changes nothing. Any other is verified, replaces the session's states of the same names, and is passed on once to every
peer but the one that brought it. Statements to pass on are gathered for `GATHER_S`, and of these only the newest go out, so a crowded room
costs one write per peer instead of one per statement. A peer whose connection is blocked is owed only the newest states.

A session whose connection is lost is away: its states are neither shown nor passed on. A new statement brings it back, and so do the same
statements sent again before they expire; so a connection that is re-established needs no new signatures.

Invariants: the number of a session is in `_sessions` until it ends, and then in `_marks`. News is current as long as it is its session's
newest for one of its names. Every container has a maximum: sessions, in all, of one author and of one peer; names and bytes of a session;
marks; buckets of a peer; and the news owed to a peer.

Source: docs/spec/presence.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from ..errors import DecodeError
from ..limits import TokenBucket, keep_newest
from .messages import NAMES_MAX, Departed, Statement, decode_frame

if TYPE_CHECKING:
    from ..pubsub.types import PeerId  # importing pubsub takes 20 ms, which opening a log need not pay

SESSIONS_MAX = 1_024
SESSIONS_OF_CLIENT_MAX = 64
SESSIONS_OF_AUTHOR_MAX = 8
SESSION_BYTES_MAX = 4_096
MARKS_MAX = 16_384
OWED_MAX = 4_096
"""Statements that wait for a blocked peer; the oldest is dropped."""
AUTHOR_PER_S, AUTHOR_BURST = 30.0, 60
CLIENT_PER_S, CLIENT_BURST = 200.0, 400
RELAY_PER_S, RELAY_BURST = 2_000.0, 4_000
"""For hubs and peers in a mesh, which bring the statements of many authors."""
OVER_MAX = 1_000
"""Frames over its limit that a peer may send before it counts as faulty; they are forgiven at the rate of the limit."""
WINDOW_MS = 24 * 3_600 * 1_000
"""How far a statement's number may be from our clock; beyond it is a replay, or the sender's clock is wrong."""
GATHER_S = 0.02
_SWEEP_S = 0.05


@dataclass(frozen=True, slots=True)
class PeerEntered:
    """A peer has opened a presence stream with us.

    Attributes:
        is_client: It speaks for a few authors, not for a mesh or a hub.
        is_hub: We are its client, and keep to a client's limits.
        may_speak: Its statements are accepted.
    """

    peer: PeerId
    is_client: bool = False
    is_hub: bool = False
    may_speak: bool = True


@dataclass(frozen=True, slots=True)
class PeerGone:
    """A peer's presence stream has closed."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PeerBlocked:
    """Frames to a peer are waiting to be written, so send no more; or, with `is_blocked` False, they are written."""

    peer: PeerId
    is_blocked: bool = True


@dataclass(frozen=True, slots=True)
class FrameReceived:
    """A peer sent a frame. `unix_ms` is our clock."""

    peer: PeerId
    body: bytes
    unix_ms: int


@dataclass(frozen=True, slots=True)
class StatementMade:
    """We made a statement ourselves."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class MembersRead:
    """Accept only these authors from now on; None for all."""

    dids: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The time `PresenceRoom.next_at` has come."""


RoomEvent: TypeAlias = PeerEntered | PeerGone | PeerBlocked | FrameReceived | StatementMade | MembersRead | TimePassed


@dataclass(frozen=True, slots=True)
class SendFrames:
    """Send frames to each of these peers."""

    peers: tuple[PeerId, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class PresenceChanged:
    """The state of an author under this name has changed or ended."""

    did: str
    name: str


@dataclass(frozen=True, slots=True)
class FaultyPeer:
    """A peer sent a frame that no peer may pass on, or far too many."""

    peer: PeerId
    reason: str


RoomAction: TypeAlias = SendFrames | PresenceChanged | FaultyPeer


@dataclass(eq=False, slots=True)
class _Session:
    """A session that has not ended.

    Attributes:
        source: The peer that brought its newest statement; None if it is ours.
        other: A relay that brought a copy of that statement.
        is_away: The connection of its author is lost.
        newest: The newest statement for each name.
    """

    id: bytes
    did: str
    seq: int
    source: PeerId | None
    other: PeerId | None = None
    is_away: bool = False
    newest: dict[str, _News] = field(default_factory=dict)

    def size(self) -> int:
        return sum(len(news.said.states) for news in set(self.newest.values()) if isinstance(news.said, Statement))


@dataclass(eq=False, slots=True)
class _News:
    """A statement or departure to pass on. `made` is when its author made it, by our clock and the ages in frames."""

    said: Statement | Departed
    session: _Session
    source: PeerId | None
    made: float
    until: float = inf
    states: dict[str, Any] = field(default_factory=dict)

    def order(self) -> tuple[int, bytes]:
        return self.said.seq, self.session.id

    def is_current(self) -> bool:
        is_newest = not self.session.is_away and any(self.session.newest.get(name) is self for name in self.states)
        return is_newest or not self.states

    def frame(self, now: float) -> bytes:
        if isinstance(self.said, Departed):
            return self.said.frame()
        return self.said.frame(min(65_535, round(1_000 * (now - self.made))))


@dataclass(eq=False, slots=True)
class _Peer:
    """A peer with a stream.

    Attributes:
        bucket: The frames that it may send.
        over: The further frames that it is forgiven.
        sending: The frames that we may send, if it limits them.
        authors: The statements that each author may make by way of it.
        owed: News to send once it is no longer blocked.
    """

    entered: PeerEntered
    bucket: TokenBucket
    over: TokenBucket
    sending: TokenBucket | None
    authors: OrderedDict[bytes, TokenBucket] = field(default_factory=OrderedDict)
    owed: dict[_News, None] = field(default_factory=dict)
    is_blocked: bool = False


class PresenceRoom:
    """The machine of one log's presence.

    Attributes:
        next_at: When `TimePassed` is due; infinity for never.
    """

    def __init__(self, topic: str) -> None:
        self.next_at = inf
        self._topic = topic
        self._members: frozenset[str] | None = None
        self._peers: dict[PeerId, _Peer] = {}
        self._sessions: dict[bytes, _Session] = {}
        self._of_author: dict[str, list[_Session]] = {}
        self._marks: OrderedDict[bytes, int] = OrderedDict()
        self._gathered: dict[_News, None] = {}
        self._flush_at = inf
        self._flushed_at = -inf
        self._sweep_at = inf
        self._out: list[RoomAction] = []

    def handle(self, event: RoomEvent, now: float) -> list[RoomAction]:
        """Handle an event and return the actions. Never raises, whatever peers send."""
        match event:
            case FrameReceived():
                peer = self._peers.get(event.peer)
                if peer is not None:
                    self._on_frame(peer, event, now)
            case StatementMade(statement):
                self._take(statement, statement.read(), None, now, now)
            case TimePassed():
                self._sweep(now)
            case PeerEntered():
                self._on_entered(event, now)
            case PeerGone(id):
                self._on_gone(id, now)
            case PeerBlocked(id, is_blocked):
                if id in self._peers:
                    self._peers[id].is_blocked = is_blocked
                    self._send_owed(id, now)
            case MembersRead(dids):
                self._members = dids
                for session in [each for each in self._sessions.values() if not self._is_heard(each.did) and each.source is not None]:
                    self._drop(session)
            case _:  # pragma: no cover - mypy proves it
                assert_never(event)
        if now >= self._flush_at:
            self._flush(now)
        self.next_at = min(self._flush_at, self._sweep_at)
        out, self._out = self._out, []
        return out

    # Queries

    def value(self, did: str, name: str) -> Any:
        """Return the newest state of an author under a name, over all its sessions; None without one."""
        found: _News | None = None
        for session in self._of_author.get(did, ()):
            news = None if session.is_away else session.newest.get(name)
            if news is not None and news.states[name] is not None and (found is None or news.order() > found.order()):
                found = news
        return None if found is None else found.states[name]

    def states(self) -> dict[str, dict[str, Any]]:
        """Return all current states, by author and name. O(sessions)."""
        states: dict[str, dict[str, Any]] = {}
        for session in self._sessions.values():
            for name in session.newest:
                value = self.value(session.did, name)
                if value is not None:
                    states.setdefault(session.did, {})[name] = value
        return states

    def sizes(self) -> dict[str, int]:
        """Return the sizes of containers, by name."""
        owed = max((len(peer.owed) for peer in self._peers.values()), default=0)
        buckets = max((len(peer.authors) for peer in self._peers.values()), default=0)
        return {"sessions": len(self._sessions), "marks": len(self._marks), "owed": owed, "buckets": buckets}

    # Peers

    def _on_entered(self, event: PeerEntered, now: float) -> None:
        rate, burst = (CLIENT_PER_S, CLIENT_BURST) if event.is_client else (RELAY_PER_S, RELAY_BURST)
        # Half of its limit, so that frames that arrive in bunches do not exceed it.
        sending = TokenBucket(CLIENT_PER_S / 2, CLIENT_BURST / 2, now) if event.is_hub else None
        self._peers[event.peer] = _Peer(event, TokenBucket(rate, burst, now), TokenBucket(rate, OVER_MAX, now), sending)
        # A peer may enter again without having gone.
        known = (news for session in self._sessions.values() if session.source != event.peer for news in _in_order(session))
        self._peers[event.peer].owed = dict.fromkeys(known)
        self._send_owed(event.peer, now)

    def _on_gone(self, id: PeerId, now: float) -> None:
        if self._peers.pop(id, None) is None:
            return
        for session in list(self._sessions.values()):
            if session.other == id:
                session.other = None
            if session.source == id and session.other is not None:
                session.source, session.other = session.other, None
            elif session.source == id:
                self._depart(session, id, now)

    def _depart(self, session: _Session, source: PeerId, now: float) -> None:
        """Hide a session whose connection is lost, and pass that on."""
        if not session.is_away:
            self._show(session, is_away=True)
            self._gather(_News(Departed(session.id, session.seq), session, source, now), now)

    def _show(self, session: _Session, *, is_away: bool) -> None:
        session.is_away = is_away
        self._out.extend(PresenceChanged(session.did, name) for name in session.newest)

    # Receiving

    def _on_frame(self, peer: _Peer, event: FrameReceived, now: float) -> None:
        id = event.peer
        if not peer.bucket.take(1, now):
            self._on_over(peer, now)
            return
        try:
            found = decode_frame(event.body)
        except DecodeError as error:
            self._out.append(FaultyPeer(id, str(error)))
            return
        if isinstance(found, Departed):
            session = self._sessions.get(found.id)
            if session is not None and session.source == id and session.seq <= found.seq:
                self._depart(session, id, now)
            return
        statement, age_ms = found
        session = self._sessions.get(statement.id)
        known = self._marks.get(statement.id, -1) if session is None else session.seq
        if statement.seq <= known:
            if session is not None and peer.entered.may_speak:
                self._on_copy(peer, session, statement, now)
            return
        is_old = 0 < statement.ttl_ms < age_ms or abs(statement.seq - event.unix_ms) > WINDOW_MS
        if is_old or not peer.entered.may_speak or not self._is_heard(statement.did if session is None else session.did):
            return
        if not self._has_turn(peer, statement.id[:32], now) or not self._has_room(peer, session):
            self._on_over(peer, now)
            return
        try:
            if not statement.is_signed(self._topic):
                raise DecodeError("a signature that does not verify")
            states = statement.read()
        except DecodeError as error:
            self._out.append(FaultyPeer(id, str(error)))
            return
        self._take(statement, states, id, now - age_ms / 1_000, now)

    def _on_copy(self, peer: _Peer, session: _Session, statement: Statement, now: float) -> None:
        id = peer.entered.peer
        if not session.is_away:
            if statement.seq == session.seq and id != session.source and not peer.entered.is_client:
                session.other = id
        elif any(news.said == statement for news in session.newest.values()) and self._has_turn(peer, session.id[:32], now):
            session.source = id
            self._show(session, is_away=False)
            for news in _in_order(session):
                news.source = id
                self._gather(news, now)

    def _on_over(self, peer: _Peer, now: float) -> None:
        if not peer.over.take(1, now):
            peer.over.give_back(OVER_MAX)
            self._out.append(FaultyPeer(peer.entered.peer, "far more presence than is allowed"))

    def _has_turn(self, peer: _Peer, key: bytes, now: float) -> bool:
        """Take one statement from the author's allowance. Each peer has its own; otherwise one could use up that of any author."""
        bucket = peer.authors.get(key) or TokenBucket(AUTHOR_PER_S, AUTHOR_BURST, now)
        keep_newest(peer.authors, key, bucket, SESSIONS_OF_CLIENT_MAX if peer.entered.is_client else SESSIONS_MAX)
        return bool(bucket.take(1, now))

    def _has_room(self, peer: _Peer, session: _Session | None) -> bool:
        """Whether a peer may bring a session. In a full room, the peer that brought the most sessions loses one."""
        if session is not None or len(self._sessions) < SESSIONS_OF_CLIENT_MAX:
            return True
        brought: dict[PeerId | None, list[_Session]] = {}
        for each in self._sessions.values():
            brought.setdefault(each.source, []).append(each)
        ours = len(brought.get(peer.entered.peer, ()))
        if peer.entered.is_client and ours >= SESSIONS_OF_CLIENT_MAX:
            return False
        if len(self._sessions) >= SESSIONS_MAX:
            most = max(brought.values(), key=len)
            if len(most) <= ours:
                return False
            self._drop(most[0])
        return True

    def _is_heard(self, did: str) -> bool:
        return self._members is None or did in self._members

    def _take(self, statement: Statement, states: dict[str, Any], source: PeerId | None, made: float, now: float) -> None:
        """Make a statement the newest of its session, and pass it on."""
        session = self._sessions.get(statement.id)
        if session is None:
            session = self._sessions[statement.id] = _Session(statement.id, statement.did, statement.seq, source)
            self._marks.pop(statement.id, None)
            sessions = self._of_author.setdefault(session.did, [])
            sessions.append(session)
            if len(sessions) > SESSIONS_OF_AUTHOR_MAX:
                self._drop(sessions[0])
        session.seq, session.source, session.other = statement.seq, source, None
        if session.is_away:
            self._show(session, is_away=False)
        news = _News(statement, session, source, made, made + statement.ttl_ms / 1_000, states)
        self._gather(news, now)
        if not states:
            self._drop(session)
            return
        session.newest.update(dict.fromkeys(states, news))
        while len(session.newest) > NAMES_MAX or session.size() > SESSION_BYTES_MAX:
            oldest = min((each for each in session.newest.values()), key=lambda each: each.until)
            self._forget(session, [name for name, each in session.newest.items() if each is oldest])
        self._out.extend(PresenceChanged(session.did, name) for name in states)
        self._sweep_at = min(self._sweep_at, max(news.until, now + _SWEEP_S))

    # Ending

    def _drop(self, session: _Session) -> None:
        """End a session: its states are over, and its statements so far are not accepted again."""
        del self._sessions[session.id]
        keep_newest(self._marks, session.id, session.seq, MARKS_MAX)
        self._of_author[session.did].remove(session)
        if not self._of_author[session.did]:
            del self._of_author[session.did]
        self._forget(session, list(session.newest))

    def _forget(self, session: _Session, names: Iterable[str]) -> None:
        for name in names:
            del session.newest[name]
            self._out.append(PresenceChanged(session.did, name))

    def _sweep(self, now: float) -> None:
        if now < self._sweep_at:
            return
        for session in list(self._sessions.values()):
            self._forget(session, [name for name, news in session.newest.items() if news.until <= now])
            if not session.newest:
                self._drop(session)
        ends = (news.until for session in self._sessions.values() for news in session.newest.values())
        self._sweep_at = max(min(ends, default=inf), now + _SWEEP_S)

    # Sending

    def _gather(self, news: _News, now: float) -> None:
        self._gathered[news] = None
        if self._flush_at == inf:
            self._flush_at = max(now, self._flushed_at + GATHER_S)

    def _flush(self, now: float) -> None:
        """Send the gathered news that is still current to all peers that are not blocked; the others are owed it."""
        frames = [(news, news.frame(now)) for news in self._gathered if news.is_current()]
        self._gathered, self._flush_at, self._flushed_at = {}, inf, now
        sources = {news.source for news, _ in frames}
        whole = b"".join(frame for _, frame in frames)
        rest: list[PeerId] = []
        for id, peer in self._peers.items():
            if peer.is_blocked or peer.owed or peer.sending is not None:
                peer.owed.update((news, None) for news, _ in frames if news.source != id)
                self._send_owed(id, now)
            elif id not in sources:
                rest.append(id)
            elif data := b"".join(frame for news, frame in frames if news.source != id):
                self._out.append(SendFrames((id,), data))
        if rest and whole:
            self._out.append(SendFrames(tuple(rest), whole))

    def _send_owed(self, id: PeerId, now: float) -> None:
        """Send a peer the news that it is owed and that is still current, within its limit."""
        peer = self._peers[id]
        while len(peer.owed) > OWED_MAX:
            del peer.owed[next(iter(peer.owed))]
        if peer.is_blocked or not peer.owed:
            return
        current = [news for news in peer.owed if news.is_current()]
        count = len(current) if peer.sending is None else peer.sending.take(len(current), now)
        peer.owed = dict.fromkeys(current[count:])
        if data := b"".join(news.frame(now) for news in current[:count]):
            self._out.append(SendFrames((id,), data))
        if peer.owed and peer.sending is not None:
            self._flush_at = min(self._flush_at, max(peer.sending.ready_at(now), now + GATHER_S))


def _in_order(session: _Session) -> list[_News]:
    """Return the newest statements of a session by number; receivers ignore lower numbers after higher ones."""
    return sorted(set(session.newest.values()), key=lambda news: news.said.seq)
