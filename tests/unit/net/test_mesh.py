import contextlib
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import trio
from mesh_support import BOTH, TOPIC, a_host, a_peer, eventually

import gossiplog
from gossiplog import Ed25519Signer
from gossiplog.broadcast.events import Misbehaved
from gossiplog.broadcast.offences import BROKEN_STREAMS_MAX
from gossiplog.errors import CannotConnect, LocalProtocolError
from gossiplog.net.discovery import Discovery
from gossiplog.net.libp2p import PeerKey
from gossiplog.net.libp2p.identify import ask_identity
from gossiplog.net.libp2p.records import open_record
from gossiplog.net.mesh import MeshConfig, open_mesh
from gossiplog.pubsub.params import MESH_PARAMS, Thresholds
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.pubsub.types import PeerId


async def append(mesh, count, rng):
    return [await mesh.service.log.append({"n": rng.random()}) for _ in range(count)]


async def are_equal(*meshes):
    logs = [mesh.service.log for mesh in meshes]
    return len({((await log.root()).hash, tuple(await log.heads()), await log.count()) for log in logs}) == 1


@pytest.mark.parametrize("address", BOTH, ids=("tcp", "websocket"))
async def test_two_logs_converge_on_what_came_before_and_after_they_met(address):
    rng = Random(1)
    async with a_peer(listen=(address,)) as one, a_peer(listen=(address,)) as two:
        await append(one, 20, rng)
        await append(two, 20, rng)
        await one.host.connect(two.host.id, two.host.announced)
        await eventually(lambda: are_equal(one, two))
        await eventually(lambda: all(mesh.service.state().router.topics[0].full_message for mesh in (one, two)))
        await append(one, 20, rng)
        await append(two, 20, rng)
        await eventually(lambda: are_equal(one, two))
        assert await one.service.log.count() == 80
        # By gossip, not by syncs alone.
        assert min(mesh.service.counts["entries accepted"] for mesh in (one, two)) >= 15


@pytest.mark.parametrize("router", ["gossipsub", "episub"])
async def test_entries_pass_through_peers_that_do_not_know_each_other(router):
    config = {"router": router, "target": 1, "walk_s": 3600}
    async with a_peer(**config) as one, a_peer(**config) as two, a_peer(**config) as three:
        await two.host.connect(one.host.id, one.host.announced)
        await two.host.connect(three.host.id, three.host.announced)
        await append(one, 5, Random(1))
        await append(three, 5, Random(2))
        await eventually(lambda: are_equal(one, two, three))
        assert await one.service.log.count() == 10


async def test_peers_with_different_routers_still_push_and_sync():
    async with a_peer(router="gossipsub") as one, a_peer(router="episub") as two:
        await append(one, 5, Random(1))
        await one.host.connect(two.host.id, two.host.announced)
        await eventually(lambda: are_equal(one, two))
        assert await two.service.log.count() == 5


async def test_what_arrives_at_the_hub_goes_out_to_the_mesh_and_the_other_way_round():
    async with (
        a_peer() as server,
        a_peer() as other,
        server.service.log.listen("127.0.0.1:0") as hub,
        gossiplog.open(":memory:", topic=TOPIC, signer=Ed25519Signer.generate()) as client,
        client.connect(hub.urls_of(TOPIC)[0]) as link,
    ):
        await other.host.connect(server.host.id, server.host.announced)
        await link.wait_connected()
        assert hub.services[TOPIC] is server.service
        from_client = await client.append({"from": "a browser"})
        await eventually(lambda: other.service.log.has(from_client.id))
        from_peer = await other.service.log.append({"from": "a server"})
        await eventually(lambda: client.has(from_peer.id))


async def test_a_peer_of_another_topic_takes_no_part():
    async with (
        a_peer() as one,
        gossiplog.open(":memory:", topic="other.example.com", signer=Ed25519Signer.generate()) as log,
        a_peer(log=log) as other,
    ):
        await append(other, 3, Random(1))
        await other.host.connect(one.host.id, one.host.announced)
        await eventually(lambda: one.service.links())
        assert one.service.state().pushing == ()
        assert await one.service.log.count() == 0


async def test_a_stranger_without_a_log_is_no_trouble():
    async with a_peer() as one, a_host() as stranger:
        await stranger.connect(one.host.id, one.host.announced)
        await eventually(lambda: one.service.links())
        await append(one, 3, Random(1))
        assert one.service.state().pushing == ()


async def test_a_banned_peer_is_let_go_and_not_taken_back_and_its_redials_are_said_once(caplog):
    caplog.set_level("INFO", "gossiplog.net")
    async with a_peer() as one, a_peer() as other:
        await other.host.connect(one.host.id, one.host.announced)
        await eventually(lambda: one.service.links())
        for _ in range(5 * BROKEN_STREAMS_MAX):
            one.service.tell(Misbehaved(other.host.id, "a test"))
        await eventually(lambda: one.host.peers == [])
        for _ in range(3):
            with contextlib.suppress(CannotConnect):
                connection = await other.host.connect(one.host.id, one.host.announced)
                await connection.wait_ended()
            await eventually(lambda: one.host.peers == other.host.peers == [])
        assert one.service.links() == []
    refusals = [record for record in caplog.records if getattr(record, "event", "") == "refused a connection"]
    assert [record.fields["reason"] for record in refusals] == ["the peer is banned"]


