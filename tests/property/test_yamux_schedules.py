"""Two muxers under any schedule of calls and of bytes under way, against lists of what was written and read."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossiplog.errors import ClosedError, RemoteProtocolError, StreamReset
from gossiplog.net.transport.multistream import Offer, Proposal
from gossiplog.net.transport.yamux.machine import GROWTH_BYTES, STREAMS_MAX, WINDOW_BYTES, StreamState, Yamux

PATTERN = bytes(n % 251 for n in range(251 * 4200))


@dataclass
class Way:
    """One direction of one stream as it should be."""

    written: int = 0
    read: int = 0
    is_closed: bool = False
    is_dropped: bool = False
    """The reader threw away what came."""


@dataclass
class End:
    stream: StreamState
    out: Way
    into: Way
    is_reset_here: bool = False
    is_released: bool = False


@dataclass
class Side:
    muxer: Yamux
    wire: bytearray = field(default_factory=bytearray)
    """What it sent and the other side has not received."""
    ends: dict[int, End] = field(default_factory=dict)


class Pair:
    """Both sides, and the model."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = 0.0
        self.sides = [Side(Yamux(is_client=True)), Side(Yamux(is_client=False))]
        self.ways: dict[int, tuple[Way, Way]] = {}

    def step(self) -> None:
        here = self.rng.randrange(2)
        side = self.sides[here]
        self.now += self.rng.choice([0, 0.001, 1])
        action = self.rng.choice(["open", "write", "write", "read", "read", "close", "reset", "release", "ping", "carry", "carry", "carry"])
        if action == "open":
            self.open(here)
        elif action == "ping":
            side.muxer.ping(self.now)
        elif action == "carry":
            self.carry(here, self.rng.choice([1, 11, 30, 5_000, 10_000_000]))
        elif side.ends:
            end = self.rng.choice(list(side.ends.values()))
            if action == "write":
                self.write(side, end, self.rng.choice([0, 1, 100, 70_000, 300_000]))
            elif action == "read":
                self.read(side, end, self.rng.choice([1, 100, 65_536, 400_000]))
            elif action == "close" and self.rng.random() < 0.3:
                side.muxer.close(end.stream)
                end.out.is_closed = True
            elif action == "reset" and self.rng.random() < 0.1:
                end.is_reset_here = not end.stream.is_over or end.is_reset_here
                end.into.is_dropped = True
                side.muxer.reset(end.stream)
            elif action == "release" and self.rng.random() < 0.2 and end.stream.is_inbound:
                self.release(side, end)
        self.check()

    def open(self, here: int) -> None:
        try:
            stream = self.sides[here].muxer.open(self.now)
        except StreamReset:
            assert sum(not end.stream.is_inbound for end in self.sides[here].ends.values() if not end.stream.is_over) == STREAMS_MAX
            return
        out, into = self.ways[stream.id] = Way(), Way()
        self.sides[here].ends[stream.id] = End(stream, out, into)

    def release(self, side: Side, end: End) -> None:
        end.is_released = end.out.is_closed = end.into.is_dropped = True
        side.muxer.release(end.stream)

    def write(self, side: Side, end: End, size: int) -> None:
        start = end.out.written % 251
        try:
            sent = side.muxer.write(end.stream, memoryview(PATTERN)[start : start + size])
        except ClosedError:
            assert end.out.is_closed
        except StreamReset:
            assert end.stream.is_reset
        else:
            assert sent <= size
            end.out.written += sent

    def read(self, side: Side, end: End, size: int) -> int:
        if end.is_released:
            return 0
        try:
            data = side.muxer.read(end.stream, size, self.now)
        except StreamReset:
            assert end.stream.is_reset
            return 0
        start = end.into.read % 251
        assert data == PATTERN[start : start + len(data)]
        end.into.read += len(data)
        assert end.into.read <= end.into.written
        if not data and end.stream.is_finished_receiving and not end.into.is_dropped:
            assert end.into.is_closed
            assert end.into.read == end.into.written
        return len(data)

    def carry(self, here: int, size: int) -> int:
        side, other = self.sides[here], self.sides[1 - here]
        while chunk := side.muxer.take(self.rng.choice([1, 1000, 65_536])):
            side.wire += chunk
        data = bytes(side.wire[:size])
        del side.wire[:size]
        changed = other.muxer.receive(data, self.now)
        while other.muxer.is_behind:
            changed += other.muxer.receive(b"", self.now)
        for stream in changed:
            if stream.is_new:
                stream.is_new = False
                into, out = self.ways[stream.id]
                other.ends[stream.id] = End(stream, out, into)
        return len(data)

    def check(self) -> None:
        for side in self.sides:
            held = 0
            for end in side.ends.values():
                stream = end.stream
                assert 0 <= stream.credit <= stream.window
                if not stream.is_released:
                    assert stream.credit + len(stream.buffer) <= stream.window
                held += stream.window - WINDOW_BYTES if not stream.is_over else 0
                assert stream.send_window >= 0
                assert not (end.is_reset_here and stream.buffer)
            assert held <= GROWTH_BYTES
            assert side.muxer._unread == sum(len(end.stream.buffer) for end in side.ends.values() if end.stream.is_inbound)

    def settle(self) -> None:
        """Carry and read until nothing moves."""
        is_moving = True
        while is_moving:
            is_moving = False
            for here in (0, 1):
                is_moving |= self.carry(here, 10_000_000) > 0
                for end in self.sides[here].ends.values():
                    is_moving |= self.read(self.sides[here], end, 1_000_000) > 0
        self.check()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 400))
