from collections import OrderedDict
from functools import partial
from hashlib import sha256
from random import Random

import pytest
import trio
from mesh_support import TCP, TOPIC, a_host, a_peer, eventually, free_place

import gossiplog
from gossiplog import Ed25519Signer
from gossiplog.codec.framing import encode_frame
from gossiplog.errors import RemoteProtocolError
from gossiplog.net.discovery import AddressBook, RoutingTable, Walk
from gossiplog.net.discovery import book as book_module
from gossiplog.net.discovery.kademlia import QUESTIONS_BURST, QUESTIONS_PER_S, answer_closer, ask_closer
from gossiplog.net.discovery.table import ALPHA, BUCKET_SIZE, place_of
from gossiplog.net.ground.protocol_ids import kad_protocol
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.libp2p.addresses import Reach, Teller
from gossiplog.net.libp2p.records import ADDRESSES_MAX, seal_record
from gossiplog.pubsub.events import ConnectFailed, Probed
from gossiplog.pubsub.types import PeerId, peer_id_bytes, peer_id_text

KAD = kad_protocol(TOPIC)
PLACE = Address.parse("/ip4/192.0.2.1/tcp/4001")
FAR, NEAR = Teller("203.0.113.1", Reach.WORLD), Teller("a peer", Reach.MACHINE)


def peers(count, seed=1):
    rng = Random(seed)
    return [PeerId(peer_id_text(b"\x00\x24\x08\x01\x12\x20" + rng.randbytes(32))) for _ in range(count)]


def test_a_place_is_the_hash_of_the_ids_bytes():
    (peer,) = peers(1)
    assert place_of(peer) == int.from_bytes(sha256(peer_id_bytes(peer)).digest(), "big")


def test_buckets_hold_twenty_and_the_oldest_stay():
    me, *others = peers(2000)
    table = RoutingTable(me)
    added = [peer for peer in others if table.add(peer)]
    assert [len(bucket) for bucket in table.buckets()[:4]] == [BUCKET_SIZE] * 4
    assert len(table) == len(added) == sum(len(bucket) for bucket in table.buckets())
    assert list(table.buckets()[0]) == [peer for peer in others if table.bucket_of(peer) == 0][:BUCKET_SIZE]
    assert not table.add(me)
    assert table.add(added[0])


def test_a_peer_that_left_makes_room():
    me, *others = peers(100)
    table = RoutingTable(me)
    first, *_, late = [peer for peer in others if table.bucket_of(peer) == 0]
    for peer in others:
        table.add(peer)
    assert late not in table
    table.remove(first)
    table.remove(first)
    assert table.add(late)


def test_the_closest_are_those_of_a_plain_sort():
    me, *others = peers(300)
    table = RoutingTable(me)
    known = [peer for peer in others if table.add(peer)]
    for key in (b"", b"key", peer_id_bytes(others[5])):
        place = int.from_bytes(sha256(key).digest(), "big")
        assert table.closest(key) == sorted(known, key=lambda peer: place_of(peer) ^ place)[:BUCKET_SIZE]


def test_searches_lead_into_each_bucket_down_to_the_deepest():
    me, *others = peers(500)
    table = RoutingTable(me)
    for peer in others:
        table.add(peer)
    deepest = max(index for index, bucket in enumerate(table.buckets()) if bucket)
    own, *keys = table.targets(Random(1))
    assert own == peer_id_bytes(me)
    places = [int.from_bytes(sha256(key).digest(), "big") ^ place_of(me) for key in keys]
    assert [256 - place.bit_length() for place in places] == list(range(min(deepest + 1, 10)))


def test_a_search_through_a_network_finds_the_closest_of_all():
    everybody = peers(400, seed=2)
    tables = {}
    for peer in everybody:
        tables[peer] = RoutingTable(peer)
        for other in Random(peer).sample(everybody, 100):
            tables[peer].add(other)
    for key in (b"one", b"two", b"three"):
        walk = Walk(key, everybody[0], tables[everybody[0]].closest(key))
        asked = 0
        while not walk.is_over:
            peer = walk.next()
            if peer is not None:
                asked += 1
                walk.on_answer(peer, tables[peer].closest(key))
        place = int.from_bytes(sha256(key).digest(), "big")
        best = sorted(everybody[1:], key=lambda peer: place_of(peer) ^ place)
        assert len(set(walk.found()[:10]) & set(best[:10])) >= 8
        assert asked <= 48


