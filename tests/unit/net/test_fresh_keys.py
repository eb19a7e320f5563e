"""After a ban, new keys from the same address are let in slowly; nobody known is kept out."""

import trio
from mesh_support import a_host, a_peer, eventually

from gossiplog.broadcast.events import Misbehaved
from gossiplog.broadcast.offences import BROKEN_STREAMS_MAX
from gossiplog.errors import GossipLogError
from gossiplog.net.ground.admission import FreshKeys
from gossiplog.net.libp2p import Peering


def test_strangers_wait_where_a_banned_peer_came_from_and_known_peers_do_not():
    fresh_keys = FreshKeys()
    fresh_keys.on_left("known")
    assert fresh_keys.may_enter("first", "192.0.2.1", 0.0)
    fresh_keys.on_banned("first", "192.0.2.1", 600.0, 0.0)
    entered = [fresh_keys.may_enter(f"key {second}", "192.0.2.1", float(second)) for second in range(60)]
    assert sum(entered) == 6
    assert all(fresh_keys.may_enter("known", "192.0.2.1", float(second)) for second in range(60))
    assert fresh_keys.may_enter("elsewhere", "192.0.2.2", 1.0)
    assert all(fresh_keys.may_enter(f"late {number}", "192.0.2.1", 600.0) for number in range(9))


def test_what_is_remembered_is_bounded():
    fresh_keys = FreshKeys()
    for number in range(5000):
        fresh_keys.on_left(f"peer {number}")
        fresh_keys.on_banned(f"bad {number}", f"10.0.{number // 250}.{number % 250}", 600.0, 0.0)
    assert len(fresh_keys) == 4096


async def test_a_banned_peer_gains_little_by_new_keys(monkeypatch):
    # Loopback is never counted; here it stands for an address of somebody else's.
    monkeypatch.setattr(Peering, "is_counted", property(lambda peering: True, lambda peering, value: None))
    async with a_peer(target=1) as attacked, a_peer(target=1) as honest:
        await honest.host.connect(attacked.host.id, attacked.host.announced)
        await eventually(lambda: attacked.host.peers == [honest.host.id])
        used = 0
        for _ in range(6):
            async with a_host() as host:
                try:
                    await host.connect(attacked.host.id, attacked.host.announced)
                    # Whoever is not let in is connected for a moment, and then no more.
                    await eventually(lambda host=host: host.id in attacked.service.peers or not host.peers)
                except (GossipLogError, trio.TooSlowError):
                    continue
                if host.id in attacked.service.peers:
                    used += 1
                    for _ in range(5 * BROKEN_STREAMS_MAX):
                        attacked.service.tell(Misbehaved(host.id, "a test"))
                    await eventually(lambda id=host.id: id not in attacked.service.peers)
        assert used <= 3  # the first, one at once, and one more if that took ten seconds
        assert honest.host.id in attacked.service.peers