def test_any_schedule_loses_nothing_and_keeps_the_windows(seed, steps):
    pair = Pair(Random(seed))
    for _ in range(steps):
        pair.step()
    pair.settle()
    for side, other in (pair.sides, pair.sides[::-1]):
        for number, end in side.ends.items():
            far = other.ends[number]
            assert end.stream.is_reset == far.stream.is_reset or end.stream.is_over
            if end.is_reset_here:
                assert end.stream.is_reset
            if not end.into.is_dropped:
                # Of a stream that its sender reset as well: the reset comes after what was written.
                assert end.into.read == end.into.written
            if not end.stream.is_reset and not end.into.is_dropped:
                assert end.stream.is_finished_receiving == end.into.is_closed
    for side in pair.sides:
        for end in side.ends.values():
            side.muxer.reset(end.stream)
            end.into.is_dropped = True
            if end.stream.is_inbound:
                pair.release(side, end)
    pair.settle()
    for side in pair.sides:
        assert side.muxer.streams == []
        assert side.muxer.queued_bytes == 0
        assert len([side.muxer.open(0.0) for _ in range(STREAMS_MAX)]) == STREAMS_MAX, "every place is free again"
    for side, other in (pair.sides, pair.sides[::-1]):
        assert len({stream.id for stream in other.muxer.receive(side.muxer.take(), 0.0) if stream.is_new}) == STREAMS_MAX


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_streams_up_to_the_limit_and_beyond_are_refused_and_nothing_else(seed):
    rng = Random(seed)
    pair = Pair(rng)
    for _ in range(STREAMS_MAX):
        pair.open(0)
    pair.settle()
    for _ in range(100):
        end = rng.choice(list(pair.sides[0].ends.values()))
        pair.sides[0].muxer.reset(end.stream)
        pair.open(0)
        pair.carry(0, rng.choice([5, 100, 10_000]))
        far = rng.choice(list(pair.sides[1].ends.values()))
        pair.release(pair.sides[1], far)
    pair.settle()
    alive = sum(stream.is_inbound for stream in pair.sides[1].muxer.streams)
    assert alive <= STREAMS_MAX


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(["/a", "/b", "/c", "/é"]), min_size=1, max_size=4),
    st.sets(st.sampled_from(["/a", "/b", "/é"])),
)
def test_negotiation_finds_the_first_protocol_that_both_speak_however_it_is_cut(seed, wanted, spoken):
    rng = Random(seed)
    proposal, offer = Proposal(wanted), Offer(spoken)
    expected = next((protocol for protocol in wanted if protocol in spoken), None)
    to_offer, to_proposal = proposal.start(), b""

    def exchange():
        nonlocal to_offer, to_proposal
        while to_offer or to_proposal:
            cut = rng.randrange(1, 30)
            if rng.random() < 0.5:
                data, to_offer = to_offer[:cut], to_offer[cut:]
                to_proposal += offer.receive(data)
            else:
                data, to_proposal = to_proposal[:cut], to_proposal[cut:]
                to_offer += proposal.receive(data)

    if expected is None:
        with pytest.raises(Exception, match="does not speak"):
            exchange()
    else:
        exchange()
    assert proposal.protocol == offer.protocol == expected


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
def test_damage_on_the_line_is_found_or_harmless_but_never_anything_else(seed):
    rng = Random(seed)
    pair = Pair(rng)
    for _ in range(60):
        pair.step()
    for _ in range(20):
        side = pair.sides[rng.randrange(2)]
        if side.wire:
            side.wire[rng.randrange(len(side.wire))] = rng.randrange(256)
        other = pair.sides[1 - pair.sides.index(side)]
        try:
            other.muxer.receive(bytes(side.wire[:2_000]), pair.now)
        except RemoteProtocolError:
            assert other.muxer.is_leaving
            return
        del side.wire[:2_000]
        for stream in other.muxer.streams:
            assert len(stream.buffer) + stream.credit <= stream.window or stream.is_released