def test_a_search_asks_three_at_a_time_and_goes_on_without_those_that_do_not_answer():
    me, *others = peers(40)
    walk = Walk(b"key", me, others[:10])
    first = [walk.next() for _ in range(ALPHA + 1)]
    assert first[-1] is None
    assert not walk.is_over
    for peer in first[:ALPHA]:
        walk.on_failure(peer)
    while (peer := walk.next()) is not None:
        walk.on_failure(peer)
    assert walk.is_over
    assert walk.found() == []


def test_a_lying_peer_cannot_make_a_search_endless():
    me, *others = peers(3000)
    walk = Walk(b"key", me, others[:3])
    invented = iter(others[3:])
    asked = 0
    while (peer := walk.next()) is not None:
        asked += 1
        walk.on_answer(peer, [next(invented) for _ in range(20)])
    assert walk.is_over
    assert asked <= 48


def test_the_book_is_bounded_and_what_a_peer_says_itself_counts_most(monkeypatch):
    monkeypatch.setattr(book_module, "BOOK_MAX", 10)
    book = AddressBook(Random(1))
    everybody = peers(30)
    for peer in everybody:
        book.learn(peer, [PLACE], teller=FAR)
        book.on_failed(peer, 0.0)
    assert len(book) == len(book._failed) == 10
    peer = everybody[-1]
    own = Address.parse("/ip4/192.0.2.7/tcp/1")
    book.learn(peer, [own], teller=FAR, is_own_word=True)
    assert book.of(peer) == (own.of(peer),)
    book.learn(peer, [Address("ip4", "192.0.2.8", port) for port in range(1, 100)], teller=FAR)
    assert len(book.of(peer)) == ADDRESSES_MAX
    book.on_reached(peer, book.of(peer)[3])
    assert book.of(peer)[0].host == "192.0.2.8"


def test_nobody_far_can_send_us_to_our_own_loopback():
    book = AddressBook(Random(1))
    (peer,) = peers(1)
    near = Address.parse("/ip4/127.0.0.1/tcp/22")
    book.learn(peer, [near, Address.parse("/ip6/::1/tcp/22")], teller=FAR)
    assert book.of(peer) == ()
    book.learn(peer, [near], teller=NEAR)
    assert book.of(peer) == (near.of(peer),)


def test_a_peer_that_cannot_be_reached_is_tried_ever_less_often():
    book = AddressBook(Random(1))
    (peer,) = peers(1)
    now, waits = 0.0, []
    for _ in range(12):
        book.on_failed(peer, now)
        began = now
        while not book.may_try(peer, now):
            now += 0.25
        waits.append(now - began)
    assert waits[0] <= 1.5
    assert waits[-1] >= 300
    book.on_reached(peer, None)
    assert book.may_try(peer, now)


async def test_a_question_is_answered_with_those_that_are_closest():
    known = peers(3)

    def closest(key):
        return [(peer, (PLACE.of(peer),)) for peer in known]

    async with a_host(TCP, handlers={KAD: partial(answer_closer, closest, OrderedDict())}) as host, a_host() as other:
        connection = await other.connect(host.id, host.announced)
        assert await ask_closer(connection, KAD, b"key") == {peer: (PLACE.of(peer),) for peer in known}


@pytest.mark.parametrize(
    "question", [b"\xff" * 10, encode_frame(b"\xff" * 10), encode_frame(b""), encode_frame(b"\x08\x00"), b"\xff\xff\x7f"]
)
async def test_a_question_that_makes_no_sense_ends_its_stream(question):
    async with a_host(TCP, handlers={KAD: partial(answer_closer, lambda key: [], OrderedDict())}) as host, a_host() as other:
        connection = await other.connect(host.id, host.announced)
        stream = await connection.open_stream([KAD])
        await stream.send_all(question)
        with pytest.raises(gossiplog.errors.StreamReset):
            await stream.receive_some()
        assert await ask_closer(connection, KAD, b"key") == {}


class Flood:
    """A stream, and the connection of who opened it, on which questions come as fast as they are answered."""

    def __init__(self, peer):
        self.peer = peer
        self.answered = []

    async def receive_some(self):
        return encode_frame(b"\x08\x04\x12\x03key")

    async def send_all(self, data):
        self.answered.append(trio.current_time())


