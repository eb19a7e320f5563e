"""What strangers may do to a host: it stays up, an honest peer is served throughout, and nothing that was taken is kept."""

import errno
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import trio
from mesh_support import BOTH, TCP, WS, a_host, eventually
from muxer_support import echo

from gossiplog.codec.framing import encode_frame
from gossiplog.errors import CannotConnect, ClosedError, RemoteProtocolError, StreamReset
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.ground.protocol_ids import IDENTIFY_PROTOCOLS, PING_PROTOCOLS
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.libp2p import host as host_module
from gossiplog.net.libp2p.identify import ask_identity, measure_ping
from gossiplog.net.libp2p.transport import dial
from gossiplog.net.libp2p.upgrade import upgrade_outbound
from gossiplog.net.transport.multistream import encode_line
from gossiplog.net.transport.muxed import open_muxed
from gossiplog.net.transport.websocket import connect_websocket

ONE, TWO = PeerKey(b"\1" * 32), PeerKey(b"\2" * 32)
HEADER = encode_line("/multistream/1.0.0")
UPGRADE = b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: a\r\n\r\n"
GARBAGE = (
    b"\0" * 100,
    b"\xff" * 100_000,
    b"\x13" + b"x" * 50,
    HEADER + b"\xff" * 50,
    HEADER + encode_line("/plaintext/2.0.0") * 40,
    HEADER + encode_line("/noise") + b"\0\0",
    HEADER + encode_line("/noise") + b"\xff\xff" + b"z" * 70_000,
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 10_000,
    b"POST / HTTP/1.1\r\nhost: x\r\n" + UPGRADE,
    b"GET / HTTP/1.1\r\nhost: \xff\xfe\r\n" + UPGRADE,
    b"GET / HTTP/1.1\r\nhost: x\r\nsec-websocket-extensions: \xff\r\n" + UPGRADE,
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


@asynccontextmanager
async def muxed_with(host, key=ONE, handlers=None):
    """A connection with a host by somebody who has the handshakes right, and may do as they like afterwards."""
    stream = await dial(host.addresses[0], None)
    secured = await upgrade_outbound(stream, key, None)
    async with open_muxed(secured, is_client=True, peer=secured.peer, handlers=handlers or {}) as connection:
        yield connection


async def is_served(host):
    """Show that an honest peer gets its answers."""
    async with a_host() as honest:
        with trio.fail_after(5):
            connection = await honest.connect(host.id, host.announced)
            assert await measure_ping(connection) < 5


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_ends_the_connection_that_it_came_on(garbage):
    async with a_host(*BOTH) as host:
        async with await trio.open_tcp_stream("127.0.0.1", host.addresses[0].port) as stream:
            with trio.fail_after(5):
                try:
                    await stream.send_all(garbage)
                    await stream.send_eof()
                    while await stream.receive_some():
                        pass
                except trio.BrokenResourceError:
                    pass
        await is_served(host)
        await eventually(lambda: host.admission.open == 0)


async def test_garbage_after_the_handshake_ends_the_connection():
    async with a_host(TCP) as host:
        secured = await upgrade_outbound(await dial(host.addresses[0], None), ONE, host.id)
        await secured.send_all(b"\x07" * 500)
        with trio.fail_after(5):
            while await secured.receive_some():
                pass
        await secured.aclose()
        await is_served(host)


async def test_a_protocol_name_that_is_no_text_ends_its_stream_and_nothing_else():
    async with a_host(TCP) as host, muxed_with(host, handlers=await introducing()) as connection:
        stream = connection.muxer.open(trio.current_time())
        connection.muxer.write(stream, memoryview(HEADER + b"\x05\xff\xfe\xfd\xfc\n"))
        connection.wake_writer()
        await eventually(lambda: stream.is_reset)
        assert connection.end is None
        await is_served(host)


async def introducing():
    """The handlers of a peer that says who it is, and nothing more."""
    async with a_host(key=ONE) as host:
        return dict(host._handlers)


async def test_a_handler_that_fails_ends_its_stream_and_nothing_else():
    async def fail(connection, stream):
        raise ZeroDivisionError

    async with a_host(TCP, handlers={"/fail": fail, "/echo": echo}) as host, a_host() as other:
        connection = await other.connect(host.id, host.announced)
        for _ in range(3):
            with pytest.raises(StreamReset):
                # Its end may come before the answer to the protocol is read.
                await (await connection.open_stream(["/fail"])).receive_some()
        stream = await connection.open_stream(["/echo"])
        await stream.send_all(b"still here")
        assert await stream.receive_some() == b"still here"


async def test_what_fails_in_serving_a_connection_ends_that_connection():
    served = []

    async def fail(peering):
        served.append(peering.connection.peer)
        raise ZeroDivisionError

    async with a_host(TCP, serve=fail) as host, a_host() as other:
        connection = await other.connect(host.id, host.announced)
        with trio.fail_after(5):
            await connection.wait_ended()
        assert served == [other.id]
        await eventually(lambda: host.peers == [])


async def test_what_fails_in_dialling_ends_that_dial(monkeypatch):
    async def fail(*args):
        raise ValueError("whatever a stranger may cause")

    async with a_host(TCP) as host, a_host(TCP) as other:
        with monkeypatch.context() as patched:
            patched.setattr(host_module, "upgrade_outbound", fail)
            with pytest.raises(CannotConnect, match="a fault of ours"):
                await host.connect(None, other.announced)
        await host.connect(None, other.announced)


async def test_a_host_without_sockets_says_so_once_and_goes_on(monkeypatch, caplog):
    accept = trio.SocketListener.accept
    failures = iter(range(3))

    async def fail(listener):
        if next(failures) == 2:
            monkeypatch.setattr(trio.SocketListener, "accept", accept)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(trio.SocketListener, "accept", fail)
    async with a_host(TCP) as host:
        await is_served(host)
    assert [record.event for record in caplog.records if record.levelname == "ERROR"] == ["out of sockets"]


async def test_silent_connections_do_not_keep_others_out():
    async with a_host(TCP) as host, AsyncExitStack() as stack:
        for _ in range(3 * host.admission.limits.half_open_max):
            await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", host.addresses[0].port))
        await eventually(lambda: host.admission.half_open == host.admission.limits.half_open_max)
        await is_served(host)
        assert host.admission.half_open <= host.admission.limits.half_open_max


async def test_a_handshake_has_its_time():
    async with a_host(TCP, limits=HubLimits(handshake_s=0.05)) as host:
        async with await trio.open_tcp_stream("127.0.0.1", host.addresses[0].port) as stream:
            # Its time may be over before our header is there.
            with trio.fail_after(60), suppress(trio.BrokenResourceError):
                await stream.send_all(HEADER)
                while await stream.receive_some():
                    pass
        await eventually(lambda: host.admission.half_open == 0)


async def test_a_byte_at_a_time_is_no_way_to_stay_in_the_handshake():
    async with a_host(TCP, limits=HubLimits(handshake_s=0.1)) as host:
        stream = await trio.open_tcp_stream("127.0.0.1", host.addresses[0].port)
        with trio.fail_after(60), pytest.raises(trio.BrokenResourceError):
            while True:
                await stream.send_all(HEADER[:1])
                await trio.sleep(0.01)
        await stream.aclose()


async def test_three_hundred_connections_are_more_than_are_taken():
    async with a_host(TCP, limits=HubLimits(connections_max=40)) as host, AsyncExitStack() as stack:
        refused = 0
        for _ in range(300):
            stream = await trio.open_tcp_stream("127.0.0.1", host.addresses[0].port)
            await stack.enter_async_context(stream)
        await eventually(lambda: host.admission.open <= 40)
        async with a_host() as late:
            try:
                await late.connect(host.id, host.announced)
            except CannotConnect:
                refused += 1
        assert refused == 1
    async with a_host(TCP, limits=HubLimits(connections_max=40)) as host:
        async with AsyncExitStack() as stack:
            for _ in range(300):
                await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", host.addresses[0].port))
        await is_served(host)


async def test_one_peer_has_no_more_than_three_connections():
    async with a_host(TCP) as host, AsyncExitStack() as stack:
        handlers = await introducing()
        connections = [await stack.enter_async_context(muxed_with(host, handlers=handlers)) for _ in range(5)]
        await eventually(lambda: sum(connection.end is not None for connection in connections) == 2)
        assert len(host.peerings) == 3
        await is_served(host)


@pytest.mark.parametrize("answer", [b"", b"\xff" * 20, encode_frame(b"\xff" * 20), encode_frame(b""), b"\x80\x80\x80\x01"])
async def test_a_peer_that_does_not_introduce_itself_is_let_go(answer):
    async def say(connection, stream):
        if answer:
            await stream.send_all(answer)

    async with a_host(TCP) as host, muxed_with(host, handlers=dict.fromkeys(IDENTIFY_PROTOCOLS, say)) as connection:
        if answer != encode_frame(b""):
            with trio.fail_after(5):
                await connection.wait_ended()
            assert host.peers == []
        else:
            # An empty message says nothing that is wrong: a peer that speaks no protocol.
            await eventually(lambda: host.peers == [ONE.id])
        await is_served(host)


async def test_a_peer_that_claims_another_ones_key_is_let_go():
    async with a_host(TCP, key=TWO) as two:
        async with a_host() as other:
            connection = await other.connect(TWO.id, two.announced)
            # The very words of another peer.
            stream = await connection.open_stream(IDENTIFY_PROTOCOLS)
            words = bytearray()
            while data := await stream.receive_some():
                words += data

        async def lie(connection, stream):
            await stream.send_all(bytes(words))

        async with a_host(TCP) as host, muxed_with(host, handlers=dict.fromkeys(IDENTIFY_PROTOCOLS, lie)) as connection:
            with trio.fail_after(5):
                await connection.wait_ended()
            assert host.peers == []


async def test_an_answer_to_a_ping_has_to_be_what_was_sent():
    async def lie(connection, stream):
        await stream.receive_some()
        await stream.send_all(bytes(32))

    async with a_host(TCP) as host:
        handlers = {**await introducing(), **dict.fromkeys(PING_PROTOCOLS, lie)}
        async with muxed_with(host, handlers=handlers):
            await eventually(lambda: host.peers == [ONE.id])
            with pytest.raises(RemoteProtocolError, match="not what was sent"):
                await measure_ping(host.peerings[0].connection)


async def test_a_ping_stream_takes_any_amount_and_holds_little():
    async with a_host(TCP) as host, muxed_with(host, handlers=await introducing()) as connection:
        stream = await connection.open_stream(PING_PROTOCOLS)
        sent = bytes(range(32)) * 1000
        received = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, sent)
            with trio.fail_after(5):
                while len(received) < len(sent):
                    received += await stream.receive_some()
        assert received == sent
        assert (await ask_identity(connection)).agent.startswith("gossiplog")


