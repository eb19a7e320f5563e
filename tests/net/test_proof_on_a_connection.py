"""A did that is proved on a shared connection, once for each log: for that log, on that connection, by that server's name, and once.

Source: docs/spec/sync.md, "Several logs on one connection".
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
from hostile_client import muxed
from network_support import eventually, memory_log, signer, until_count

import gossiplog
from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.entry import Ed25519Signer
from gossiplog.errors import ProtocolNotSupported, StreamReset
from gossiplog.net import HubLimits
from gossiplog.net.ground.access import Access, hash_token
from gossiplog.net.ground.proof import make_proof
from gossiplog.net.ground.protocol_ids import proof_protocol, push_protocol, refusals_protocol
from gossiplog.net.hub import client_connection, proving
from gossiplog.net.hub.client import HubLink, at_topic, connect, fetch_token, open_hub_connections, parse_url
from gossiplog.net.hub.client_connection import LOGS_MAX
from gossiplog.net.hub.proving import prove_on
from gossiplog.net.hub.server import Hub, listen
from gossiplog.net.service.refusals import STREAMS_A_LOG
from gossiplog.net.transport.muxed import Connection
from gossiplog.web import make_http

ALICE, BOB, NOBODY = signer(2), signer(3), signer(4)
ALL = ["connect", "pull", "push"]
RULES = {"logs": {"a": {"dids": {ALICE.did: ALL}}, "both": {"dids": {ALICE.did: ALL, BOB.did: ALL}}, "b": {"dids": {BOB.did: ALL}}}}


@asynccontextmanager
async def hub_of(*topics: str, rules: dict[str, Any] | None = None) -> AsyncIterator[tuple[Hub, list[gossiplog.GossipLog]]]:
    """A server for logs in memory, by default one that lets in Alice, Bob, or both."""
    limits = HubLimits(access=Access.parse(RULES if rules is None else rules))
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(memory_log(1, topic)) for topic in topics]
        yield await stack.enter_async_context(listen(logs, "127.0.0.1:0", limits=limits, make_http=make_http)), logs


@asynccontextmanager
async def clients_of(hub: Hub, *wanted: tuple[str, Ed25519Signer]) -> AsyncIterator[tuple[list[gossiplog.GossipLog], list[HubLink]]]:
    """Logs in memory, each with who it is let in as, that share connections where they may."""
    async with open_hub_connections() as connections, AsyncExitStack() as stack:
        logs, links = [], []
        for topic, identity in wanted:
            logs.append(await stack.enter_async_context(memory_log(9, topic)))
            url = at_topic(f"ws://127.0.0.1:{hub.port}", topic)
            links.append(await stack.enter_async_context(connect(logs[-1], url, identity=identity, connections=connections)))
            await eventually(lambda: links[-1].is_connected or links[-1].error)
        yield logs, links


@asynccontextmanager
async def raw(hub: Hub, topic: str, identity: Ed25519Signer) -> AsyncIterator[Connection]:
    """A connection for a log by somebody's proof, of a client that does nothing by itself."""
    url = at_topic(f"ws://127.0.0.1:{hub.port}", topic)
    token = await fetch_token(parse_url(url, identity=identity))
    async with muxed(f"{url}?token={token}") as connection:
        yield connection


def host_of(hub: Hub) -> str:
    return f"127.0.0.1:{hub.port}"


async def challenge_on(connection: Connection, topic: str) -> tuple[Any, str]:
    """Open a stream to prove a did, and return it with its challenge."""
    stream = await connection.open_stream([proof_protocol(topic)])
    (said,) = FrameDecoder().take(await stream.receive_some())
    return stream, json.loads(said)["challenge"]


async def is_taken(stream: Any, proof: bytes) -> bool:
    await stream.send_all(encode_frame(proof))
    try:
        with trio.fail_after(20):
            return not await stream.receive_some()
    except StreamReset:
        return False