async def test_whoever_asks_without_end_is_answered_slowly_and_nobody_else(autojump_clock):
    liar, honest = peers(2)
    floods, askers = [Flood(liar), Flood(liar), Flood(honest)], OrderedDict()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for flood in floods[:2]:
            nursery.start_soon(answer_closer, lambda key: [], askers, flood, flood)
        await trio.sleep(5)
        nursery.start_soon(answer_closer, lambda key: [], askers, floods[2], floods[2])
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    by_liar = sorted(floods[0].answered + floods[1].answered)
    assert by_liar[QUESTIONS_BURST - 1] == began
    assert len(by_liar) <= QUESTIONS_BURST + 6 * QUESTIONS_PER_S
    assert len(floods[2].answered) >= QUESTIONS_BURST


async def test_an_answer_that_makes_no_sense_is_an_error_of_the_peer():
    async def lie(connection, stream):
        await stream.receive_some()
        await stream.send_all(encode_frame(b"\x42\x02\x0a\x00"))

    async with a_host(TCP, handlers={KAD: lie}) as host, a_host() as other:
        connection = await other.connect(host.id, host.announced)
        with pytest.raises(RemoteProtocolError, match="kademlia"):
            await ask_closer(connection, KAD, b"key")


async def test_peers_find_each_other_through_one_that_they_know():
    async with a_peer() as first:
        bootstrap = first.host.announced[0]
        async with a_peer(bootstrap) as second, a_peer(bootstrap) as third, a_peer(bootstrap) as fourth:
            meshes = (first, second, third, fourth)
            await eventually(lambda: all(len(mesh.host.peers) == 3 for mesh in meshes))
            await eventually(lambda: all(len(mesh.discovery.table) == 3 for mesh in meshes))


async def test_a_bootstrap_address_needs_no_peer_id():
    async with a_peer() as first, a_peer(first.host.announced[0].of(None)) as second:
        await eventually(lambda: second.host.peers == [first.host.id])


async def test_a_peer_that_was_lost_is_found_again_when_it_is_back():
    key, place = PeerKey.generate(), free_place()
    async with a_peer(place.of(key.id)) as second:
        for _ in range(2):
            async with a_peer(key=key, listen=(place,)):
                await eventually(lambda: second.host.peers == [key.id])
            await eventually(lambda: second.host.peers == [])


async def test_the_router_connects_with_a_peer_by_its_signed_record_and_by_nothing_less():
    async with a_peer() as near, a_peer() as middle, a_peer() as far:
        await middle.host.connect(near.host.id, near.host.announced)
        await eventually(lambda: near.host.peers == [middle.host.id])
        told = []
        near.service.host.tell, tell = told.append, near.service.host.tell
        forged = seal_record(PeerKey.generate(), far.host.announced, 1)
        for record in (None, b"garbage", forged):
            near.discovery.connect(far.host.id, record, middle.host.id)
        await eventually(lambda: sum(isinstance(event, ConnectFailed) for event in told) == 3)
        near.service.host.tell = tell
        near.discovery.connect(far.host.id, seal_record(far.host.key, far.host.announced, 1), middle.host.id)
        await eventually(lambda: far.host.id in near.host.peers)


async def test_a_probe_measures_and_says_when_there_is_nothing_to_measure():
    async with a_peer() as one, a_peer() as two:
        await one.host.connect(two.host.id, two.host.announced)
        told = []
        one.service.host.tell = told.append
        one.discovery.probe(two.host.id)
        one.discovery.probe(peers(1)[0])
        await eventually(lambda: sum(isinstance(event, Probed) for event in told) == 2)
        found = {event.peer: event.rtt_s for event in told if isinstance(event, Probed)}
        assert 0 < found[two.host.id] < 5
        assert found[peers(1)[0]] is None


async def test_when_the_table_of_connections_is_nearly_full_old_ones_make_room():
    async with a_peer() as one:
        for _ in range(2):
            async with a_peer() as other:
                await other.host.connect(one.host.id, one.host.announced)
        assert one.discovery._surplus() == []
        async with a_peer() as other, gossiplog.open(":memory:", topic=TOPIC, signer=Ed25519Signer.generate()):
            await other.host.connect(one.host.id, one.host.announced)
            await eventually(lambda: len(one.host.peerings) == 1)
            one.host.admission.limits = type(one.host.admission.limits)(connections_max=1)
            # It is young.
            assert one.discovery._surplus() == []
            object.__setattr__(one.host.peerings[0], "opened_at", trio.current_time() - 100)
            used = [peer for topic in one.service.state().router.topics for peer in topic.full_message]
            assert [peering.connection.peer for peering in one.discovery._surplus()] == [
                peer for peer in one.host.peers if peer not in used
            ]
