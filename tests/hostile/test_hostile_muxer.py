"""Attacks on the hub's connections, its WebSockets and its muxer."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from hostile_support import SYNC, Attacker, Refusal, Server, attacking, honest_peers, muxed_attacker, running_server

from gossiplog.errors import GossipLogError, StreamReset
from gossiplog.net.transport.multistream import Proposal
from gossiplog.net.transport.muxed import NEGOTIATION_S
from gossiplog.net.transport.websocket_frames import PING
from gossiplog.net.transport.yamux.frames import Flags, FrameKind, encode_header
from gossiplog.net.transport.yamux.machine import STREAMS_MAX, WINDOW_BYTES

pytestmark = pytest.mark.slow


def opened_and_reset(numbers: Iterable[int]) -> bytes:
    """Frames that open streams and reset them at once."""
    opened, reset = Flags.SYN, Flags.RST
    return b"".join(encode_header(FrameKind.WINDOW, flag, number, 0) for number in numbers for flag in (opened, reset))


async def test_the_ninth_connection_from_one_address_is_refused(server: Server) -> None:
    async with honest_peers(server), trio.open_nursery() as nursery:
        opened = trio.Event()

        async def occupy() -> None:
            async with attacking(server, "10.1.0.1"):
                nonlocal count
                count += 1
                if count == 8:
                    opened.set()
                await trio.sleep_forever()

        count = 0
        for _ in range(8):
            nursery.start_soon(occupy)
        await opened.wait()
        with pytest.raises(Refusal) as refused:
            async with attacking(server, "10.1.0.1"):
                pass
        assert refused.value.status == 503
        async with attacking(server, "10.1.0.2"):
            pass
        nursery.cancel_scope.cancel()


async def test_hundreds_of_silent_connections_and_slow_heads_lock_nobody_out(server: Server) -> None:
    async with honest_peers(server) as watch:
        silent = [await server.tcp() for _ in range(400)]
        for number, stream in enumerate(silent):
            if number % 2:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        with trio.fail_after(5):
            async with attacking(server, "10.1.1.1"):
                pass
        await watch.rounds(2)
        with trio.fail_after(60):
            for stream in silent:
                # Closed by the server: the earlier ones for want of room, the last ones after five seconds.
                try:
                    while await stream.receive_some():
                        pass
                except trio.BrokenResourceError:
                    pass
                await stream.aclose()


async def test_bytes_that_are_no_http_and_heads_that_never_end_are_refused(server: Server) -> None:
    async with honest_peers(server):
        for request in (b"\x16\x03\x01\x02\x00" * 50, b"\0" * 1000, b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n"):
            with trio.fail_after(60):
                status, _ = await server.http(request)
            assert status in (0, 400, 431)


async def test_no_compression_is_agreed_upon(server: Server) -> None:
    async with honest_peers(server), attacking(server, "10.1.2.1", extensions="permessage-deflate; client_max_window_bits") as attacker:
        assert attacker.accepted.extensions == []
        assert attacker.accepted.subprotocol is None


async def test_text_garbage_and_messages_that_are_too_long_end_the_connection(server: Server) -> None:
    def frame(opcode: int, length: int) -> bytes:
        return bytes([0x80 | opcode, 0xFF]) + struct.pack(">Q", length) + bytes(4)

    async with honest_peers(server):
        for number, data in enumerate((frame(2, 5 * 2**20), frame(2, 2**62), frame(1, 100), b"\xff" * 100, b"\x02\x05hello")):
            async with attacking(server, f"10.1.3.{number}") as attacker:
                with trio.fail_after(20):
                    try:
                        await attacker.tcp.send_all(data)
                        for _ in range(100):
                            await attacker.tcp.send_all(bytes(65_536))
                    except trio.BrokenResourceError:
                        pass
                    await attacker.wait_closed()


async def test_message_in_a_million_fragments_is_no_burden(server: Server) -> None:
    fragments = b"\0\x80\0\0\0\0" * 10_000
    async with honest_peers(server, memory_mib=40) as watch, attacking(server, "10.1.4.1") as attacker, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def flood() -> None:
            with suppress(trio.BrokenResourceError):
                await attacker.tcp.send_all(b"\x02\x81\0\0\0\0\0")
                while True:
                    await attacker.tcp.send_all(fragments)

        await watch.rounds(8)
        nursery.cancel_scope.cancel()


async def test_flood_of_websocket_pings_that_nobody_reads_is_bounded(server: Server) -> None:
    async with honest_peers(server) as watch, attacking(server, "10.1.5.1") as attacker, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def flood() -> None:
            with suppress(GossipLogError):
                while True:
                    await attacker.websocket._send(PING, b"x" * 100)

        await watch.rounds(20)
        nursery.cancel_scope.cancel()


def test_page_from_elsewhere_is_refused(tmp_path: Path) -> None:
    async def visit() -> None:
        async with honest_peers(server):
            with pytest.raises(Refusal) as refused:
                async with attacking(server, origin="https://evil.example.com"):
                    pass
            assert refused.value.status == 403
            async with attacking(server, origin="https://good.example.com"):
                pass

    with running_server(tmp_path, "--origin", "https://good.example.com") as server:
        trio.run(visit)


async def test_streams_beyond_128_are_reset_and_the_connection_goes_on(server: Server) -> None:
    async with honest_peers(server), attacking(server, "10.1.6.1") as attacker:
        count = 5_000
        await attacker.send(b"".join(encode_header(FrameKind.WINDOW, Flags.SYN, 2 * n + 1, 0) for n in range(count)))
        # On those that are open an answer is given to what is proposed; it acknowledges the stream.
        proposal = Proposal([SYNC]).start()
        for number in (1, 2 * STREAMS_MAX - 1):
            await attacker.send(encode_header(FrameKind.DATA, 0, number, len(proposal)) + proposal)
        answered, refused = set(), set()
        with trio.fail_after(60):
            data = b""
            while len(answered) < 2 or len(refused) < count - STREAMS_MAX:
                data += await attacker.websocket.receive_some()
                while len(data) >= 12 and len(data) >= (size := _frame_bytes(data)):
                    _, kind, flags, number, _ = struct.unpack_from(">BBHII", data)
                    data = data[size:]
                    if flags == Flags.RST:
                        refused.add(number)
                    elif kind == FrameKind.DATA and flags == Flags.ACK:
                        answered.add(number)
        assert answered == {1, 2 * STREAMS_MAX - 1}
        assert refused == {2 * n + 1 for n in range(STREAMS_MAX, count)}


def _frame_bytes(data: bytes) -> int:
    _, kind, _, _, length = struct.unpack_from(">BBHII", data)
    return 12 + length * (kind == FrameKind.DATA)


async def test_opening_and_resetting_in_a_hurry_is_bounded(server: Server) -> None:
    async with honest_peers(server) as watch, attacking(server, "10.1.7.1") as attacker, trio.open_nursery() as nursery:
        nursery.start_soon(attacker.wait_closed)

        @nursery.start_soon
        async def flood() -> None:
            with suppress(GossipLogError):
                for start in range(1, 4_000_000, 2_000):
                    await attacker.send(opened_and_reset(range(start, start + 2_000, 2)))

        await watch.rounds(20)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_read", [False, True])
async def test_sender_that_ignores_its_window_is_cut_off(server: Server, is_read: bool) -> None:
    async with honest_peers(server, memory_mib=40), attacking(server, f"10.1.8.{is_read:d}") as attacker:
        # The second sync stream of a peer waits for the first, and is not read; one without a protocol is reset.
        for _ in range(2):
            stream = attacker.muxer.open(0.0)
            if not is_read:
                attacker.muxer.write(stream, memoryview(Proposal([SYNC]).start()))
        frame = encode_header(FrameKind.DATA, 0, stream.id, 65_000) + bytes(65_000)
        with trio.fail_after(20):
            with suppress(GossipLogError):
                for _ in range(2_000):
                    await attacker.send(frame)
            await attacker.wait_closed()


async def test_windows_full_of_bytes_on_all_streams_are_bounded(server: Server) -> None:
    async with honest_peers(server, memory_mib=120) as watch, attacking(server, "10.1.9.1") as attacker:
        with trio.fail_after(30):
            with suppress(GossipLogError):
                for _ in range(STREAMS_MAX):
                    stream = attacker.muxer.open(0.0)
                    attacker.muxer.write(stream, memoryview(Proposal([SYNC]).start()))
                    await attacker.send(encode_header(FrameKind.DATA, 0, stream.id, WINDOW_BYTES - 100) + bytes(WINDOW_BYTES - 100))
            await watch.rounds(5)


async def test_flood_of_muxer_pings_that_nobody_reads_is_cut_off(server: Server) -> None:
    async with honest_peers(server), attacking(server, "10.1.10.1") as attacker:
        pings = b"".join(encode_header(FrameKind.PING, Flags.SYN, 0, n) for n in range(10_000))
        with trio.fail_after(30), suppress(GossipLogError):
            while True:
                await attacker.send(pings)


async def test_frames_that_are_no_yamux_end_the_connection(server: Server) -> None:
    async with honest_peers(server):
        for number, data in enumerate(
            (b"\1" + bytes(11), b"\0\7" + bytes(10), encode_header(FrameKind.DATA, Flags.SYN, 2, 0), b"\xff" * 4096)
        ):
            async with attacking(server, f"10.1.11.{number}") as attacker:
                await attacker.send(data)
                with trio.fail_after(60):
                    await attacker.wait_closed()


async def test_streams_that_negotiate_nothing_or_nonsense_are_reset(server: Server) -> None:
    async with honest_peers(server), muxed_attacker(server, "10.1.12.1") as connection:
        for line in (b"\x04/\xff\xfe\n", b"\x81\x08" + b"x" * 1025, b"\xff" * 11, b"\x03na\n" * 100):
            with trio.fail_after(60), pytest.raises(StreamReset):
                stream = await connection.open_stream(["/x"], is_lazy=True)
                await stream.send_all(line)
                stream._proposal = None
                while await stream.receive_some():
                    pass
        assert connection.end is None
        silent = [connection.muxer.open(trio.current_time()) for _ in range(STREAMS_MAX)]
        connection.wake_writer()
        with trio.fail_after(NEGOTIATION_S + 10):
            while not all(stream.is_reset for stream in silent):
                await trio.sleep(0.1)
        assert connection.end is None


async def test_muxer_attacks_all_at_once(server: Server) -> None:
    async def ping_flood(number: int) -> None:
        pings = b"".join(encode_header(FrameKind.PING, Flags.SYN, 0, n) for n in range(1_000))
        await again(number, lambda attacker: attacker.send(pings))

    async def again(number: int, act: Callable[[Attacker], Awaitable[None]]) -> None:
        while True:
            try:
                async with attacking(server, f"10.1.13.{number}") as attacker:
                    while True:
                        await act(attacker)
            except (Refusal, GossipLogError, OSError, trio.BrokenResourceError):
                await trio.sleep(0.01)

    async def rapid_reset(number: int) -> None:
        frames = opened_and_reset(range(1, 1001, 2))
        await again(number, lambda attacker: attacker.send(frames))

    async def over_window(number: int) -> None:
        frame = encode_header(FrameKind.DATA, Flags.SYN, 1, WINDOW_BYTES) + bytes(WINDOW_BYTES)
        more = encode_header(FrameKind.DATA, 0, 1, 1000) + bytes(1000)
        await again(number, lambda attacker: attacker.send(frame + more))

    async with honest_peers(server, memory_mib=150) as watch, trio.open_nursery() as nursery:
        for number, attack in enumerate((ping_flood, rapid_reset, over_window)):
            nursery.start_soon(attack, number)
        await watch.rounds(15)
        nursery.cancel_scope.cancel()