async def test_fifty_logs_that_prove_a_did_have_one_connection_and_each_gets_what_it_lacks() -> None:
    rooms = [f"room-{number}.example.com" for number in range(50)]
    rules = {"default": {"dids": {ALICE.did: ALL}}}
    async with hub_of(*rooms, rules=rules) as (hub, logs), clients_of(hub, *((room, ALICE) for room in rooms)) as (own, links):
        for log, other in zip(logs, own, strict=True):
            await log.append("of the hub")
            await other.append("ours")
            await until_count(log, 2)
            await until_count(other, 2)
        assert hub.admission.open == 1
        assert [link.attempts for link in links] == [1] * 50
        assert len(hub.links()) == 50


async def test_a_shelf_proves_a_did_for_each_of_its_logs(tmp_path: Any) -> None:
    async with (
        hub_of("a", "both") as (hub, logs),
        gossiplog.shelf(tmp_path, signer=ALICE) as shelf,
        shelf.connect(f"ws://127.0.0.1:{hub.port}", topics=["a", "both"], identity=ALICE),
    ):
        for log in logs:
            await log.append("of the hub")
            async with shelf.open(log.topic) as own:
                await until_count(own, 1)
        assert hub.admission.open == 1


async def test_a_log_to_which_the_did_is_not_let_in_is_refused_alone_and_is_told_why() -> None:
    async with hub_of("a", "b", "both") as (hub, logs), clients_of(hub, ("a", ALICE), ("b", ALICE), ("both", ALICE)) as (own, links):
        assert [link.is_connected for link in links] == [True, False, True]
        assert f"{ALICE.did} is not let in here" in (links[1].error or "")
        await logs[1].append("for Bob alone")
        for number in (0, 2):
            await logs[number].append("for Alice too")
            await until_count(own[number], 1)
        assert await own[1].count() == 0 and not hub.services["b"].peers
        assert hub.admission.open == 1


async def test_two_dids_have_a_connection_each() -> None:
    async with hub_of("a", "b", "both") as (hub, logs), clients_of(hub, ("a", ALICE), ("b", BOB), ("both", ALICE)) as (own, links):
        assert [link.is_connected for link in links] == [True] * 3
        for log, other in zip(logs, own, strict=True):
            await log.append("for both")
            await until_count(other, 1)
        assert hub.admission.open == 2
        (a,), (b,), (both,) = ([*hub.services[topic].peers] for topic in ("a", "b", "both"))
        assert a == both != b


async def test_two_dids_that_are_proved_on_one_connection_have_their_own_rights_in_their_own_logs() -> None:
    async with hub_of("a", "b", "both") as (hub, _), raw(hub, "a", ALICE) as connection:
        await prove_on(connection, host_of(hub), "b", BOB)
        await connection.open_stream([refusals_protocol("b")])
        # What was proved for one log says nothing of another: as nobody, or as one who came with a token for another log.
        await prove_on(connection, host_of(hub), "both", NOBODY)
        for _ in range(2):
            with pytest.raises(StreamReset):
                await connection.open_stream([refusals_protocol("both")])
        for topic in ("a", "b"):
            await connection.open_stream([push_protocol(topic)])
        assert len(hub.links()) == 2


