import logging
from functools import partial
from random import Random

import pytest
import trio
from muxer_support import Bytes, echo, muxed_pair, tcp_pair
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from gossiplog.errors import ClosedError, LocalProtocolError, ProtocolNotSupported, RemoteProtocolError, StreamReset
from gossiplog.net import open_muxed
from gossiplog.net.transport.multistream import MULTISTREAM, Proposal, encode_line
from gossiplog.net.transport.muxed import KEEP_ALIVE_S, NEGOTIATION_S, OUTPUT_BYTES_MAX, SEND_S, PromptHandler
from gossiplog.net.transport.yamux.frames import Flags, FrameKind, encode_header
from gossiplog.net.transport.yamux.machine import QUEUE_BYTES, STREAMS_MAX, WINDOW_BYTES, Yamux
from gossiplog.pubsub.types import PeerId

ECHO = {"/echo": echo}


class Bare:
    """A peer that does only what it is told: the other end of the bytes, and a muxer without tasks."""

    def __init__(self, stream):
        self.stream = stream
        self.muxer = Yamux(is_client=True)

    async def send(self, data=b""):
        await self.stream.send_all(self.muxer.take() + data)

    async def receive(self):
        return self.muxer.receive(await self.stream.receive_some(), 0.0)

    def open(self, protocol="/echo"):
        stream = self.muxer.open(0.0)
        self.muxer.write(stream, memoryview(Proposal([protocol]).start()))
        return stream


def muxed_and_bare(handlers=None):
    ours, theirs = memory_stream_pair()
    return open_muxed(Bytes(ours), is_client=False, peer=PeerId("bare"), handlers=handlers), Bare(theirs)


async def use_echo(connection, data=b"hello"):
    """Show that a connection is as good as new."""
    with trio.fail_after(5):
        stream = await connection.open_stream(["/echo"])
        await stream.send_all(data)
        stream.close_sending()
        received = b""
        while piece := await stream.receive_some():
            received += piece
        assert received == data


async def test_a_stream_carries_bytes_both_ways_and_ends_each_way_by_itself():
    async with muxed_pair({}, ECHO) as (client, server):
        stream = await client.open_stream(["/echo"])
        assert stream.protocol == "/echo"
        await stream.send_all(b"one")
        assert await stream.receive_some() == b"one"
        await stream.send_all(b"two")
        stream.close_sending()
        stream.close_sending()
        assert await stream.receive_some(2) == b"tw"
        assert await stream.receive_some() == b"o"
        assert await stream.receive_some() == b""
        assert await stream.receive_some() == b""
        with pytest.raises(ClosedError):
            await stream.send_all(b"more")
        assert client.streams == server.streams == []
        assert client.streams_opened == server.streams_accepted == 1
        assert client.bytes_out == server.bytes_in


async def test_either_side_opens_streams():
    async with muxed_pair(ECHO, ECHO) as (client, server):
        await use_echo(client)
        await use_echo(server)
        assert client.is_outbound
        assert not server.is_outbound


async def test_the_first_protocol_that_the_peer_speaks_is_taken():
    async with muxed_pair({}, ECHO) as (client, _):
        stream = await client.open_stream(["/newer", "/echo", "/older"])
        assert stream.protocol == "/echo"
        with pytest.raises(ProtocolNotSupported):
            await client.open_stream(["/newer"])
        await use_echo(client)


async def test_protocols_that_nobody_serves_are_no_warning(caplog):
    async with muxed_pair({}, ECHO) as (client, _):
        for _ in range(5):
            with pytest.raises(ProtocolNotSupported):
                await client.open_stream(["/canvas/v1/one.example/sync"])
        await use_echo(client)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_lazy_stream_sends_at_once_and_reads_the_answer_later():
    connecting, bare = muxed_and_bare()
    async with connecting as connection:
        stream = await connection.open_stream(["/echo"], is_lazy=True)
        await stream.send_all(b"data")
        arrived = b""
        while not arrived.endswith(b"data"):
            await bare.receive()
            for far in bare.muxer.streams:
                arrived += bare.muxer.read(far, 1000, 0.0)
        assert arrived == Proposal(["/echo"]).start() + b"data"
        bare.muxer.write(far, memoryview(b"\x13/multistream/1.0.0\n\x06/echo\nanswer"))
        await bare.send()
        assert await stream.receive_some(3) == b"ans"
        assert await stream.receive_some() == b"wer"


