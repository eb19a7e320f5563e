"""Reconciliation of real services: WebSocket and libp2p, peers that cannot, that begin at once, and whose sketch is wrong."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio
from loop_watch import watching_loop
from network_support import PATIENCE_S, TOPIC, eventually, memory_log
from test_chain import DOWN, MESH, joined

import gossiplog
from gossiplog.errors import ProtocolNotSupported, SyncAborted
from gossiplog.net.ground.protocol_ids import reconcile_protocol
from gossiplog.net.hub.client import parse_url
from gossiplog.net.hub.exchange import Exchange, exchange
from gossiplog.net.service.service import service_of
from gossiplog.net.service.syncs import SyncStreams
from gossiplog.net.transport.multistream import MULTISTREAM
from gossiplog.net.transport.yamux.frames import HEADER_BYTES
from gossiplog.replica import sketching
from gossiplog.sketch import Sketch
from gossiplog.sync.result import Ending


async def differ(one: gossiplog.GossipLog, other: gossiplog.GossipLog, ours: int, theirs: int) -> None:
    common = await one.append_many(range(40))
    await other.insert_many([entry.value for entry in common])
    await one.append_many(["one"] * ours)
    await other.append_many(["other"] * theirs)


async def swap(log: gossiplog.GossipLog, url: str, **options: bool) -> Exchange:
    with trio.fail_after(PATIENCE_S):
        return await exchange(log, parse_url(url), **options)


def counts(log: gossiplog.GossipLog) -> dict[str, int]:
    """What happened with all peers of a log, those that left not included."""
    service = service_of(log)
    assert service is not None
    total: dict[str, int] = dict(service.counts)
    for peer in service.peers.values():
        for name, number in peer.counts.items():
            total[name] = total.get(name, 0) + number
    return total


async def test_one_session_goes_both_ways_and_equal_logs_exchange_next_to_nothing() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        await differ(hub_log, ours, 30, 20)
        done = await swap(ours, hub.urls[0])
        assert done.is_reconciled
        assert done.pulled is not None
        assert (done.pulled.entries, done.pushed, done.is_equal, done.is_taken) == (30, 20, True, True)
        assert (done.sessions, done.pulled.waits <= 3) == (0, True)
        assert await ours.root() == await hub_log.root() == done.root
        again = await swap(ours, hub.urls[0])
        assert again.is_reconciled
        assert again.pulled is not None
        assert (again.moved, again.pulled.waits) == (0, 1)
        # Everything on the connection but the upgrade: a frame with what each side says, the end of either side, pings and the going away.
        agreement = 2 * (len(MULTISTREAM) + len(reconcile_protocol(TOPIC)) + 4)
        hello, result = 36, 22
        assert again.bytes_sent + again.bytes_received <= agreement + hello + result + 9 * HEADER_BYTES


async def test_a_rehearsal_tells_what_would_be_moved() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        await differ(hub_log, ours, 30, 20)
        done = await swap(ours, hub.urls[0], is_rehearsal=True)
        assert done.rehearsal is not None
        assert (done.rehearsal.wanted, done.rehearsal.given, done.moved) == (30, 20, 0)
        assert (await ours.count(), await hub_log.count()) == (60, 70)


async def test_directions_are_kept_apart() -> None:
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        await differ(hub_log, ours, 30, 20)
        done = await swap(ours, hub.urls[0], pushes=False)
        assert done.is_reconciled
        assert (await ours.count(), await hub_log.count()) == (90, 70)
        done = await swap(ours, hub.urls[0], pulls=False)
        assert done.is_reconciled
        assert (done.pushed, await hub_log.count()) == (20, 90)


async def test_a_hub_that_lacks_it_is_synced_with_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = SyncStreams.handlers

    def without(self: SyncStreams) -> dict[str, object]:
        return {name: serve for name, serve in handlers(self).items() if name != reconcile_protocol(TOPIC)}

    monkeypatch.setattr(SyncStreams, "handlers", without)
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        await differ(hub_log, ours, 30, 20)
        with pytest.raises(ProtocolNotSupported):
            await swap(ours, hub.urls[0], is_rehearsal=True)
        done = await swap(ours, hub.urls[0])
        assert not done.is_reconciled
        assert done.pulled is not None
        assert (done.pulled.entries, done.pushed, done.is_equal) == (30, 20, True)


@pytest.mark.parametrize("line", [(DOWN,), (MESH,)], ids="-".join)
async def test_who_meets_reconciles(line: tuple[str, ...]) -> None:
    """Both lack something, and so both may begin at once: one session does it for both, or two in turn."""
    async with AsyncExitStack() as stack:
        logs = await stack.enter_async_context(joined(line))
        one, other = logs[0], logs[-1]
        # What is inserted as by a sync is told of by heads alone.
        async with memory_log(5) as there, memory_log(6) as elsewhere:
            left = await there.append_many(["there"] * 300)
            right = await elsewhere.append_many(["elsewhere"] * 300)
            await one.insert_many([entry.value for entry in left])
            await other.insert_many([entry.value for entry in right])
        await eventually(lambda: counts(one).get("entries pulled", 0) + counts(other).get("entries pulled", 0) >= 600)
        with trio.fail_after(PATIENCE_S):
            while await one.root() != await other.root():
                await trio.sleep(0.01)
        assert counts(one).get("reconciliations", 0) + counts(other).get("reconciliations", 0) >= 1
        assert "reconciliations fallen back" not in counts(one) | counts(other)


async def test_a_wrong_sketch_falls_back_and_is_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where another process has repaired the log that we have open, or somebody meddled with what was kept."""
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        await differ(hub_log, ours, 30, 20)
        view = await ours.sketch()
        wrong = Sketch(view.sketch.sums.copy(), view.sketch.counts.copy())
        wrong.add([b"gone" * 5])
        ours._sketches._sketch = wrong
        done = await swap(ours, hub.urls[0])
        assert (done.is_reconciled, done.is_equal) == (False, True)
        expected = Sketch()
        expected.add([entry.key async for entry in ours.iterate()])
        assert (await ours.sketch()).sketch.sums == expected.sums
        assert (await swap(ours, hub.urls[0])).is_reconciled


