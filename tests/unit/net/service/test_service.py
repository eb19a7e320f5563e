"""The service of a log: what the broadcast machine asks for is done, on connections in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from muxer_support import muxed_pair
from network_support import TOPIC, eventually, memory_log, signer, until_count, until_equal, until_has

import gossiplog
from gossiplog import GossipLog
from gossiplog.broadcast import intake
from gossiplog.broadcast.actions import AskLog, InsertEntry
from gossiplog.broadcast.events import PeerKind, StartBroadcast
from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.entry.validation import Verdict
from gossiplog.errors import LocalProtocolError, StorageFull, StreamReset
from gossiplog.log.requests import ReadHeads
from gossiplog.net import Connection, Stream
from gossiplog.net.service.pubsub_host import PUBLISHED_INSERTING_MAX, PubsubHost
from gossiplog.net.service.push_stream import STALLED_S
from gossiplog.net.service.service import Service, open_service
from gossiplog.net.transport.muxed import Handler
from gossiplog.plan import ask
from gossiplog.pubsub.rpc import Message, Rpc
from gossiplog.pubsub.types import PeerId, Topic
from gossiplog.pubsub.wire.rpc_codec import Wire
from gossiplog.sync.rpc import Insert, Update
from gossiplog.sync.wire import decode_event, encode_event

PUSH = f"/canvas/v1/{TOPIC}/push"
SYNC = f"/canvas/v1/{TOPIC}/sync"


def handlers_of(service: Service) -> dict[str, Handler]:
    return {**service.handlers, **service.host.handlers}


@asynccontextmanager
async def open_peer(log: GossipLog) -> AsyncIterator[Service]:
    """A log that may be in a mesh."""
    async with open_service(log) as service, service.host.running():
        yield service


@asynccontextmanager
async def joined(
    left: Service, right: Service, left_kind: PeerKind = PeerKind.CLIENT, right_kind: PeerKind = PeerKind.HUB
) -> AsyncIterator[tuple[Connection, Connection]]:
    """Connect two services; each is told what the other is to it. The right one dials."""
    pubsub = left.host.protocols[0] if PeerKind.MESH in (left_kind, right_kind) else None
    async with muxed_pair(handlers_of(right), handlers_of(left)) as (dialled, accepted):
        accepted.peer, dialled.peer = right.me, left.me
        async with (
            left.attached(accepted, left_kind, pubsub_protocol=pubsub),
            right.attached(dialled, right_kind, pubsub_protocol=pubsub),
        ):
            yield accepted, dialled


@asynccontextmanager
async def stranger(service: Service, kind: PeerKind = PeerKind.CLIENT) -> AsyncIterator[Connection]:
    """A peer of which the test does everything."""
    async with muxed_pair({}, service.handlers) as (theirs, ours), service.attached(ours, kind):
        yield theirs


async def pushed(stream: Stream, count: int) -> list[Insert | Update]:
    """Read so many messages from a push stream."""
    frames, events = FrameDecoder(), list[Insert | Update]()
    with trio.fail_after(60):
        while len(events) < count:
            events += map(decode_event, frames.take(await stream.receive_some()))
    return events


async def test_client_and_hub_tell_their_heads_and_pull_what_they_lack() -> None:
    async with memory_log(1) as a, memory_log(2) as b, open_service(a) as hub, open_service(b) as client:
        await a.append_many(range(30))
        await b.append_many(range(20))
        async with joined(hub, client):
            await until_count(a, 50)
            await until_count(b, 50)
            await until_equal(a, b)


async def test_a_hub_never_opens_a_push_stream_to_its_client() -> None:
    async with memory_log(1) as log, open_service(log) as hub, stranger(hub) as client:
        opened: list[str] = []

        async def refuse(connection: object, stream: object) -> None:
            opened.append("push")

        client._handlers = {PUSH: refuse}  # type: ignore[assignment]
        stream = await client.open_stream([PUSH])
        assert await pushed(stream, 1) == [Update([])]
        entry = await log.append(1)
        assert await pushed(stream, 1) == [Insert(entry.key, entry.value)]
        stream.reset()
        await eventually(lambda: not hub.links()[0].is_pushing)
        await log.append(2)
        assert opened == []


async def test_push_stream_that_a_hub_opens_to_us_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_log(1) as log, open_service(log) as client, stranger(client, PeerKind.HUB) as hub:
        with pytest.raises(gossiplog.GossipLogError):
            await pushed(await hub.open_stream([PUSH]), 1)
        assert "opened a push stream" in caplog.text


async def test_mesh_and_hub_at_once_pass_entries_to_each_other() -> None:
    async with (
        memory_log(1) as server,
        memory_log(2) as other_server,
        memory_log(3) as browser,
        open_peer(server) as here,
        open_peer(other_server) as there,
        open_service(browser) as client,
        joined(here, there, PeerKind.MESH, PeerKind.MESH),
        joined(here, client),
    ):
        await eventually(lambda: all(link.is_pushing for link in here.links()))
        from_browser = await browser.append("from the browser")
        await until_has(other_server, [from_browser])
        from_mesh = await other_server.append("from the mesh")
        await until_has(browser, [from_mesh])
        assert {link.kind for link in here.links()} == {"mesh", "client"}


async def test_two_meshed_logs_deliver_by_gossip_and_not_by_sync() -> None:
    async with (
        memory_log(1) as a,
        memory_log(2) as b,
        open_peer(a) as left,
        open_peer(b) as right,
        joined(left, right, PeerKind.MESH, PeerKind.MESH),
    ):
        await eventually(lambda: left.state().router.topics[0].full_message and right.state().router.topics[0].full_message)
        entries = [await a.append(n) for n in range(20)]
        await until_has(b, entries)
        assert right.links()[0].counts.get("entries pulled", 0) == 0
        await eventually(lambda: right.counts["delivered"] == 20)


async def test_two_connections_with_a_peer_count_as_one_until_the_last_is_gone() -> None:
    async with memory_log(1) as a, memory_log(2) as b, open_peer(a) as left, open_peer(b) as right:
        async with joined(left, right, PeerKind.MESH, PeerKind.MESH):
            async with joined(left, right, PeerKind.MESH, PeerKind.MESH):
                assert len(left.links()) == 2
                assert len(left.state().kinds) == 1
            assert len(left.state().kinds) == 1
            await until_has(b, [await a.append("still connected")])
        assert left.state().kinds == {}


async def test_pushes_wait_while_as_many_are_being_inserted_as_the_machine_takes() -> None:
    async with memory_log(1) as log, memory_log(2) as author, open_service(log) as hub, stranger(hub) as client:
        entries = await author.append_many(range(500))
        stream = await client.open_stream([PUSH])
        for entry in entries:
            await stream.send_all(encode_frame(encode_event(Insert(entry.key, entry.value))))
        await until_count(log, 500)
        # All came by the push stream: nothing had to be asked for.
        assert client.streams_accepted == 0


async def test_messages_of_one_rpc_are_inserted_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def discard(connection: Connection, stream: Stream) -> None:
        while await stream.receive_some():
            pass

    under_way: list[int] = []
    async with memory_log(1) as log, memory_log(2) as author, open_peer(log) as mesh:
        protocol = mesh.host.protocols[0]
        async with (
            muxed_pair({protocol: discard}, handlers_of(mesh)) as (theirs, ours),
            mesh.attached(ours, PeerKind.MESH, pubsub_protocol=protocol),
        ):
            count = mesh.intake.on_under_way

            def watched(action: InsertEntry) -> None:
                count(action)
                under_way.append(mesh.peers[ours.peer].inserting)

            monkeypatch.setattr(mesh.intake, "on_under_way", watched)
            events = [encode_event(Insert(entry.key, entry.value)) for entry in await author.append_many(range(1_500))]
            rpc = Rpc(messages=tuple(Message.of(Topic(TOPIC), event) for event in events))
            stream = await theirs.open_stream([protocol])
            await stream.send_all(b"".join(Wire().encode(rpc)))
            await until_count(log, 1_500)
    assert len(under_way) == 1_500
    assert max(under_way) <= PUBLISHED_INSERTING_MAX + 64


async def test_full_disk_is_nobodys_fault_but_ours(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async with memory_log(1) as log, memory_log(2) as author, open_service(log) as hub, stranger(hub) as client:
        entries = await author.append_many(range(8))
        write, is_full = log._store.write, True

        async def write_if_not_full(plan: Any) -> Any:
            if is_full:
                raise StorageFull("the disk is full")
            return await write(plan)

        monkeypatch.setattr(log._store, "write", write_if_not_full)
        stream = await client.open_stream([PUSH])
        for entry in entries:
            await stream.send_all(encode_frame(encode_event(Insert(entry.key, entry.value))))
        await eventually(lambda: hub.counts.get("entries ignored", 0) == 8)
        assert hub.state().offences == {}
        is_full = False
        for entry in entries:
            await stream.send_all(encode_frame(encode_event(Insert(entry.key, entry.value))))
        await until_count(log, 8)
    assert "not stored" in caplog.text


async def test_what_cannot_be_inserted_together_is_inserted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_log(1) as log, memory_log(2) as author, open_service(log) as hub, stranger(hub) as client:
        entries = await author.append_many(range(8))
        insert_then, together = log.insert_then, list[int]()

        def fail_when_together(verdicts: Sequence[Verdict], then: Any) -> bool:
            if len(verdicts) == 1:
                return insert_then(verdicts, then)
            together.append(len(verdicts))
            then(ValueError("a rule of the application's"))
            return True

        monkeypatch.setattr(log, "insert_then", fail_when_together)
        stream = await client.open_stream([PUSH])
        await stream.send_all(b"".join(encode_frame(encode_event(Insert(entry.key, entry.value))) for entry in entries))
        await eventually(lambda: hub.counts.get("entries accepted", 0) == 8)
        assert await log.count() == 8
        assert together and hub.state().offences == {}
        await log.append("the log goes on")


async def test_entry_passes_through_a_hub_while_it_is_stored_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_log(1) as log, memory_log(2) as author, memory_log(3) as other:
        await log.insert_many([entry.value for entry in await author.append_many(range(3))])
        async with open_service(log) as hub, open_service(other) as client, stranger(hub) as peer, joined(hub, client):
            await until_count(other, 3)
            stream = await peer.open_stream([PUSH])
            await pushed(stream, 1)
            write, may_commit = log._store.write, trio.Event()

            async def slow(plan: Any) -> Any:
                await may_commit.wait()
                return await write(plan)

            monkeypatch.setattr(log._store, "write", slow)
            await eventually(lambda: not hub.machine.intake.certain.is_blind)
            entries = await author.append_many(["one", "two"])
            for entry in entries:
                await stream.send_all(encode_frame(encode_event(Insert(entry.key, entry.value))))
            await until_has(other, entries)
            assert await log.count() == 3
            may_commit.set()
            await until_has(log, entries)
            assert hub.counts["entries accepted"] == 2


async def test_entry_that_a_rule_may_refuse_waits_for_it() -> None:
    async with (
        memory_log(2) as author,
        memory_log(3) as other,
        gossiplog.open(":memory:", topic=TOPIC, authorize=lambda message, did: message.payload != "bad") as log,
        open_service(log) as hub,
        open_service(other) as client,
        joined(hub, client),
        stranger(hub) as peer,
    ):
        stream = await peer.open_stream([PUSH])
        fine, bad = await author.append_many(["fine", "bad"])
        for entry in (fine, bad):
            await stream.send_all(encode_frame(encode_event(Insert(entry.key, entry.value))))
        await eventually(lambda: hub.counts.get("entries ignored", 0) == 1)
        await until_has(other, [fine])
        assert await other.count() == 1
        assert hub.machine.intake.certain.is_blind


async def test_entry_that_was_passed_on_and_not_stored_comes_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(intake, "LEARN_FIRST_S", 0.01)
    async with memory_log(1) as log, memory_log(2) as author, memory_log(3) as other:
        await log.insert_many([entry.value for entry in await author.append_many(range(3))])
        async with (
            open_service(log) as hub,
            open_service(author) as writer,
            open_service(other) as client,
            joined(hub, client),
            joined(hub, writer),
        ):
            await until_count(other, 3)
            await eventually(lambda: not hub.machine.intake.certain.is_blind)
            write, is_full = log._store.write, True

            async def full(plan: Any) -> Any:
                if is_full:
                    plan.close()
                    raise StorageFull("the disk is full")
                return await write(plan)

            monkeypatch.setattr(log._store, "write", full)
            entry = await author.append("passes")
            await until_has(other, [entry])
            await eventually(lambda: hub.counts.get("entries ignored", 0) >= 1)
            is_full = False
            await until_has(log, [entry])
            await eventually(lambda: not hub.machine.intake.certain.is_blind)
            await until_has(other, [await author.append("and so does the next")])
    assert "not stored" in caplog.text


async def test_entry_on_which_the_application_fails_does_not_keep_others_back(caplog: pytest.LogCaptureFixture) -> None:
    async def apply(entries: object, transaction: object) -> None:
        assert isinstance(entries, list)
        if any(entry.message.payload == "bad" for entry in entries):
            raise ZeroDivisionError

    async with (
        memory_log(2) as author,
        memory_log(3) as other,
        gossiplog.open(":memory:", topic=TOPIC, apply=apply) as log,
        open_service(log) as hub,
        stranger(hub) as client,
    ):
        fine, bad = [await author.append("fine")], await other.append("bad")
        stream = await client.open_stream([PUSH])
        data = b"".join(encode_frame(encode_event(Insert(entry.key, entry.value))) for entry in (bad, *fine))
        await stream.send_all(data)
        await until_has(log, [*fine, bad])
        assert [record.key async for record in log.set_aside()] == [bad.key]
        assert hub.state().offences == {}
    (told,) = [record for record in caplog.records if record.name == "gossiplog.application"]
    assert bad.id in told.getMessage() and bad.author in told.getMessage()
    assert "raise ZeroDivisionError" in told.getMessage() and "applications.py" not in told.getMessage()


async def test_what_an_application_quotes_of_an_entry_is_told_at_no_length(caplog: pytest.LogCaptureFixture) -> None:
    async def apply(entries: object, transaction: object) -> None:
        assert isinstance(entries, list)
        raise ValueError(f"{entries[0].payload} is not for us")

    async with memory_log(2) as author, gossiplog.open(":memory:", topic=TOPIC, apply=apply) as log:
        entry = await author.append("x" * 50_000)
        await log.insert_verified(await log.verify_many([entry.value]))
    (told,) = [record.getMessage() for record in caplog.records if record.name == "gossiplog.application"]
    assert len(told) < 3_000 and told.endswith("is not for us") and entry.id in told


async def test_a_reject_is_told_by_its_reason_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def apply(entries, tx) -> None:
        for entry in entries:
            raise gossiplog.Reject("unknown operation\n\x1b[31mforged line", id=entry.id)

    async with memory_log(3) as other, gossiplog.open(":memory:", topic=TOPIC, apply=apply) as log:
        bad = await other.append("bad")
        await log.insert(bad.value)
    (told,) = [record.getMessage() for record in caplog.records if record.name == "gossiplog.application"]
    assert told.endswith(r"aside: unknown operation\n\x1b[31mforged line") and "Traceback" not in told


async def test_fault_in_one_stream_ends_that_stream_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async with memory_log(1) as log, open_service(log) as hub, stranger(hub) as client:

        def snapshot(**options: object) -> None:
            raise ZeroDivisionError

        push = await client.open_stream([PUSH])
        await pushed(push, 1)
        monkeypatch.setattr(log, "snapshot", snapshot)
        with pytest.raises(gossiplog.GossipLogError):
            await (await client.open_stream([SYNC])).receive_some()
        entry = await log.append(1)
        assert await pushed(push, 1) == [Insert(entry.key, entry.value)]
    assert "ZeroDivisionError" in caplog.text


async def test_service_is_shared_and_stops_with_its_last_user() -> None:
    async with memory_log(1) as log:
        async with open_service(log) as first:
            async with open_service(log) as second:
                assert first is second
                with pytest.raises(LocalProtocolError, match="already"):
                    async with open_service(log, host=PubsubHost()):
                        raise AssertionError
            async with open_service(log) as third:
                assert third is first
        async with open_service(log, host=PubsubHost(PeerId("me"))) as fourth:
            assert fourth is not first
            assert fourth.me == "me"


async def test_log_closes_while_its_service_is_in_use() -> None:
    async with trio.open_nursery() as nursery:
        log_scope = trio.CancelScope()

        async def use(log: GossipLog, task_status: trio.TaskStatus[None]) -> None:
            async with open_service(log):
                task_status.started()
                await trio.sleep_forever()

        with log_scope:
            async with memory_log(1) as log:
                await nursery.start(use, log)
        nursery.cancel_scope.cancel()


async def test_client_of_a_log_on_disk_keeps_what_it_got(tmp_path: Path) -> None:
    async with memory_log(1) as source, open_service(source) as hub:
        await source.append_many(range(100))
        async with (
            gossiplog.open(tmp_path / "a.db", topic=TOPIC, signer=signer(2)) as log,
            open_service(log) as client,
            joined(hub, client),
        ):
            await until_count(log, 100)
    async with gossiplog.open(tmp_path / "a.db") as log:
        assert await log.count() == 100
        assert (await log.fsck()).is_clean


async def test_heads_are_told_to_the_others_after_a_sync_that_brought_something() -> None:
    async with memory_log(1) as middle, memory_log(2) as left, memory_log(3) as right:
        await left.append_many(range(40))
        async with open_service(middle) as hub, open_service(left) as a, open_service(right) as b, joined(hub, b):
            await eventually(lambda: all(link.is_pushing for link in hub.links()))
            async with joined(hub, a):
                await until_count(right, 40)


async def test_store_that_fails_a_question_is_asked_again(monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock) -> None:
    async with memory_log(1) as log, open_service(log) as hub:
        run, failures = log.run, 2

        async def failing(plan: object) -> object:
            nonlocal failures
            if failures:
                failures -= 1
                plan.close()  # type: ignore[attr-defined]
                raise StorageFull("for a moment")
            return await run(plan)  # type: ignore[arg-type]

        monkeypatch.setattr(log, "run", failing)
        async with stranger(hub) as client:
            stream = await client.open_stream([PUSH])
            assert await pushed(stream, 1) == [Update([])]
        assert failures == 0


async def test_log_that_others_write_to_is_followed_in_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_log(1) as log, memory_log(2) as author, memory_log(3) as other:
        monkeypatch.setattr(log, "is_shared", True)
        monkeypatch.setattr(log._store, "poll_s", 0.01, raising=False)
        async with open_service(log) as hub, open_service(other) as client, stranger(hub) as peer, joined(hub, client):
            stream = await peer.open_stream([PUSH])
            await pushed(stream, 1)
            # Written by another process: none of the log's own writer.
            ours = await log.append("by whoever")
            assert await pushed(stream, 1) == [Insert(ours.key, ours.value)]
            await until_has(other, [ours])
            # What a peer brought is not published again, neither to it nor, twice, to others.
            (theirs,) = await author.append_many(["by a peer"])
            await stream.send_all(encode_frame(encode_event(Insert(theirs.key, theirs.value))))
            await until_has(other, [theirs])
            last = await log.append("last")
            assert await pushed(stream, 1) == [Insert(last.key, last.value)]
            await until_has(other, [last])
            assert hub.counts["entries appended"] == 2


async def test_reader_that_stopped_is_dropped_after_a_while(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        memory_log(1, value_bytes_max=2**20) as log,
        open_service(log) as hub,
        muxed_pair({}, hub.handlers) as (theirs, ours),
        hub.attached(ours, PeerKind.CLIENT) as link,
    ):
        await pushed(await theirs.open_stream([PUSH]), 1)
        while not hub.links()[0].counts.get("dropped"):
            await log.append(b"x" * 900_000)
            await trio.testing.wait_all_tasks_blocked()
        assert not link.given_up.is_set()
        await trio.sleep(STALLED_S + 1)
        await log.append("one more")
        with trio.fail_after(60):
            await link.given_up.wait()
    assert "slow reader dropped" in caplog.text


async def test_peer_of_a_mesh_that_reads_nothing_of_one_log_keeps_the_connection_which_others_use(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        memory_log(1) as log,
        open_peer(log) as ours,
        muxed_pair({}, ours.handlers) as (dialled, accepted),
        ours.attached(accepted, PeerKind.MESH),
    ):
        stream = await dialled.open_stream([PUSH])
        await pushed(stream, 1)
        push = ours.peers[accepted.peer].push
        assert push is not None
        while push.put(b"x" * 2**16):
            await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(STALLED_S + 1)
        await log.append("its heads are told")
        with pytest.raises(StreamReset), trio.fail_after(60):
            while await stream.receive_some():
                pass
        assert "slow reader dropped" in caplog.text
        assert not accepted.is_over and ours.peers[accepted.peer].push is None
        # It may begin anew.
        assert await pushed(await dialled.open_stream([PUSH]), 1)


async def test_log_that_is_closed_takes_no_more_which_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_log(1) as log, memory_log(2) as author, open_service(log) as hub, stranger(hub) as client:
        entries = await author.append_many(range(2))
        log.writer.close()
        with caplog.at_level("DEBUG", logger="gossiplog.net"):
            stream = await client.open_stream([PUSH])
            await stream.send_all(b"".join(encode_frame(encode_event(Insert(entry.key, entry.value))) for entry in entries))
            await eventually(lambda: hub.counts.get("entries ignored", 0) == 2)
    (said,) = {record.levelname for record in caplog.records if record.getMessage().startswith("entries not stored")}
    assert said == "DEBUG"


async def test_service_that_has_ended_is_told_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_log(1) as log, open_service(log) as hub:
        pass
    # As by the task of a connection that ends a moment later, when the log's block was cancelled.
    monkeypatch.setattr(hub.machine, "handle", lambda event, now: [AskLog(0, ask(ReadHeads(1)))])
    hub.tell(StartBroadcast())