async def test_a_proof_counts_for_its_log_its_stream_and_this_server_alone() -> None:
    async with hub_of("a", "both") as (hub, _), raw(hub, "a", ALICE) as connection:
        _, other = await challenge_on(connection, "both")
        cases = {
            "another log": {"topic": "a"},
            "no log": {"topic": ""},
            "another server": {"host": "hub.example.com"},
            "another port": {"host": "127.0.0.1:1"},
            "another stream": {"challenge": other},
            "http": {"challenge": hub.admission.limits.access.proofs.challenge()},
        }
        for name, changed in cases.items():
            stream, challenge = await challenge_on(connection, "both")
            args = {"host": host_of(hub), "topic": "both", "challenge": challenge} | changed
            assert not await is_taken(stream, make_proof(ALICE, **args)), name
        for changed in ({"did": BOB.did}, {"did": "did:key:zNothing"}, {"signature": "00" * 64}, {"more": "x"}, {"host": "a\nb"}):
            stream, challenge = await challenge_on(connection, "both")
            proof = json.loads(make_proof(ALICE, host_of(hub), "both", challenge)) | changed
            assert not await is_taken(stream, json.dumps(proof).encode()), changed
        for said in (b"", b"[]", b"\xff", b"x" * 5_000):
            stream, _ = await challenge_on(connection, "both")
            assert not await is_taken(stream, said), said
        with pytest.raises(StreamReset):
            await connection.open_stream([refusals_protocol("both")])
        stream, challenge = await challenge_on(connection, "both")
        proof = make_proof(ALICE, host_of(hub), "both", challenge)
        assert await is_taken(stream, proof)
        assert not await is_taken((await challenge_on(connection, "both"))[0], proof), "it counts once"
        await connection.open_stream([refusals_protocol("both")])
        assert not connection.is_over


async def test_what_was_signed_on_a_stream_gets_no_token_by_http() -> None:
    async with hub_of("a", "both") as (hub, _), raw(hub, "a", ALICE) as connection:
        _, challenge = await challenge_on(connection, "both")
        proof = json.loads(make_proof(ALICE, host_of(hub), "both", challenge))
        with pytest.raises(ProtocolNotSupported):
            await connection.open_stream([push_protocol("both")])
        access = hub.admission.limits.access
        read = gossiplog.net.ground.proof.read_proof(json.dumps(proof).encode())
        assert getattr(access.prove("both", read), "status", None) == 401


async def test_a_proof_is_used_up_by_one_log_that_is_asked_for() -> None:
    async with hub_of("a", "both") as (hub, _), raw(hub, "a", ALICE) as connection:
        await prove_on(connection, host_of(hub), "both", ALICE)
        stream = await connection.open_stream([refusals_protocol("both")])
        stream.reset()
        await eventually(lambda: not hub.services["both"].peers)
        with pytest.raises(StreamReset):
            await connection.open_stream([refusals_protocol("both")])


async def test_proofs_that_nobody_uses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "LOGS_MAX", 3)
    async with hub_of("a", "both") as (hub, _), raw(hub, "a", ALICE) as connection:
        for number in range(3):
            await prove_on(connection, host_of(hub), f"none-{number}", ALICE)
        with pytest.raises(StreamReset):
            await prove_on(connection, host_of(hub), "both", ALICE)
        assert not connection.is_over


async def test_a_client_that_proves_nothing_in_time_loses_the_stream_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "CHALLENGE_S", 0.0)
    async with hub_of("a", "both") as (hub, _), raw(hub, "a", ALICE) as connection:
        stream, _ = await challenge_on(connection, "both")
        with trio.fail_after(20), pytest.raises(StreamReset):
            await stream.receive_some()
        assert not connection.is_over


async def test_a_log_that_everybody_may_use_shares_the_connection_of_one_that_takes_a_proof() -> None:
    rules = {"default": {"anonymous": ALL}, "logs": {"a": {"anonymous": [], "dids": {ALICE.did: ALL}}}}
    for topics in (["a", "open"], ["open", "a"]):
        async with hub_of("a", "open", rules=rules) as (hub, logs), clients_of(hub, *((topic, ALICE) for topic in topics)) as (own, _):
            for other in own:
                await logs["ao".index(other.topic[0])].append("there")
                await until_count(other, 1)
            assert hub.admission.open == 1


