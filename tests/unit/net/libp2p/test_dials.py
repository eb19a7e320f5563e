"""What others can have us dial: each place, address and teller has a bound, and nobody can send us where it cannot go itself."""

from collections import OrderedDict
from functools import partial
from random import Random

import pytest
import trio
from mesh_support import TOPIC, a_host, a_peer, eventually

from gossiplog.errors import CannotConnect
from gossiplog.net.discovery import AddressBook
from gossiplog.net.discovery.kademlia import answer_closer
from gossiplog.net.ground.protocol_ids import kad_protocol
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.libp2p.addresses import Reach, Teller, reach_of
from gossiplog.net.libp2p.dials import DialGuard, check_reach
from gossiplog.net.libp2p.records import read_addresses

LIAR = Teller("203.0.113.9", Reach.WORLD)
NEIGHBOUR = Teller("10.0.0.7", Reach.NETWORK)
NEAR = Teller("a peer", Reach.MACHINE)


def tried(guard, addresses, seconds):
    """How many dials are made when every address is tried each second, and none leads anywhere."""
    count = 0
    for second in range(seconds):
        for address in addresses:
            try:
                guard.begin(address, float(second))
            except CannotConnect:
                continue
            count += 1
    return count


def test_one_place_is_dialled_ever_less_often():
    place = Address.parse("/ip4/127.0.0.1/tcp/22").told_by(NEAR)
    assert 4 <= tried(DialGuard(Random(1)), [place], 60) <= 7


def test_ports_of_one_address_share_an_allowance():
    places = [Address("ip4", "198.51.100.1", port).told_by(Teller(f"198.51.100.{port}", Reach.WORLD)) for port in range(1, 40)]
    assert tried(DialGuard(Random(1)), places, 60) <= 8 + 6
    group = [Address("ip6", f"2001:db8::{n:x}", 1).told_by(Teller(f"198.51.100.{n}", Reach.WORLD)) for n in range(1, 40)]
    assert tried(DialGuard(Random(1)), group, 60) <= 8 + 6


def test_one_teller_has_an_allowance_for_all_that_it_names():
    places = [Address("ip4", f"198.51.100.{number}", 4001).told_by(LIAR) for number in range(1, 60)]
    assert tried(DialGuard(Random(1)), places, 60) <= 16 + 12


def test_dials_that_lead_to_somebody_cost_nothing_and_ours_are_not_counted():
    guard = DialGuard(Random(1))
    for number in range(500):
        place = Address("ip4", "198.51.100.1", 1 + number).told_by(LIAR)
        guard.begin(place, 0.0)
        guard.reached(place)
        guard.begin(Address("ip4", "198.51.100.2", 1), 0.0)
    assert len(guard) <= 4


def test_guard_is_bounded():
    guard = DialGuard(Random(1))
    for number in range(5000):
        place = Address("ip4", f"198.51.{number // 250}.{number % 250}", 1).told_by(Teller(str(number), Reach.WORLD))
        guard.begin(place, 0.0)
    assert len(guard) == 4096


@pytest.mark.parametrize(
    ("host", "reach"),
    [
        *[(host, 0) for host in ("127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1")],
        *[(host, 1) for host in ("10.1.2.3", "192.168.0.1", "172.20.0.1", "169.254.1.1", "100.64.0.1", "fd00::1", "::ffff:10.0.0.1")],
        *[(host, 2) for host in ("198.51.100.1", "2001:db8::1")],
    ],
)
def test_nobody_sends_us_nearer_than_it_can_go(host, reach):
    assert reach_of(host) == reach
    (peer,) = [PeerKey.generate().id]
    place = Address("ip6" if ":" in host else "ip4", host, 1)
    for teller in (LIAR, NEIGHBOUR, NEAR, None):
        book = AddressBook(Random(1))
        book.learn(peer, [place], teller=teller)
        assert (peer in book) == (teller is None or teller.reach <= reach)


async def test_a_name_leads_no_nearer_than_its_teller_can_go():
    name = Address.parse("/dns4/localhost/tcp/1")
    await check_reach(name)
    await check_reach(name.told_by(NEAR))
    for teller in (LIAR, NEIGHBOUR):
        with pytest.raises(CannotConnect, match="cannot reach"):
            await check_reach(name.told_by(teller))


@pytest.mark.parametrize("place", ["/dns/a..b/tcp/1", "/dns4/a..b/tcp/1", f"/dns6/{'a' * 64}.example/tcp/1/ws"])
async def test_a_name_that_no_host_can_have_ends_nobody(place):
    """Any peer may name such an address, so that others dial it."""
    name = Address.parse(place)
    async with a_peer(target=16, walk_s=0.05) as peer:
        async with a_peer(*peer.host.announced[:1], announce=(name,)) as liar:
            await eventually(lambda: liar.host.id in peer.discovery.book)
        await eventually(lambda: any("can have the name" in each.reason for each in peer.pubsub.failed_dials.standing()))


def test_addresses_that_are_not_tcp_are_not_read(monkeypatch):
    read = []
    monkeypatch.setattr(Address, "from_bytes", classmethod(lambda cls, data: read.append(data) or Address("ip4", "1.2.3.4", len(read))))
    quic, tcp = b"\x04\x01\x02\x03\x04\x91\x02\x0f\xa1\xcc\x03", Address.parse("/ip4/1.2.3.4/tcp/9").to_bytes()
    assert len(read_addresses([quic] * 1000 + [tcp], PeerKey.generate().id)) == 1
    assert len(read) == 1


@pytest.mark.parametrize("is_identify", [False, True], ids=("kademlia", "identify"))
async def test_a_liar_has_us_dial_a_stranger_a_few_times_only(is_identify, monkeypatch):
    dialled = 0

    async def count(stream):
        nonlocal dialled
        dialled += 1
        await stream.aclose()

    async with trio.open_nursery() as nursery, a_peer(target=16, walk_s=0.05) as attacked:
        (listener,) = await nursery.start(partial(trio.serve_tcp, count, 0, host="127.0.0.1"))
        stranger = Address("ip4", "127.0.0.1", listener.socket.getsockname()[1])

        def closest(key):
            return [(PeerKey.generate().id, (stranger,)) for _ in range(20)]

        handlers = {kad_protocol(TOPIC): partial(answer_closer, closest, OrderedDict())}
        announced = [stranger] if is_identify else []
        async with a_host(handlers=handlers) as liar:
            liar._announced = tuple(announced)
            await liar.connect(attacked.host.id, attacked.host.announced)
            if is_identify:
                for _ in range(30):
                    async with a_host(handlers=handlers) as another:
                        another._announced = tuple(announced)
                        await another.connect(attacked.host.id, attacked.host.announced)
            await eventually(lambda: len(attacked.discovery.book) > 20)
            await trio.sleep(1.5)  # long enough for forty dials: what is counted is how few are made
        nursery.cancel_scope.cancel()
    assert 1 <= dialled <= 6