async def test_a_server_that_says_nothing_is_given_up(autojump_clock):
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listeners[0] as silent, a_host() as host:
        with pytest.raises(CannotConnect, match="no answer within 5 s"):
            await host.connect(TWO.id, [Address("ip4", "127.0.0.1", silent.socket.getsockname()[1])])


@pytest.mark.parametrize(
    ("origin", "origins", "is_let_in"),
    [
        ("https://evil.example", None, False),
        ("null", None, False),
        ("http://localhost:5173", None, True),
        ("https://app.example.com", {"https://app.example.com"}, True),
        ("http://localhost:5173", {"https://app.example.com"}, False),
        (None, {"https://app.example.com"}, True),
    ],
)
async def test_pages_get_no_further_than_at_a_hub(origin, origins, is_let_in):
    limits = HubLimits(origins=None if origins is None else frozenset(origins))
    async with a_host(WS, limits=limits) as host, AsyncExitStack() as stack:
        stream = await dial(host.addresses[0], None)
        stack.push_async_callback(stream.aclose)
        opening = connect_websocket(stream, f"127.0.0.1:{host.addresses[0].port}", "/", [("Origin", origin)] if origin else [])
        with trio.fail_after(5):
            if is_let_in:
                await upgrade_outbound(await opening, ONE, host.id)
            else:
                with pytest.raises(RemoteProtocolError, match=r"403: pages from there may not connect"):
                    await opening