async def test_what_a_peer_says_of_itself_does_not_change_while_it_is_connected():
    """Which is why nobody is pushed an identity: neither logs nor connections that come and go change it."""
    async with a_peer() as one, a_host() as other:
        connection = await other.connect(one.host.id, one.host.announced)
        before = await ask_identity(connection)
        async with a_peer(*one.host.announced) as third, one.service.log.listen("127.0.0.1:0"):
            await eventually(lambda: one.service.links())
            entry = await third.service.log.append({"n": 1})
            await eventually(lambda: one.service.log.has(entry.id))
            during = await ask_identity(connection)
        assert before == during == await ask_identity(connection)


async def test_two_connections_with_one_peer_count_once_and_either_may_go():
    async with a_peer(target=1) as one, a_peer(target=1) as two:
        await one.host.connect(two.host.id, two.host.announced)
        # As if they had dialled each other at the same moment.
        await two.host.connect(None, one.host.announced[:1])
        await eventually(lambda: len(one.host.peerings) == len(two.host.peerings) == 2)
        assert (len(one.service.peers), len(two.service.peers)) == (1, 1)
        await append(one, 5, Random(1))
        await eventually(lambda: are_equal(one, two))
        # New streams are opened on the oldest connection.
        await one.host.peerings[0].connection.aclose()
        await eventually(lambda: len(one.host.peerings) == len(two.host.peerings) == 1)
        await append(two, 5, Random(2))
        await append(one, 5, Random(3))
        await eventually(lambda: are_equal(one, two))
        assert one.service.state().offences == two.service.state().offences == {}


async def test_an_unknown_router_and_a_log_that_is_on_the_network_already_are_refused():
    async with gossiplog.open(":memory:", topic=TOPIC, signer=Ed25519Signer.generate()) as log:
        with pytest.raises(LocalProtocolError, match="expected one of gossipsub, episub"):
            async with open_mesh(log, PeerKey.generate(), MeshConfig(router="telepathy")):
                pass
        async with a_peer(log=log):
            with pytest.raises(LocalProtocolError, match="already"):
                async with a_peer(log=log):
                    pass


async def test_a_peer_id_that_nobody_has_cannot_be_dialled():
    async with a_peer() as one:
        with pytest.raises(CannotConnect, match="no address"):
            await one.host.connect(PeerId("12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"), [])


async def test_a_peer_that_is_pruned_meets_others_by_their_signed_records(monkeypatch):
    connect, offered = Discovery.connect, []
    narrow = replace(MESH_PARAMS["gossipsub"], D=2, D_lo=1, D_hi=2, D_score=1, D_out=0)
    # Offers are taken from whoever has brought something, which nobody has here.
    trusting = replace(narrow, score=replace(narrow.score, thresholds=Thresholds(accept_px=0.0)))

    def note_offer(discovery, peer, record, source):
        offered.append((discovery.book, peer, record))
        connect(discovery, peer, record, source)

    # Kademlia would find them too.
    monkeypatch.setattr(Discovery, "_keep_walking", lambda discovery: trio.sleep_forever())
    monkeypatch.setattr(Discovery, "connect", note_offer)
    async with AsyncExitStack() as stack:
        center = await stack.enter_async_context(a_peer(target=1, params=narrow))
        others = [await stack.enter_async_context(a_peer(target=1, params=trusting)) for _ in range(4)]
        for other in others:
            await other.host.connect(center.host.id, center.host.announced)
        await eventually(lambda: any(len(other.host.peers) > 1 for other in others))
        book, peer, record = offered[0]
        assert record is not None and open_record(record).peer == peer
        assert peer in {other.host.id for other in others}
        # It listens on two addresses of this machine, which are dialled as peers nearby told of them.
        await eventually(lambda: set(book.of(peer)) == set(open_record(record).addresses))


def test_libp2p_is_loaded_by_a_mesh_alone():
    modules = "gossiplog.net.hub.server, gossiplog.net.hub.client, gossiplog.cli.net.serve, gossiplog.cli.net.sync"
    program = f"import sys, {modules}; print('libp2p' in sys.modules)"
    folder = Path(gossiplog.__file__).parents[1]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=folder)
    assert ran.stdout == "False\n"


async def test_a_mesh_keeps_scores_by_default_with_the_parameters_that_were_measured():
    async with a_peer() as one:
        router = one.service.host.shared.router
        assert isinstance(router, Gossipsub)
        assert router.params == MESH_PARAMS["gossipsub"]
        assert router.params.score is not None


@pytest.mark.parametrize(
    ("router", "params", "complaint"),
    [
        ("episub", MESH_PARAMS["gossipsub"], "not episub's"),
        ("gossipsub", replace(MESH_PARAMS["gossipsub"], is_validating=False), "is_validating"),
    ],
)
async def test_parameters_that_do_not_fit_are_refused(router, params, complaint):
    with pytest.raises(LocalProtocolError, match=complaint):
        async with a_peer(router=router, params=params):
            pass