async def test_a_did_without_rights_of_its_own_counts_as_nobody_when_it_creates_logs(tmp_path: Any) -> None:
    """Anybody makes as many dids as it likes, so logs that it creates are counted by its address."""
    access = Access.parse({"default": {"anonymous": [*ALL, "create"]}})
    limits = HubLimits(access=access, creatable=("*",), creations_per_minute=2)
    async with (
        gossiplog.shelf(tmp_path, signer=signer(1)) as shelf,
        shelf.listen("127.0.0.1:0", limits=limits) as hub,
        muxed(f"ws://127.0.0.1:{hub.port}/room-0") as connection,
    ):
        for number in range(1, 5):
            await prove_on(connection, host_of(hub), f"room-{number}", signer(10 + number))
            if number < 2:
                await connection.open_stream([refusals_protocol(f"room-{number}")])
            else:
                with pytest.raises(StreamReset):
                    await connection.open_stream([refusals_protocol(f"room-{number}")])
        assert await shelf.topics() == ["room-0", "room-1"]


async def test_hubs_that_take_no_proofs_on_a_connection_have_one_for_each_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "topic_of_proof", lambda protocol: None)
    async with hub_of("a", "both") as (hub, logs), clients_of(hub, ("a", ALICE), ("both", ALICE)) as (own, _):
        for log, other in zip(logs, own, strict=True):
            await log.append("there")
            await until_count(other, 1)
        assert hub.admission.open == 2


async def test_a_token_of_the_connection_serves_logs_for_which_nothing_is_proved() -> None:
    rules = {"tokens": {"editor": hash_token("secret")}, "default": {"tokens": {"editor": ALL}, "dids": {ALICE.did: ALL}}}
    async with hub_of("a", "b", "both", rules=rules) as (hub, _), muxed(f"ws://127.0.0.1:{hub.port}/a?token=secret") as connection:
        await connection.open_stream([refusals_protocol("b")])
        await prove_on(connection, host_of(hub), "both", ALICE)
        await connection.open_stream([refusals_protocol("both")])
        assert len(hub.links()) == 3


async def test_a_member_that_is_removed_from_one_log_keeps_those_for_which_it_proved_its_did() -> None:
    policy = gossiplog.Policy([signer(1).did])
    rules = {"default": {"anonymous": []}, "logs": {"a": {"dids": {ALICE.did: ALL}}}}
    limits = HubLimits(access=Access.parse(rules))
    async with gossiplog.open(":memory:", topic="team.example.com", policy=policy, signer=signer(1)) as log, memory_log(1, "a") as other:
        node = (await log.grant(ALICE.did, "write")).id
        async with (
            listen([log, other], "127.0.0.1:0", limits=limits, make_http=make_http) as hub,
            clients_of(hub, ("a", ALICE), (log.topic, ALICE)) as (own, links),
        ):
            assert [link.is_connected for link in links] == [True, True] and hub.admission.open == 1
            await log.revoke(node)
            with trio.fail_after(20):
                await links[1].wait_disconnected()
            await eventually(lambda: "is not let in here" in (links[1].error or ""))
            await other.append("still there")
            await until_count(own[0], 1)
            assert links[0].attempts == 1


@pytest.mark.slow
async def test_of_257_logs_the_last_is_refused_and_the_others_go_on(tmp_path: Any) -> None:
    topics = [f"room-{number}" for number in range(LOGS_MAX + 1)]
    rules = {"default": {"dids": {ALICE.did: [*ALL, "create"]}}}
    limits = HubLimits(access=Access.parse(rules), creatable=("*",), creations_per_minute=1_000)
    async with (
        gossiplog.shelf(tmp_path, signer=signer(1), most_open=LOGS_MAX + 8) as shelf,
        shelf.listen("127.0.0.1:0", limits=limits) as hub,
    ):
        async with shelf.open(topics[0], create=True):
            pass
        async with raw(hub, topics[0], ALICE) as connection:
            for topic in topics[1:-1]:
                await prove_on(connection, host_of(hub), topic, ALICE)
                await connection.open_stream([refusals_protocol(topic)])
                connection.muxer.streams_max += STREAMS_A_LOG  # as our client does
            await prove_on(connection, host_of(hub), topics[-1], ALICE)
            with pytest.raises(StreamReset):
                await connection.open_stream([refusals_protocol(topics[-1])])
            assert len(hub.links()) == LOGS_MAX and not connection.is_over
            await connection.open_stream([push_protocol(topics[-2])])