async def test_a_lazy_stream_is_one_frame_with_the_proposal_and_what_is_said_first():
    connecting, bare = muxed_and_bare()
    async with connecting as connection:
        stream = await connection.open_stream(["/echo"], is_lazy=True)
        await stream.send_all(b"data")
        proposal = Proposal(["/echo"]).start()
        with trio.fail_after(60):
            arrived = b""
            while b"data" not in arrived:
                arrived += await bare.stream.receive_some()
        assert encode_header(FrameKind.DATA, Flags.SYN, 2, len(proposal) + 4) + proposal + b"data" in arrived
        assert connection.traffic[""].bytes_out == len(proposal)
        assert connection.traffic["/echo"].bytes_out == 4


@pytest.mark.parametrize("say", ["read", "close", "wait"])
async def test_a_lazy_stream_whose_owner_says_nothing_is_proposed_all_the_same(say):
    async with muxed_pair({}, ECHO) as (client, server):
        stream = await client.open_stream(["/echo"], is_lazy=True)
        await wait_all_tasks_blocked()
        assert server.streams_accepted == 0
        async with trio.open_nursery() as nursery:
            if say == "close":
                stream.close_sending()
            else:
                nursery.start_soon(stream.receive_some if say == "read" else partial(stream.hand_on, bool))
            await wait_all_tasks_blocked()
            assert server.streams_accepted == 1
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_early", [False, True], ids=["proposal alone", "with a question"])
@pytest.mark.parametrize("does", ["answer", "read", "close"])
async def test_the_agreement_goes_out_with_the_answer_to_what_came_with_the_proposal(is_early, does):
    may_go_on = trio.Event()

    async def serve(connection, stream):
        await may_go_on.wait()
        if does == "answer":
            await stream.send_all(b"answer")
        elif does == "read":
            while await stream.receive_some():
                pass

    connecting, bare = muxed_and_bare({"/prompt": PromptHandler(serve)})
    agreement = b"".join(map(encode_line, (MULTISTREAM, "/prompt")))

    async def arrive():
        before = len(far.buffer)
        while len(far.buffer) == before:
            await bare.receive()

    async with connecting:
        far = bare.muxer.open(0.0)
        bare.muxer.write(far, memoryview(Proposal(["/prompt"]).start() + b"question" * is_early))
        await bare.send()
        with trio.fail_after(60):
            if is_early:
                # Whoever asks with the proposal waits for no more than an answer.
                await wait_all_tasks_blocked()
                may_go_on.set()
                await arrive()
                assert far.buffer == agreement + b"answer" * (does == "answer")
            else:
                await arrive()
                assert far.buffer == agreement
                may_go_on.set()


async def test_a_lazy_stream_that_is_refused_says_so_when_it_is_read():
    async with muxed_pair({}, ECHO) as (client, server):
        stream = await client.open_stream(["/unknown"], is_lazy=True)
        with pytest.raises(ProtocolNotSupported):
            await stream.receive_some()
        with pytest.raises(StreamReset):
            await stream.send_all(b"x")
        await use_echo(client)
        await wait_all_tasks_blocked()
        assert server.streams == []


@pytest.mark.parametrize("is_lazy", [False, True])
async def test_a_peer_that_does_not_negotiate_is_given_up_after_a_while(autojump_clock, is_lazy):
    connecting, _ = muxed_and_bare(ECHO)
    async with connecting as connection:
        started = trio.current_time()
        with pytest.raises(StreamReset, match="in time"):
            await (await connection.open_stream(["/echo"], is_lazy=is_lazy)).receive_some()
        assert trio.current_time() - started == pytest.approx(NEGOTIATION_S)
        assert connection.streams == []


async def test_a_stream_whose_opener_does_not_negotiate_is_reset_after_a_while(autojump_clock):
    connecting, bare = muxed_and_bare(ECHO)
    async with connecting as connection:
        far = bare.muxer.open(0.0)
        await bare.send()
        await trio.sleep(NEGOTIATION_S + 1)
        await bare.receive()
        assert far.is_reset
        assert connection.streams == []


