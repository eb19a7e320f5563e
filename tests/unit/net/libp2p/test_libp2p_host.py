import contextlib
import functools

import pytest
import trio
from mesh_support import BOTH, TCP, WS, a_host, eventually, free_place, until_ended
from muxer_support import Bytes, echo
from network_support import client_tls, make_certificate, server_tls
from trio.testing import memory_stream_pair

from gossiplog.errors import CannotConnect, CannotListen, ClosedError, RemoteProtocolError
from gossiplog.net.ground.protocol_ids import PING_PROTOCOLS, YAMUX
from gossiplog.net.libp2p import Address, Host, PeerKey
from gossiplog.net.libp2p import noise as noise_module
from gossiplog.net.libp2p.identify import measure_ping
from gossiplog.net.libp2p.noise import secure
from gossiplog.net.libp2p.transport import dial
from gossiplog.net.libp2p.upgrade import upgrade_inbound, upgrade_outbound
from gossiplog.net.transport.multistream import encode_line

ONE, TWO = PeerKey(b"\1" * 32), PeerKey(b"\2" * 32)


@pytest.mark.parametrize("address", BOTH, ids=("tcp", "websocket"))
async def test_two_hosts_connect_and_introduce_themselves(address):
    async with a_host(address, handlers={"/echo": echo}) as one, a_host(address) as two:
        connection = await two.connect(one.id, one.announced)
        await eventually(lambda: one.peers == [two.id])
        assert two.peers == [one.id]
        (ours,), (theirs,) = two.peerings, one.peerings
        assert ours.identity.addresses == one.announced
        assert {"/echo", "/canvas/id/1.0.0", "/ipfs/id/1.0.0", "/canvas/ping/1.0.0", "/ipfs/ping/1.0.0"} <= ours.identity.protocols
        assert ours.identity.record is not None
        assert (ours.connection.is_outbound, theirs.connection.is_outbound) == (True, False)
        assert theirs.identity.addresses == two.announced
        assert 0 < await measure_ping(connection) < 5
        stream = await connection.open_stream(["/echo"])
        await stream.send_all(b"hello")
        assert await stream.receive_some() == b"hello"
        assert await two.connect(one.id, one.announced) is connection
    assert (one.peers, two.peers) == ([], [])


async def test_tcp_and_websocket_share_a_port():
    place = free_place()
    websocket = Address("ip4", "127.0.0.1", place.port, is_websocket=True)
    async with a_host(place, websocket) as one, a_host() as two, a_host() as three:
        assert one.addresses == (place, websocket)
        await two.connect(one.id, [place])
        await three.connect(one.id, [websocket])
        await eventually(lambda: len(one.peers) == 2)


async def test_an_address_that_is_taken_is_an_error_and_frees_the_others():
    async with a_host(TCP) as one:
        taken = one.addresses[0]
        with pytest.raises(CannotListen, match=str(taken)):
            async with a_host(place := free_place(), taken):
                pass
        async with a_host(place):
            pass


async def test_the_end_of_a_host_is_the_end_of_its_connections_and_its_port():
    async with a_host() as two:
        async with a_host(TCP) as one:
            connection = await two.connect(one.id, one.announced)
        await connection.wait_ended()
        await eventually(lambda: two.peers == [])
        with pytest.raises(CannotConnect, match="Connection refused"):
            await two.connect(one.id, one.announced)


@pytest.mark.parametrize("address", BOTH, ids=("tcp", "websocket"))
async def test_a_connection_that_was_closed_is_not_said_to_have_broken(address, caplog):
    caplog.set_level("DEBUG", "gossiplog.net")
    async with a_host(address) as one:
        async with a_host(address) as two:
            await two.connect(one.id, one.announced)
            await eventually(lambda: one.peers == [two.id])
            (peering,) = one.peerings
        end = await peering.connection.wait_ended()
        assert end == "the peer closed it"
        await eventually(lambda: one.peers == [])
    assert not any("broke" in record.getMessage() or "broke" in str(vars(record).get("fields")) for record in caplog.records)


async def test_whoever_answers_at_an_address_has_to_be_the_one_that_was_dialled():
    async with a_host(TCP) as one, a_host() as two:
        with pytest.raises(CannotConnect, match=f"dialled {TWO.id}, and {one.id} answered"):
            await two.connect(TWO.id, one.announced)
        assert two.peers == []


async def test_a_host_does_not_connect_with_itself():
    async with a_host(TCP) as one:
        with pytest.raises(CannotConnect, match="it is this server itself"):
            await one.connect(None, [one.addresses[0]])