async def test_a_sketch_that_takes_too_long_leaves_it_to_the_merkle_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(self: sketching.SketchKeeper) -> sketching.SketchView:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr("gossiplog.net.service.sessions.CATCH_UP_S", 0.0)
    monkeypatch.setattr(sketching.SketchKeeper, "view", slow)
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        await differ(hub_log, ours, 30, 20)
        done = await swap(ours, hub.urls[0])
        assert (done.is_reconciled, done.is_equal, done.pushed) == (False, True, 20)
        assert done.pulled is not None
        assert done.pulled.ending is Ending.COMPLETE


async def test_a_hub_whose_sketch_is_not_ready_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(log: gossiplog.GossipLog) -> None:
        await trio.lowlevel.checkpoint()

    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        await differ(hub_log, ours, 30, 20)
        monkeypatch.setattr("gossiplog.net.service.syncs.sketch_in_time", never)
        with pytest.raises(SyncAborted, match="not ready"):
            await swap(ours, hub.urls[0], is_rehearsal=True)
        done = await swap(ours, hub.urls[0])
        assert (done.is_reconciled, done.is_equal) == (False, True)


@pytest.mark.slow
async def test_many_differences_do_not_hold_the_loop() -> None:
    """11,000 differences took 0.24 s in one step of the side that decodes."""
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0") as hub:
        common = await log.append_many(range(12_000))
        await client.insert_many([entry.value for entry in common])
        await log.append_many(range(5_500))
        await client.append_many(range(5_500))
        await log.sketch()
        await client.sketch()
        with watching_loop() as held:
            done = await exchange(client, parse_url(hub.urls[0]))
        assert done.is_reconciled
        assert done.moved == 11_000
    assert [step for step in held if any(name in str(step["stack"]) for name in ("decoder.py", "reconcile/", "messages.py"))] == []