async def test_a_handler_that_raises_resets_its_stream_only_and_is_logged(caplog):
    async def fails(connection, stream):
        await stream.receive_some()
        raise ZeroDivisionError("on purpose")

    async def misbehaved(connection, stream):
        raise RemoteProtocolError("bad event")

    async with muxed_pair({}, {"/fails": fails, "/misbehaved": misbehaved, **ECHO}) as (client, _):
        good = await client.open_stream(["/echo"])
        stream = await client.open_stream(["/fails"])
        await stream.send_all(b"x")
        with pytest.raises(StreamReset):
            await stream.receive_some()
        with pytest.raises(StreamReset):
            other = await client.open_stream(["/misbehaved"])
            await other.receive_some()
        await good.send_all(b"good")
        assert await good.receive_some() == b"good"
    logged = [record for record in caplog.records if record.name == "gossiplog.net" and record.levelno >= logging.WARNING]
    assert [(record.levelno, record.event, record.fields) for record in logged] == [
        (logging.ERROR, "stream failed", {"peer": "client", "protocol": "/fails", "reason": "on purpose"}),
        (logging.WARNING, "stream failed", {"peer": "client", "protocol": "/misbehaved", "reason": "bad event"}),
    ]


async def test_names_that_are_too_long_or_no_utf8_end_their_stream_only():
    connecting, bare = muxed_and_bare(ECHO)
    async with connecting as connection:
        for line in (b"\x04/\xff\xfe\n", b"\x81\x08" + b"x" * 1025, b"\xff\xff\xff\xff\xff"):
            far = bare.muxer.open(0.0)
            bare.muxer.write(far, memoryview(b"\x13/multistream/1.0.0\n" + line))
            await bare.send()
            while not far.is_reset:
                await bare.receive()
        assert connection.end is None
        far = bare.open()
        await bare.send()
        while not far.buffer.endswith(b"/echo\n"):
            await bare.receive()


async def test_cancelling_an_open_a_read_or_a_write_harms_nothing(autojump_clock):
    async def stuck(connection, stream):
        await trio.sleep_forever()

    async with muxed_pair({}, {"/stuck": stuck, **ECHO}) as (client, server):
        with trio.move_on_after(0) as scope:
            await client.open_stream(["/echo"])
        assert scope.cancelled_caught
        assert client.streams == []
        stream = await client.open_stream(["/stuck"])
        with trio.move_on_after(0.01) as scope:
            await stream.send_all(bytes(4 * WINDOW_BYTES))
        assert scope.cancelled_caught
        with trio.move_on_after(0.01) as scope:
            await stream.receive_some()
        assert scope.cancelled_caught
        await use_echo(client)
        await wait_all_tasks_blocked()
        assert WINDOW_BYTES - 1000 < len(server.muxer.streams[0].buffer) <= WINDOW_BYTES
        stream.reset()
        await use_echo(client, bytes(4 * WINDOW_BYTES))