async def test_those_who_dial_a_peer_at_the_same_moment_share_one_connection():
    async with a_host(WS) as one, a_host() as two:
        found = []

        async def connect():
            found.append(await two.connect(one.id, one.announced))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(connect)
        assert len(set(found)) == 1
        await eventually(lambda: len(one.peerings) == 1)


async def test_a_dial_that_is_given_up_leaves_nothing_behind():
    async with a_host() as one:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listeners[0] as silent:
            place = Address("ip4", "127.0.0.1", silent.socket.getsockname()[1])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.connect, TWO.id, [place])
                async with await silent.accept() as accepted:
                    assert b"/noise" in await accepted.receive_some()
                    nursery.cancel_scope.cancel()
                    with trio.CancelScope(shield=True):
                        assert await accepted.receive_some() == b""
        assert one.peerings == []


async def test_of_several_addresses_the_first_that_works_is_used():
    async with a_host(TCP) as one, a_host() as two:
        nowhere = Address("ip4", "127.0.0.1", 1)
        await two.connect(one.id, [nowhere, *one.announced])
        assert two.peerings[0].dialled == one.announced[0]


async def test_two_that_dial_each_other_at_the_same_moment_stay_connected():
    async with a_host(TCP) as one, a_host(TCP) as two:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.connect, two.id, two.announced)
            nursery.start_soon(two.connect, one.id, one.announced)
        await eventually(lambda: len(one.peerings) == len(two.peerings) >= 1)
        assert one.peers == [two.id]
        for peering in one.peerings[1:]:
            await peering.connection.aclose()
        await eventually(lambda: len(two.peerings) == 1)
        assert 0 < await measure_ping(one.peerings[0].connection) < 5


async def secured_pair(dialler_muxers=(YAMUX,), **dialled):
    """Shake hands over loopback; return both sides, or what they raised."""
    near, far = memory_stream_pair()
    results = {}

    async def run(name, task):
        try:
            results[name] = await task
        except (ClosedError, RemoteProtocolError) as error:
            results[name] = error
            await (near if name == "dialler" else far).aclose()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, "dialler", secure(Bytes(near), ONE, dialler_muxers, is_initiator=True, **dialled))
            nursery.start_soon(run, "listener", secure(Bytes(far), TWO, (YAMUX,), is_initiator=False))
    return results["dialler"], results["listener"]


async def test_noise_proves_both_sides_and_tells_their_muxers():
    dialler, listener = await secured_pair(peer=TWO.id)
    assert (dialler.peer, listener.peer) == (TWO.id, ONE.id)
    assert dialler.muxers == listener.muxers == (YAMUX,)


async def test_what_is_sent_through_noise_arrives_whole_whatever_its_size():
    dialler, listener = await secured_pair()
    for size in (1, 65_519, 65_520, 300_000):
        data = bytes(index % 251 for index in range(size))
        received = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dialler.send_all, data)
            while len(received) < size:
                received += await listener.receive_some()
        assert received == data
    await dialler.aclose()
    assert await listener.receive_some() == b""


async def test_a_forged_message_ends_the_stream():
    dialler, listener = await secured_pair()
    await dialler._stream.send_all(b"\x00\x20" + b"x" * 32)
    with pytest.raises(ClosedError, match="forged"):
        await listener.receive_some()


async def test_a_message_that_is_cut_short_is_not_taken_for_the_end():
    dialler, listener = await secured_pair()
    await dialler._stream.send_all(b"\x00\x20" + b"x" * 5)
    await dialler.aclose()
    with pytest.raises(ClosedError, match="within a noise message"):
        await listener.receive_some()


async def test_the_wrong_peer_is_found_out_by_the_dialler():
    dialler, listener = await secured_pair(peer=ONE.id)
    assert isinstance(dialler, RemoteProtocolError)
    assert isinstance(listener, ClosedError)


async def test_a_peer_that_cannot_prove_its_key_is_refused(monkeypatch):
    real = noise_module._payload_of

    def lie(key, muxers):
        return real(key, muxers).replace(ONE.public, TWO.public)

    monkeypatch.setattr(noise_module, "_payload_of", lie)
    _, listener = await secured_pair()
    assert isinstance(listener, RemoteProtocolError)
    assert "did not prove" in str(listener)


@pytest.mark.parametrize("message", [b"", b"x", b"x" * 31, b"x" * 32, bytes(32), b"x" * 200, b"\xff" * 5000])
async def test_what_is_no_handshake_is_an_error_of_the_other_side(message):
    near, far = memory_stream_pair()
    await near.send_all(len(message).to_bytes(2, "big") + message)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.send_all, b"\x00\x60" + b"y" * 96)
            with pytest.raises((RemoteProtocolError, ClosedError)):
                await secure(Bytes(far), TWO, (YAMUX,), is_initiator=False)
    await near.aclose()


