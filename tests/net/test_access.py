"""Who is let in, what a client may, and how much it may bring; and that whoever is refused is told why, and nobody is banned for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hostile_client import muxed, push, push_stream
from network_support import PATIENCE_S, TOPIC, eventually, fetch, memory_log, open_stream, signer, until_count, until_equal, until_has
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, CloseConnection, Ping, Pong, Request

from gossiplog import GossipLog
from gossiplog.archive import entry_to_line
from gossiplog.broadcast import allowance
from gossiplog.codec.framing import encode_frame
from gossiplog.entry.validation import Rule, Verdict
from gossiplog.errors import LocalProtocolError, StorageFull
from gossiplog.net.ground.access import Access, hash_token, make_token
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.hub.client import parse_url
from gossiplog.net.hub.exchange import exchange
from gossiplog.net.hub.server import Hub, listen
from gossiplog.net.service.service import INSERTING_MAX
from gossiplog.sync import schedule
from gossiplog.sync.rpc import Insert
from gossiplog.sync.wire import encode_event
from gossiplog.web import make_http
from gossiplog.web.glass import GlassSettings

READER, WRITER, WATCHER = make_token(), make_token(), make_token()
TOKENS = {"reader": hash_token(READER), "writer": hash_token(WRITER), "watcher": hash_token(WATCHER)}
RIGHTS = {"reader": ["connect", "pull"], "writer": ["connect", "push", "post"], "watcher": ["watch"]}
JSON = {"content-type": "application/json"}


def limits(**rules: Any) -> HubLimits:
    """What a file of rules comes to; by default there are three tokens, and without one nothing is allowed."""
    table = {"tokens": TOKENS, "default": {"tokens": RIGHTS, **rules}}
    return HubLimits(access=Access.parse(table))


def open_to_all(**rules: Any) -> HubLimits:
    return HubLimits(access=Access.parse({"default": rules}))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def post(hub: Hub, log: GossipLog, payload: object, headers: Mapping[str, str] | None = None) -> tuple[int, str, str | None]:
    entry = await log.append(payload)
    answer = await fetch(hub, "/api/messages", method="POST", headers={**JSON, **(headers or {})}, body=entry_to_line(entry))
    return answer.status, answer.body.decode().strip(), answer.headers.get("retry-after")


async def test_each_request_takes_its_right() -> None:
    async with memory_log(1) as log, memory_log(2) as other, log.listen("127.0.0.1:0", limits=limits()) as hub:
        body = entry_to_line(await other.append(1))
        watched = [("watch", "GET", f"/api/{name}") for name in ("connections", "peers", "glass/nodes", "glass/links")]
        for right, method, path in [("pull", "GET", "/api/heads"), *watched, ("post", "POST", "/api/messages")]:
            for token, name in ((None, ""), (READER, "reader"), (WRITER, "writer"), (WATCHER, "watcher"), ("nonsense", "nobody")):
                headers = {**JSON, **({} if token is None else bearer(token))}
                answer = await fetch(hub, path, method=method, headers=headers, body=body if method == "POST" else b"")
                expected = 201 if method == "POST" else 200
                wanted = expected if right in RIGHTS.get(name, []) else 403 if name in RIGHTS else 401
                assert answer.status == wanted, (right, name, answer.body)
                assert ("www-authenticate" in answer.headers) == (wanted == 401)
        assert (await fetch(hub, "/metrics")).status == 401
        assert (await fetch(hub, "/metrics", headers=bearer(WATCHER))).status == 200
        assert (await fetch(hub, "/readyz")).status == 200


SPELLINGS = ("{}", "/{}", "{}/", "%2F{}", "./{}", "x/../{}", "{}?x", "{}%3F", "%{:x}")
SPELLINGS += ("{}%0A", "{}%0D", "{}%00", "{}%20", "{}%C2%85", "{}%E2%80%A8")


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_no_spelling_of_a_path_is_answered_without_the_right(spelling: str) -> None:
    hub_limits = limits(anonymous=["pull"])
    make = partial(make_http, glass=GlassSettings(has_page=True))
    async with memory_log(1) as log, listen([log], "127.0.0.1:0", limits=hub_limits, make_http=make) as hub:
        for name in ("connections", "doctor", "facts", "peers", "overview", "why", "glass/facts", "glass/nodes", "glass/links"):
            spelled = f"%{ord(name[0]):x}{name[1:]}" if ":x" in spelling else spelling.format(name)
            answer = await fetch(hub, f"/api/{spelled}")
            assert answer.status in (307, 400, 401, 404), (spelled, answer.body)
            assert log.topic.encode() not in answer.body


async def test_token_may_be_in_the_url_and_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=limits()) as hub:
        await log.append_many(range(5))
        answer = await fetch(hub, f"/api/messages?limit=2&token={READER}")
        assert (answer.status, len(answer.json)) == (200, 2)
        assert (await fetch(hub, f"/api/clock?token={READER}")).status == 200
        async with client.connect(f"{hub.urls[0]}/?token={READER}") as link:
            await until_count(client, 5)
            assert link.url == f"{hub.urls[0]}/"
        assert (await fetch(hub, f"/api/heads?token={WRITER}x")).status == 401
    said = "".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert READER not in said
    assert WRITER not in said


async def test_client_without_a_token_is_told_why_and_is_let_in_with_one() -> None:
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=limits()) as hub:
        await log.append_many(range(5))
        for token, reason in ((None, "to connect takes a token"), ("wrong", "not known here"), (WATCHER, "does not allow to connect")):
            async with client.connect(hub.urls[0], token=token) as link:
                await eventually(lambda link=link: link.error)
                assert reason in (link.error or "")
        async with client.connect(hub.urls[0], headers=bearer(READER)):
            await until_count(client, 5)
        done = await exchange(client, parse_url(hub.urls[0], token=READER), pushes=False)
        assert done.is_equal


async def handshake(hub: Hub, *, origin: str, target: str = "/", subprotocols: list[str] | None = None) -> tuple[AcceptConnection, Any]:
    """Connect as a page does; return the answer, and how the server said goodbye if it did before it answered a ping."""
    protocol = WSConnection(ConnectionType.CLIENT)
    request = Request(host="localhost", target=target, subprotocols=subprotocols or [], extra_headers=[(b"origin", origin.encode())])
    events: list[Any] = []
    async with await open_stream(hub) as stream:
        await stream.send_all(protocol.send(request))
        with trio.fail_after(PATIENCE_S):
            while not any(isinstance(event, (CloseConnection, Pong)) for event in events):
                protocol.receive_data(await stream.receive_some() or None)
                new = list(protocol.events())
                events += new
                if any(isinstance(event, AcceptConnection) for event in new) and protocol.state is ConnectionState.OPEN:
                    await stream.send_all(protocol.send(Ping()))
    return events[0], next((event for event in events if isinstance(event, CloseConnection)), None)


async def test_page_brings_its_token_as_a_subprotocol_and_reads_why_not() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits()) as hub:
        origin = "http://localhost:5173"
        accepted, goodbye = await handshake(hub, origin=origin, subprotocols=["gossiplog", f"bearer.{READER}"])
        assert (accepted.subprotocol, goodbye) == ("gossiplog", None)
        for options, code in (({}, 4401), ({"subprotocols": ["bearer.wrong"]}, 4401), ({"target": f"/?token={WATCHER}"}, 4403)):
            _, goodbye = await handshake(hub, origin=origin, **options)
            assert goodbye.code == code
            assert "token" in goodbye.reason


async def test_client_that_may_only_pull_brings_nothing_and_one_that_may_only_push_gets_nothing() -> None:
    async with memory_log(1) as log, memory_log(2) as reader, memory_log(3) as writer, log.listen("127.0.0.1:0", limits=limits()) as hub:
        await log.append_many(range(5))
        await reader.append("not wanted")
        await writer.append("wanted")
        async with reader.connect(hub.urls[0], token=READER), writer.connect(hub.urls[0], token=WRITER):
            await until_count(reader, 6)
            await until_count(log, 6)
            late = await writer.append("pushed")
            await until_has(log, [late])
            await until_has(reader, [late])
            await reader.append("not wanted either")
            await eventually(lambda: any(link.counts.get("refused", 0) > 1 for link in hub.links()))
            own = await log.append("ours")
            await until_has(reader, [own])
        assert await log.count() == 8
        assert await writer.count() == 2


async def test_entries_of_others_than_those_allowed_are_not_taken_and_nobody_is_blamed() -> None:
    rules = open_to_all(allow=[signer(2).did])
    async with memory_log(1) as log, memory_log(2) as friend, memory_log(3) as foe, log.listen("127.0.0.1:0", limits=rules) as hub:
        async with foe.connect(hub.urls[0]), friend.connect(hub.urls[0]):
            await eventually(lambda: len(hub.links()) == 2 and all(link.is_pushing for link in hub.links()))
            for number in range(20):
                await foe.append(number)
            entry = await friend.append("welcome")
            await until_has(log, [entry])
            status, reason, _ = await post(hub, foe, "posted")
            assert (status, reason) == (403, f"entries of {signer(3).did} are not taken here")
            await eventually(lambda: len(hub.links()) == 2)
            assert [item.message.payload async for item in log.iterate()] == ["welcome"]
        # From an upstream, which it is a client of, it takes everything.
        async with foe.listen("127.0.0.1:0") as above, log.connect(above.urls[0]):
            await until_count(log, 22)


async def test_honest_burst_over_the_quota_is_taken_bit_by_bit_and_never_banned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "MINUTE_S", 1.0)
    monkeypatch.setattr(schedule, "QUOTA_S", 0.25)
    rules = open_to_all(quota={"entries_per_minute": 20})
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=rules) as hub, client.connect(hub.urls[0]):
        await eventually(lambda: hub.links() and hub.links()[0].is_pushing)
        for number in range(50):
            await client.append(number)
        await until_equal(client, log)
        assert hub.services[TOPIC].figures.verdicts["push", "ignore", "quota"] > 0
        assert len(hub.links()) == 1


async def test_client_over_its_quota_does_not_keep_the_hub_and_its_other_clients_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "MINUTE_S", 2.0)
    monkeypatch.setattr(schedule, "QUOTA_S", 0.5)
    rules = open_to_all(quota={"entries_per_minute": 20})
    async with AsyncExitStack() as stack:
        log, greedy, other = [await stack.enter_async_context(memory_log(number)) for number in (1, 2, 3)]
        hub = await stack.enter_async_context(log.listen("127.0.0.1:0", limits=rules))
        for client in (greedy, other):
            await stack.enter_async_context(client.connect(hub.urls[0]))
        await eventually(lambda: len(hub.links()) == 2 and all(link.is_pushing for link in hub.links()))
        began = trio.current_time()
        for number in range(60):
            await greedy.append(number)
        await until_equal(greedy, log, other)
        took_s = trio.current_time() - began
        counts = sorted((link.counts for link in hub.links()), key=lambda each: each.get("syncs", 0))
        assert [each.get("syncs", 0) > 0 for each in counts] == [False, True]
        assert counts[1]["syncs"] <= 2 + took_s / 0.5, "not one for each entry for which there is room"
        assert counts[0].get("syncs served", 0) <= 1, "what a session brought is pushed to the others"


async def test_what_is_over_a_quota_is_not_verified_but_what_is_forged_for_it_names_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = open_to_all(quota={"entries_per_writer": 20})
    async with memory_log(1) as log, memory_log(2) as client, memory_log(3) as other, log.listen("127.0.0.1:0", limits=rules) as hub:
        validate, verified = log._validate, list[bytes]()

        def counting(values: Sequence[bytes]) -> list[Verdict]:
            verified.extend(values)
            return validate(values)

        monkeypatch.setattr(log, "_validate", counting)
        entries = await client.append_many(range(300))
        victims = await other.append("honest")
        verdicts = hub.services[TOPIC].figures.verdicts
        async with muxed(hub) as connection:
            stream = await push_stream(connection)
            await push(stream, entries)
            await eventually(lambda: verdicts["push", "ignore", "unwelcome"] == 280)
            # What was under way when the first of them was refused; 48 are, of one client.
            assert 20 < len(verified) <= 20 + 2 * INSERTING_MAX
            # Under another's key there is something over the quota, which says nothing of that key.
            await stream.send_all(encode_frame(encode_event(Insert(victims.key, entries[-1].value))))
            await eventually(lambda: verdicts["push", "reject", "key"] == 1)
            await push(stream, [victims])
            await until_has(log, [victims])
        assert await log.count() == 21


async def test_what_is_over_a_quota_is_429_with_the_time_to_wait_and_other_writers_are_served() -> None:
    rules = open_to_all(quota={"entries_per_minute": 3, "bytes_per_minute": 5_000})
    async with memory_log(1) as log, memory_log(2) as a, memory_log(3) as b, log.listen("127.0.0.1:0", limits=rules) as hub:
        first = await a.append(0)
        for _ in range(4):
            # Again and again the same one, which costs nothing.
            answer = await fetch(hub, "/api/messages", method="POST", headers=JSON, body=entry_to_line(first))
            assert answer.status == 201
        for number in range(2):
            assert (await post(hub, a, number))[0] == 201
        status, reason, wait = await post(hub, a, "too many")
        assert (status, reason) == (429, "more than 3 entries of one writer a minute")
        assert wait is not None
        assert 1 <= int(wait) <= 20
        assert (await post(hub, b, "x" * 4_000))[0] == 201
        status, reason, _ = await post(hub, b, "x" * 4_000)
        assert (status, reason) == (429, "more than 5,000 bytes of one writer a minute")


@pytest.mark.parametrize(
    ("quota", "reason"),
    [
        ({"entries_per_writer": 3}, "3 entries of {did} are here, the most that are taken"),
        ({"bytes_per_writer": 1_000}, "more than 1,000 bytes of {did}"),
        ({"log_bytes": 1_000}, "the log would have more than 1,000 bytes"),
    ],
)
async def test_totals_count_what_was_there_before_and_what_comes_in_one_batch(quota: dict[str, int], reason: str) -> None:
    async with memory_log(1) as log, memory_log(2) as client:
        first = await client.append(0)
        await log.insert(first.value)
        async with log.listen("127.0.0.1:0", limits=open_to_all(quota=quota)) as hub, client.connect(hub.urls[0]):
            await eventually(lambda: hub.links() and hub.links()[0].is_pushing)
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(client.append, number)
            await eventually(lambda: sum(hub.services[TOPIC].figures.verdicts.values()) >= 20)
            assert (await post(hub, client, "posted"))[:2] == (403, reason.format(did=first.author))
        entries = [entry async for entry in log.iterate()]
        assert len(entries) == 3 or 800 < sum(len(entry.value) for entry in entries) <= 1_000


async def test_what_was_here_before_is_counted_when_a_total_comes_later_and_nothing_is_taken_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = open_to_all()
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=rules) as hub:
        assert [(await post(hub, client, number))[0] for number in range(5)] == [201] * 5
        read, may_go_on = log._store.read, trio.Event()

        async def slow(plan: Any) -> Any:
            await may_go_on.wait()
            return await read(plan)

        with monkeypatch.context() as patch:
            patch.setattr(log._store, "read", slow)
            rules.access.replace(open_to_all(quota={"entries_per_writer": 7}).access)
            entry = await client.append("while it is counted")
            wait = hub.allowances[TOPIC].find_wait(entry, None, trio.current_time())
            assert wait is not None
            assert (wait.verdict.rule, wait.seconds) == (Rule.QUOTA, allowance.COUNTING_S)
            # One that comes by another way is counted once, whether it is read or heard of.
            await log.insert(entry.value)
            may_go_on.set()
            await eventually(lambda: hub.allowances[TOPIC].is_counted)
        assert [(await post(hub, client, number))[0] for number in range(5, 8)] == [201, 403, 403]


async def test_several_listeners_of_a_log_count_together_until_the_last_one_ends() -> None:
    rules = open_to_all(quota={"entries_per_minute": 3})
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=rules) as hub:
        async with log.listen("127.0.0.1:0", limits=rules) as other:
            assert [(await post(at, client, at.port + n))[0] for n in range(2) for at in (hub, other)] == [201, 201, 201, 429]
        assert (await post(hub, client, "after one of them ended"))[0] == 429


async def test_post_of_what_is_here_already_is_answered_as_the_first_time_whatever_the_quota() -> None:
    for quota in ({"entries_per_minute": 2}, {"entries_per_writer": 2}):
        async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=open_to_all(quota=quota)) as hub:
            body = entry_to_line(await client.append("its answer was lost"))
            for payload in (None, "the last one that is taken", None):
                if payload is not None:
                    assert (await post(hub, client, payload))[0] == 201
                else:
                    assert (await fetch(hub, "/api/messages", method="POST", headers=JSON, body=body)).status == 201
            assert (await post(hub, client, "one more"))[0] in (403, 429)


async def test_totals_remember_no_writer_of_whom_nothing_is_here() -> None:
    rules = open_to_all(quota={"entries_per_writer": 3})
    async with memory_log(1, authorize=lambda message, did: False) as log, log.listen("127.0.0.1:0", limits=rules) as hub:
        for number in range(20, 30):
            async with memory_log(number) as stranger:
                assert (await post(hub, stranger, number))[0] == 400
        assert hub.allowances[TOPIC].totals == {}


async def test_what_is_brought_many_times_at_once_is_charged_once() -> None:
    rules = open_to_all(quota={"entries_per_writer": 3})
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=rules) as hub:
        body = entry_to_line(await client.append("the same"))

        async def replay() -> None:
            assert (await fetch(hub, "/api/messages", method="POST", headers=JSON, body=body)).status == 201

        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(replay)
        assert [(await post(hub, client, number))[0] for number in range(3)] == [201, 201, 403]


async def test_what_the_store_failed_is_not_charged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    rules = open_to_all(quota={"entries_per_minute": 12, "entries_per_writer": 12})
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=rules) as hub:
        write, failures = log._store.write, 2

        async def failing(plan: Any) -> Any:
            nonlocal failures
            if not failures:
                return await write(plan)
            failures -= 1
            plan.close()
            raise StorageFull("the disk is full")

        monkeypatch.setattr(log._store, "write", failing)
        assert (await post(hub, client, 0))[0] == 503
        await client.append_many(range(10))
        # What is left out because of the failure is brought again at once, or by the next one.
        for _ in range(2):
            done = await exchange(client, parse_url(hub.urls[0]))
        assert (failures, done.is_equal) == (0, True)
        assert [(await post(hub, client, number))[0] for number in range(2)] == [201, 403]
    caplog.clear()


async def test_post_to_a_log_that_is_being_closed_is_503() -> None:
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0") as hub:
        log.writer.close()
        assert (await post(hub, client, 1))[:2] == (503, "the log is being closed")


def test_rules_that_cannot_be_meant_are_refused_by_their_key(tmp_path: Path) -> None:
    faults: list[tuple[dict[str, Any], str]] = [
        ({"defualt": {}}, "there is no defualt"),
        ({"tokens": {"a": "plain"}}, "tokens.a is no hash"),
        ({"default": {"anonymous": ["read"]}}, "there is no right 'read'"),
        ({"default": {"tokens": {"b": ["pull"]}}}, "there is no default.tokens.b"),
        ({"default": {"allow": "did:key:x"}}, "default.allow is a list"),
        ({"logs": {"a.b": {"allow": ["me"]}}}, "logs.a.b.allow: 'me' is no did"),
        ({"default": {"quota": {"entries_per_minute": 0}}}, "a whole number above 0"),
        ({"default": {"quota": {"entries_per_hour": 1}}}, "there is no default.quota.entries_per_hour"),
        ({"default": []}, "default is a table"),
    ]
    for table, reason in faults:
        with pytest.raises(LocalProtocolError, match=reason.replace(".", r"\.")):
            Access.parse(table)
    with pytest.raises(LocalProtocolError, match=r"nowhere\.toml"):
        Access.load(tmp_path / "nowhere.toml")


def test_rules_of_a_log_take_the_place_of_the_default_and_a_token_is_never_kept() -> None:
    table = {"tokens": TOKENS, "default": {"tokens": RIGHTS}, "logs": {"public.example.com": {"anonymous": ["connect", "pull"]}}}
    access = Access.parse(table)
    assert access.rights("public.example.com", None) == {"connect", "pull"}
    assert access.rights(TOPIC, None) == frozenset()
    assert access.rights(TOPIC, READER) == {"connect", "pull"}
    assert READER not in json.dumps(repr(vars(access)))
    access.replace(Access())
    assert "push" in access.rights(TOPIC, None)  # type: ignore[operator]


def test_url_with_a_token_shows_none() -> None:
    hub = parse_url("wss://hub.example.com/topic?a=1&token=s%20cret&b=2")
    assert (hub.url, hub.target) == ("wss://hub.example.com/topic?a=1&b=2", "/topic?a=1&b=2")
    assert hub.headers == (("Authorization", "Bearer s cret"),)
    assert "cret" not in repr(hub)
    with pytest.raises(LocalProtocolError) as caught:
        parse_url("http://hub.example.com?token=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["a\r\nb: c", "secret ", " "])
def test_a_token_that_no_header_can_carry_is_refused_before_anybody_is_dialled(token: str) -> None:
    with pytest.raises(LocalProtocolError, match="'Authorization', or what it says, cannot be sent"):
        parse_url("ws://hub.example.com", token=token)


@pytest.mark.parametrize(("name", "value"), [("", "v"), ("X A", "v"), ("X-A:", "v"), ("X-A", " v")])
def test_a_header_that_is_none_is_refused_before_anybody_is_dialled(name: str, value: str) -> None:
    parse_url("ws://hub.example.com", headers={"X-A": "a  b", "X-B": ""})
    with pytest.raises(LocalProtocolError, match="cannot be sent"):
        parse_url("ws://hub.example.com", headers={name: value})


async def test_entry_of_one_client_does_not_wait_for_all_that_others_sent_before(monkeypatch: pytest.MonkeyPatch) -> None:
    others, each = 20, INSERTING_MAX - 1
    gate = trio.Event()
    async with memory_log(1) as log, memory_log(2) as honest, log.listen("127.0.0.1:0") as hub, AsyncExitStack() as stack:
        verify = log.verify_many

        async def held(values: Sequence[bytes]) -> list[Verdict]:
            await gate.wait()
            return await verify(values)

        monkeypatch.setattr(log, "verify_now", lambda value: None)
        monkeypatch.setattr(log, "verify_many", held)
        authors: list[str] = []
        stack.enter_context(log.watch_commits(lambda entries: authors.extend(entry.author for entry in entries)))
        service = hub.services[TOPIC]
        for number in range(others):
            async with memory_log(10 + number) as writer:
                entries = await writer.append_many(range(each))
            await push(await push_stream(await stack.enter_async_context(muxed(hub))), entries)
        await eventually(lambda: sum(link.counts.get("received", 0) for link in hub.links()) == others * each)
        before, entry = service.waiting, await honest.append("honest")
        await push(await push_stream(await stack.enter_async_context(muxed(hub))), [entry])
        await eventually(lambda: service.waiting > before)
        gate.set()
        await until_has(log, [entry])
        # What was being verified already, and the batch in which each client has its turn.
        assert authors.index(signer(2).did) < 2 * 256 < others * each