async def test_peers_behind_a_proxy_are_counted_by_the_addresses_that_it_reports():
    limits = HubLimits(connections_per_address=2, proxies=frozenset({"127.0.0.1"}))
    ready = []

    async def serve(peering):
        ready.append(peering)
        await peering.connection.wait_ended()

    async with a_host(WS, limits=limits, serve=serve) as host, AsyncExitStack() as stack:

        async def connect(number, client):
            key = PeerKey(bytes([number]) * 32)
            websocket = await dial(host.addresses[0], None)
            stack.push_async_callback(websocket.aclose)
            headers = [("X-Forwarded-For", f"198.51.100.9, {client}")]
            secured = await upgrade_outbound(await connect_websocket(websocket, "peer.example.com", "/", headers), key, host.id)
            await stack.enter_async_context(open_muxed(secured, is_client=True, peer=secured.peer, handlers=handlers[number]))

        handlers = {}
        for number in range(1, 5):
            async with a_host(key=PeerKey(bytes([number]) * 32)) as one:
                handlers[number] = dict(one._handlers)
        for number in (1, 2):
            await connect(number, "203.0.113.7")
        with trio.fail_after(5), pytest.raises((RemoteProtocolError, ClosedError)):
            await connect(3, "203.0.113.7")
        await connect(4, "2001:db8::7")
        await eventually(lambda: len(ready) == 3)
        assert [peering.connection.address for peering in ready] == ["203.0.113.7", "203.0.113.7", "2001:db8::7"]
        assert all(peering.is_counted for peering in ready)