async def test_the_muxer_is_agreed_upon_afterwards_with_a_peer_that_offers_none_in_noise():
    near, far = memory_stream_pair()
    results = {}

    async def listen():
        results["listener"] = await upgrade_inbound(Bytes(far), TWO)

    async def dial_without_extension():
        stream = Bytes(near)
        await stream.send_all(encode_line("/multistream/1.0.0") + encode_line("/noise"))
        received = b""
        while not received.endswith(b"/noise\n"):
            received += await stream.receive_some()
        secured = await secure(stream, ONE, (), is_initiator=True)
        await secured.send_all(encode_line("/multistream/1.0.0") + encode_line("/mplex/6.7.0") + encode_line(YAMUX))
        received = b""
        while not received.endswith(b"/yamux/1.0.0\n"):
            received += await secured.receive_some()
        assert b"na\n" in received

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            nursery.start_soon(dial_without_extension)
    assert results["listener"].peer == ONE.id


async def test_a_peer_with_another_muxer_alone_is_refused():
    near, far = memory_stream_pair()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def dial_with_mplex():
                stream = Bytes(near)
                await stream.send_all(encode_line("/multistream/1.0.0") + encode_line("/noise"))
                while not (await stream.receive_some()).endswith(b"/noise\n"):
                    pass
                await secure(stream, ONE, ("/mplex/6.7.0",), is_initiator=True)

            nursery.start_soon(dial_with_mplex)
            with pytest.raises(RemoteProtocolError, match="no muxer in common"):
                await upgrade_inbound(Bytes(far), TWO)


async def test_a_host_that_speaks_no_noise_is_told_apart(nursery):
    async def refuse(stream):
        await stream.receive_some()
        await stream.send_all(encode_line("/multistream/1.0.0") + encode_line("na"))

    listeners = await nursery.start(trio.serve_tcp, refuse, 0)
    place = Address("ip4", "127.0.0.1", listeners[0].socket.getsockname()[1])
    async with a_host() as one:
        with pytest.raises(CannotConnect, match="does not speak noise"):
            await one.connect(TWO.id, [place])


async def test_upgrading_is_the_same_from_the_diallers_side():
    async with a_host(TCP, key=TWO) as one:
        stream = await dial(one.addresses[0], None)
        assert (await upgrade_outbound(stream, ONE, TWO.id)).peer == TWO.id
        await stream.aclose()


async def test_a_connection_of_a_crashed_peer_gives_way_when_it_is_back(autojump_clock):
    async def say_nothing(connection, stream):
        await trio.sleep_forever()

    async with a_host(TCP) as host, a_host(key=ONE) as before:
        await before.connect(host.id, host.announced)
        await eventually(lambda: len(host.peerings) == 1)
        # Its process has stopped without a word.
        before._handlers.maps[0].update(dict.fromkeys(PING_PROTOCOLS, say_nothing))
        async with a_host(key=ONE) as again:
            await again.connect(host.id, host.announced)
            await eventually(lambda: len(host.peerings) == 2)
            await eventually(lambda: len(host.peerings) == 1)
            assert before.peers == []
            assert again.peers == [host.id]


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_peer_behind_a_proxy_with_tls_is_dialled_if_its_certificate_is_good(tmp_path, is_trusted, nursery):
    paths = make_certificate(tmp_path)
    async with a_host(WS) as one:
        port = one.addresses[0].port

        async def forward(source, target):
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while data := await source.receive_some():
                    await target.send_all(data)
                await target.aclose()

        async def proxy(stream):
            async with await trio.open_tcp_stream("127.0.0.1", port) as behind, trio.open_nursery() as both:
                both.start_soon(forward, stream, behind)
                with contextlib.suppress(trio.BrokenResourceError):
                    await forward(behind, stream)
                both.cancel_scope.cancel()

        serve = functools.partial(trio.serve_ssl_over_tcp, proxy, 0, server_tls(paths), https_compatible=True)
        listeners = await nursery.start(serve)
        public = Address("dns4", "localhost", listeners[0].transport_listener.socket.getsockname()[1], is_websocket=True, is_tls=True)
        tls = client_tls(paths) if is_trusted else None
        async with Host(PeerKey.generate(), serve=until_ended, handlers={}, tls=tls).listening([]) as two:
            if is_trusted:
                await two.connect(one.id, [public])
                assert two.peers == [one.id]
            else:
                with pytest.raises(CannotConnect, match="TLS failed"):
                    await two.connect(one.id, [public])
    nursery.cancel_scope.cancel()


async def test_tls_is_left_to_a_proxy():
    with pytest.raises(CannotListen, match="TLS"):
        async with a_host(Address.parse("/ip4/127.0.0.1/tcp/0/wss")):
            pass