async def test_a_cancelled_write_has_sent_a_part_and_the_next_one_follows_it():
    received = bytearray()
    is_released = trio.Event()

    async def keep(connection, stream):
        await is_released.wait()
        while data := await stream.receive_some():
            received.extend(data)
        await stream.send_all(b"end")

    async with muxed_pair({}, {"/keep": keep}) as (client, _):
        stream = await client.open_stream(["/keep"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, b"a" * 2 * WINDOW_BYTES)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        is_released.set()
        await stream.send_all(b"b" * WINDOW_BYTES)
        stream.close_sending()
        assert await stream.receive_some() == b"end"
    sent = len(received) - WINDOW_BYTES
    assert WINDOW_BYTES - 1000 < sent <= WINDOW_BYTES, "the window, less what the negotiation took of it"
    assert bytes(received) == b"a" * sent + b"b" * WINDOW_BYTES


async def test_one_task_at_a_time_reads_and_one_writes(autojump_clock):
    async def stuck(connection, stream):
        await trio.sleep_forever()

    async with muxed_pair({}, {"/stuck": stuck}) as (client, _), trio.open_nursery() as nursery:
        stream = await client.open_stream(["/stuck"])
        nursery.start_soon(stream.receive_some)
        nursery.start_soon(stream.send_all, bytes(4 * WINDOW_BYTES))
        await wait_all_tasks_blocked()
        with pytest.raises(LocalProtocolError):
            await stream.receive_some()
        with pytest.raises(LocalProtocolError):
            await stream.send_all(b"x")
        nursery.cancel_scope.cancel()


async def test_two_way_bulk_on_many_streams_does_not_block_itself():
    size = 3 * WINDOW_BYTES
    counts = []

    async def both_ways(stream):
        received = 0

        async def read():
            nonlocal received
            while data := await stream.receive_some():
                received += len(data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await stream.send_all(bytes(size))
            stream.close_sending()
        counts.append(received)

    async def serve(connection, stream):
        await both_ways(stream)

    async def start(connection):
        await both_ways(await connection.open_stream(["/bulk"]))

    for pair in (memory_stream_pair(), await tcp_pair()):
        async with muxed_pair({"/bulk": serve}, {"/bulk": serve}, pair=pair) as (client, server):
            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    for _ in range(8):
                        nursery.start_soon(start, client)
                        nursery.start_soon(start, server)
    assert len(counts) >= 32
    assert set(counts) == {size}


async def test_a_stream_that_nobody_reads_holds_up_no_other(autojump_clock):
    async def stuck(connection, stream):
        await trio.sleep_forever()

    async with muxed_pair({}, {"/stuck": stuck, **ECHO}) as (client, _), trio.open_nursery() as nursery:
        for _ in range(5):
            stream = await client.open_stream(["/stuck"])
            nursery.start_soon(stream.send_all, bytes(10 * WINDOW_BYTES))
        for _ in range(20):
            await use_echo(client, bytes(1000))
        nursery.cancel_scope.cancel()


async def test_sender_that_ignores_its_window_is_dropped_and_nothing_more_is_kept(autojump_clock):
    async def stuck(connection, stream):
        await trio.sleep_forever()

    connecting, bare = muxed_and_bare({"/stuck": stuck})
    async with connecting as connection:
        far = bare.open("/stuck")
        await bare.send()
        await wait_all_tasks_blocked()
        frame = encode_header(FrameKind.DATA, 0, far.id, 60_000) + bytes(60_000)
        for _ in range(5):
            await bare.send(frame)
        with trio.fail_after(5):
            end = await connection.wait_ended()
        assert "had room for" in end
        assert connection.bytes_in < WINDOW_BYTES + 2 * 65_536


async def test_the_129th_stream_is_reset_while_the_others_live(autojump_clock):
    async def stuck(connection, stream):
        await trio.sleep_forever()

    connecting, bare = muxed_and_bare({"/stuck": stuck})
    async with connecting as connection:
        streams = [bare.open("/stuck") for _ in range(STREAMS_MAX)]
        await bare.send(encode_header(FrameKind.WINDOW, Flags.SYN, 9999, 0))
        await wait_all_tasks_blocked()
        assert len(connection.streams) == STREAMS_MAX
        assert connection.streams_accepted == STREAMS_MAX
        assert connection.end is None
        assert not any(stream.is_reset for stream in streams)


async def test_opening_and_resetting_in_a_hurry_starts_no_more_handlers_than_there_are_places(autojump_clock):
    running = most = 0

    async def stuck(connection, stream):
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await trio.sleep_forever()
        finally:
            running -= 1

    connecting, bare = muxed_and_bare({"/stuck": stuck})
    async with connecting as connection:
        for _ in range(5 * STREAMS_MAX):
            stream = bare.muxer.open(0.0)
            bare.muxer.write(stream, memoryview(Proposal(["/stuck"]).start()))
            await bare.send()
            bare.muxer.reset(stream)
            await bare.send()
            await trio.lowlevel.checkpoint()
        assert connection.end is None
    assert 0 < most <= STREAMS_MAX


async def test_peer_that_reads_nothing_but_pings_is_dropped_at_four_mebibytes():
    ours, theirs = await tcp_pair()
    async with open_muxed(Bytes(ours), is_client=False, peer=PeerId("bare")) as connection:
        pings = b"".join(encode_header(FrameKind.PING, Flags.SYN, 0, n) for n in range(10_000))
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def flood():
                    while True:
                        await theirs.send_all(pings)

                end = await connection.wait_ended()
                nursery.cancel_scope.cancel()
        assert end.endswith("wait for a peer that does not read")
        assert connection.muxer.queued_bytes <= OUTPUT_BYTES_MAX + 4 * 65_536
    await theirs.aclose()


async def test_data_for_a_slow_reader_waits_with_its_owner(autojump_clock):
    async def source(connection, stream):
        await stream.send_all(bytes(4 * WINDOW_BYTES))

    connecting, bare = muxed_and_bare({"/source": source})
    async with connecting as connection:
        for _ in range(20):
            stream = bare.open("/source")
            bare.muxer._send(FrameKind.WINDOW, 0, stream.id, 2**32 - 1)
        await bare.send()
        await wait_all_tasks_blocked()
        assert connection.muxer.queued_bytes <= QUEUE_BYTES + 65_536


async def test_peer_that_takes_nothing_for_a_minute_is_dropped(mock_clock):
    class Stuck(Bytes):
        async def send_all(self, data):
            await trio.sleep_forever()

    ours, theirs = memory_stream_pair()
    async with open_muxed(Stuck(ours), is_client=False, peer=PeerId("bare")) as connection:
        await wait_all_tasks_blocked()
        for _ in range(int(SEND_S)):
            mock_clock.jump(1)
            if connection.end is None:
                await theirs.send_all(encode_header(FrameKind.WINDOW, 0, 7, 1))
            await wait_all_tasks_blocked()
        assert connection.end is not None
        assert connection.end == f"the peer read nothing for {SEND_S:.0f} s"


async def test_pings_go_out_at_once_and_every_thirty_seconds(autojump_clock):
    connecting, bare = muxed_and_bare()
    async with connecting as connection:
        for value in range(5):
            data = await bare.stream.receive_some()
            assert trio.current_time() % KEEP_ALIVE_S == pytest.approx(0, abs=1e-6)
            assert data == encode_header(FrameKind.PING, Flags.SYN, 0, value)
            await bare.stream.send_all(encode_header(FrameKind.PING, Flags.ACK, 0, value))
        await wait_all_tasks_blocked()
        assert connection.end is None
        assert connection.muxer.round_trip_s == pytest.approx(0, abs=0.1)


async def test_two_sides_with_nothing_to_say_ping_once_a_minute_each_at_most(autojump_clock):
    async with muxed_pair() as (client, server):
        await trio.sleep(5.0)
        quiet = client.bytes_out + server.bytes_out
        await trio.sleep(280.0)
        # A ping and its answer are 24 bytes. Both look at the same moments here; else the ping of one would spare the other's.
        assert client.bytes_out + server.bytes_out - quiet <= 2 * 4 * 24
        assert client.end is server.end is None


async def test_peer_that_falls_silent_is_dropped_whenever_it_does(autojump_clock):
    for silent_at in (1.0, 29.0, 31.0, 100.0, 305.0):
        connecting, bare = muxed_and_bare()
        async with connecting as connection, trio.open_nursery() as nursery:

            async def answer(bare=bare):
                while True:
                    await bare.receive()
                    await bare.send()

            nursery.start_soon(answer)
            await trio.sleep(silent_at)
            assert connection.end is None
            nursery.cancel_scope.cancel()
            started = trio.current_time()
            assert await connection.wait_ended() == "no sign of life for 30 s"
            assert trio.current_time() - started <= 3 * KEEP_ALIVE_S


async def test_peer_that_gives_no_sign_of_life_is_dropped(autojump_clock):
    connecting, _bare = muxed_and_bare()
    started = trio.current_time()
    async with connecting as connection:
        stream = await connection.open_stream(["/x"], is_lazy=True)
        end = await connection.wait_ended()
        assert end == "no sign of life for 30 s"
        assert trio.current_time() - started <= 2 * KEEP_ALIVE_S
        with pytest.raises(StreamReset):
            await stream.send_all(b"x")


async def test_peer_that_sends_but_leaves_a_ping_unanswered_is_kept(autojump_clock):
    connecting, bare = muxed_and_bare()
    async with connecting as connection:
        for _ in range(12):
            await bare.stream.send_all(encode_header(FrameKind.WINDOW, 0, 7, 1))
            await trio.sleep(10)
        assert connection.end is None


async def test_leaving_the_block_tells_the_peer_and_resets_its_calls():
    async def wait(connection, stream):
        with pytest.raises(StreamReset):
            while await stream.receive_some():
                pass
            await stream.send_all(b"x")
            await connection.wait_ended()
            await stream.send_all(b"x")
        ended.append(connection.end)

    ended = []
    left, right = memory_stream_pair()
    async with open_muxed(Bytes(right), is_client=False, peer=PeerId("client"), handlers={"/wait": wait}) as server:
        async with open_muxed(Bytes(left), is_client=True, peer=PeerId("server")) as client:
            await client.open_stream(["/wait"])
        assert client.end == "closed by us"
        with trio.fail_after(60):
            end = await server.wait_ended()
        assert end == "the peer closed it"
    assert ended == [server.end]
    with pytest.raises(StreamReset):
        await server.open_stream(["/wait"])


async def test_what_was_sent_before_the_close_arrives():
    received = bytearray()

    async def keep(connection, stream):
        while data := await stream.receive_some():
            received.extend(data)

    left, right = memory_stream_pair()
    async with open_muxed(Bytes(right), is_client=False, peer=PeerId("client"), handlers={"/keep": keep}) as server:
        async with open_muxed(Bytes(left), is_client=True, peer=PeerId("server")) as client:
            stream = await client.open_stream(["/keep"])
            await stream.send_all(bytes(WINDOW_BYTES))
        await server.wait_ended()
    assert len(received) == WINDOW_BYTES


async def test_a_broken_line_resets_the_streams_and_is_told_to_the_owner():
    ours, theirs = memory_stream_pair()
    async with open_muxed(Bytes(ours), is_client=True, peer=PeerId("peer")) as connection, trio.open_nursery() as nursery:
        stream = await connection.open_stream(["/x"], is_lazy=True)

        @nursery.start_soon
        async def read():
            with pytest.raises(StreamReset):
                await stream.receive_some()

        await wait_all_tasks_blocked()
        await ours.aclose()
        end = await connection.wait_ended()
        assert end == "the stream is broken"
        assert theirs is not None


async def test_a_block_that_raises_raises_what_it_raised_and_ends_the_handlers(autojump_clock):
    ended = trio.Event()

    async def stuck(connection, stream):
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    with pytest.raises(ZeroDivisionError):
        async with muxed_pair({}, {"/stuck": stuck}) as (client, _):
            await client.open_stream(["/stuck"])
            raise ZeroDivisionError
    assert ended.is_set()


async def test_closing_takes_no_longer_than_its_deadline_when_the_peer_reads_nothing(autojump_clock):
    class Stuck(Bytes):
        async def send_all(self, data):
            await trio.sleep_forever()

        async def aclose(self):
            await trio.sleep_forever()

    ours, _theirs = memory_stream_pair()
    started = trio.current_time()
    async with open_muxed(Stuck(ours), is_client=True, peer=PeerId("peer")) as connection:
        await wait_all_tasks_blocked()
        await connection.aclose()
        await connection.aclose()
    assert trio.current_time() - started <= 4.01


async def test_no_stream_of_bytes_can_raise_into_the_owners_block(caplog):
    class Broken(Bytes):
        async def receive_some(self):
            raise ZeroDivisionError("a bug below")

    ours, _theirs = memory_stream_pair()
    async with open_muxed(Broken(ours), is_client=True, peer=PeerId("peer")) as connection:
        end = await connection.wait_ended()
        assert end == "a bug below"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("seed", range(6))
async def test_connection_survives_calls_that_are_cancelled_at_random(seed):
    rng = Random(seed)
    whole = []

    async def busy(connection, number):
        for _ in range(12):
            with trio.move_on_after(rng.choice([0, 0, 0.0005, 0.002, 0.01, 60])):
                stream = None
                try:
                    stream = await connection.open_stream(["/echo"], is_lazy=rng.random() < 0.5)
                    data = bytes([number]) * rng.choice([1, 100, 70_000, 600_000])
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(stream.send_all, data)
                        received = 0
                        while received < len(data):
                            piece = await stream.receive_some(rng.choice([1, 1000, 65_536]))
                            assert piece == data[: len(piece)]
                            assert piece
                            received += len(piece)
                    whole.append(received)
                finally:
                    if stream is not None:
                        stream.reset() if rng.random() < 0.7 else stream.close_sending()

    async with muxed_pair(ECHO, ECHO, pair=await tcp_pair() if seed % 2 else None) as (client, server):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(busy, client if number % 2 else server, number)
        assert client.end is server.end is None
        await use_echo(client, bytes(WINDOW_BYTES * 2))
        await use_echo(server, bytes(WINDOW_BYTES * 2))
    assert whole
