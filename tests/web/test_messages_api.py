"""The reference's HTTP API, as a client of it sees it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest
import trio
from network_support import TOPIC, fetch, memory_log, signer, until_has
from snapshot_support import SCHEMES

import gossiplog
from gossiplog import Entry, GossipLog
from gossiplog.archive import entry_to_line, line_to_value
from gossiplog.codec import pcf
from gossiplog.entry import sign_entry
from gossiplog.entry.message_id import encode_id
from gossiplog.net.hub.server import Hub, listen
from gossiplog.web import make_http, reference_api
from gossiplog.web.reference_api import BODY_BYTES_MAX

VECTORS = Path(__file__).parents[1] / "vectors"
JSON = {"content-type": "application/json"}
CBOR = {"content-type": "application/cbor"}


@asynccontextmanager
async def served(count: int = 0) -> AsyncIterator[tuple[Hub, GossipLog, list[Entry]]]:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        yield hub, log, await log.append_many({"n": n, "raw": bytes([n % 256])} for n in range(count))


def cbor_body(entry: Entry) -> bytes:
    message, signature = entry.message, entry.signature
    return pcf.encode(
        {
            "message": {"topic": message.topic, "clock": message.clock, "parents": list(message.parents), "payload": message.payload},
            "signature": {"codec": signature.codec, "publicKey": signature.public_key, "signature": signature.signature},
        }
    )


async def test_clock_is_what_the_next_append_will_have() -> None:
    async with served(3) as (hub, log, entries):
        assert (await fetch(hub, "/api/clock")).json == {"clock": 4, "parents": [entries[-1].id]}
        assert (await log.append("next")).clock == 4


async def test_clock_of_an_empty_log_is_one() -> None:
    async with served() as (hub, _, _):
        assert (await fetch(hub, "/api/clock")).json == {"clock": 1, "parents": []}


async def test_entry_is_dag_json_from_which_it_can_be_rebuilt() -> None:
    async with served(3) as (hub, _, entries):
        answer = await fetch(hub, f"/api/messages/{entries[1].id}")
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert line_to_value(answer.body) == (entries[1].value, entries[1].id)


@pytest.mark.parametrize("id", ["0" * 32, "short", "Z" * 32, "0" * 33])
async def test_entry_that_is_not_there_is_404(id: str) -> None:
    async with served(1) as (hub, _, _):
        assert (await fetch(hub, f"/api/messages/{id}")).status == 404


@pytest.mark.parametrize("name", ["ancestors", "snapshot-log"])
async def test_ancestors_are_those_of_the_reference(name: str) -> None:
    vectors = json.loads((VECTORS / f"ref-0.16.1-{name}.json").read_text())
    async with gossiplog.open(":memory:", topic=vectors["topic"], schemes=SCHEMES) as log, log.listen("127.0.0.1:0") as hub:
        await log.insert_many([bytes.fromhex(entry["value"]) for entry in vectors["entries"]])
        assert [entry.id async for entry in log.iterate()] == sorted(entry["id"] for entry in vectors["entries"])
        if root := vectors.get("root"):
            assert (await log.root()).hash.hex() == root["hash"]
        for entry in vectors["entries"]:
            # Its links are in the order of its search, ours ascend.
            expected = [{"clock": each["clock"], "links": sorted(each["links"])} for each in entry["ancestors"]]
            assert (await fetch(hub, f"/api/ancestors/{entry['id']}")).json == expected


async def test_ancestors_of_an_entry_that_is_not_here_are_none_and_what_is_no_id_is_404() -> None:
    async with served(1) as (hub, _, entries):
        assert (await fetch(hub, f"/api/ancestors/{entries[0].id}")).json == []
        assert (await fetch(hub, f"/api/ancestors/{'0' * 32}")).json == []
        for id in ("short", "Z" * 32, "0" * 33):
            # The reference answers 500.
            assert (await fetch(hub, f"/api/ancestors/{id}")).status == 404
        assert (await fetch(hub, f"/api/ancestors/{entries[0].id}?limit=1")).status == 400


async def test_ancestors_that_would_be_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_api, "WALKED_MAX", 200)
    async with served(180) as (hub, _, entries):
        answer = await fetch(hub, f"/api/ancestors/{entries[160].id}")
        assert [each["clock"] for each in answer.json] == [161 - 2**n for n in range(7, -1, -1)]
        assert [each["links"] for each in answer.json] == [[entries[161 - 2**n - 1].id] for n in range(7, -1, -1)]
        assert (await fetch(hub, f"/api/ancestors/{entries[128].id}")).status == 200
    async with served(270) as (hub, _, entries):
        answer = await fetch(hub, f"/api/ancestors/{entries[-1].id}")
        assert (answer.status, answer.body) == (400, b"more than 200 ancestors would have to be read and named")


async def test_pages_follow_ranges_order_and_limit() -> None:
    async with served(100) as (hub, _, entries):
        ids = [entry.id for entry in entries]

        async def page(query: str) -> list[str]:
            answer = await fetch(hub, f"/api/messages?{query}")
            assert answer.status == 200, answer.body
            assert all(set(each) == {"id", "branch", "signature", "message"} for each in answer.json)
            return [each["id"] for each in answer.json]

        assert await page("") == ids[:64]
        assert await page("limit=3") == ids[:3]
        assert await page("order=desc&limit=5") == ids[:-6:-1]
        assert await page(f"gt={ids[9]}&lte={ids[12]}") == ids[10:13]
        assert await page(f"gte={ids[9]}&lt={ids[12]}") == ids[9:12]
        assert await page(f"gte={ids[9][:8]}&lt={ids[12][:8]}") == ids[9:12]
        assert await page(f"gt={ids[90]}&order=desc") == ids[:90:-1]
        assert await page("gte=0") == ids[:64]
        assert await page(f"gt={ids[-1]}") == []
        assert await page(f"gt={ids[50]}&lt={ids[20]}") == []


async def test_count_counts_all_or_a_range() -> None:
    async with served(300) as (hub, _, entries):
        assert (await fetch(hub, "/api/messages/count")).json == {"count": 300}
        assert (await fetch(hub, f"/api/messages/count?gte={entries[10].id}")).json == {"count": 290}
        assert (await fetch(hub, f"/api/messages/count?lt={entries[10].id}")).json == {"count": 10}


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=65",
        "limit=1000",
        "limit=-1",
        "limit=x",
        "limit=",
        "limit=%D9%A3",
        "order=up",
        "gt=!",
        "gt=",
        f"lt={'0' * 33}",
        "gte=%00",
        "gt=zzz",
    ],
)
async def test_wrong_query_is_400_and_names_the_parameter_and_its_value(query: str) -> None:
    async with served(1) as (hub, _, _):
        answer = await fetch(hub, f"/api/messages?{query}")
        assert answer.status == 400
        name, _, value = query.partition("=")
        assert name in answer.body.decode()
        assert json.dumps(unquote(value)) in answer.body.decode()


async def test_parameter_that_nothing_would_come_of_is_named() -> None:
    async with served(1) as (hub, _, _):
        for path, name in (("messages", "reverse"), ("messages/count", "limit"), ("clock", "now"), ("events", "since"), ("heads", "x")):
            answer = await fetch(hub, f"/api/{path}?{name}=1")
            assert answer.status == 400, path
            assert f'no parameter "{name}"' in answer.body.decode()


async def test_options_are_answered_with_the_methods_that_there_are() -> None:
    async with served(1) as (hub, _, _):
        for path, methods in (("clock", {"GET", "HEAD"}), ("messages", {"GET", "HEAD", "POST"})):
            answer = await fetch(hub, f"/api/{path}", method="OPTIONS")
            assert answer.status == 200
            assert set(answer.headers["allow"].replace(" ", "").split(",")) == methods
            assert answer.body.decode() == answer.headers["allow"]
        assert (await fetch(hub, "/api/clock", method="DELETE")).status == 405
        assert (await fetch(hub, "/api/none", method="OPTIONS")).status == 404


async def test_large_entry_can_be_posted() -> None:
    async with memory_log(1, value_bytes_max=2**20) as log, log.listen("127.0.0.1:0") as hub:
        entry = sign(2, {"bulk": bytes(700_000)})
        assert (await fetch(hub, "/api/messages", method="POST", headers=JSON, body=entry_to_line(entry))).status == 201
        assert await log.has(entry.id)


async def test_posted_entry_is_created_once_and_answered_alike_again() -> None:
    async with served(2) as (hub, log, entries), memory_log(2) as client, client.connect(hub.urls[0]):
        await until_has(client, entries)
        bodies = [
            (sign(3, "json", entries[-1]), entry_to_line, JSON),
            (sign(4, "cbor", entries[-1]), cbor_body, CBOR),
        ]
        for entry, encode, headers in bodies:
            for _ in range(2):
                answer = await fetch(hub, "/api/messages", method="POST", headers=headers, body=encode(entry))
                assert (answer.status, answer.body) == (201, b"")
                assert answer.headers["location"] == f"messages/{entry.id}"
            assert (await log.get(entry.id)).value == entry.value
            await until_has(client, [entry])
        assert await log.count() == 4


def sign(number: int, payload: object, *parents: Entry, topic: str = TOPIC) -> Entry:
    keys = [parent.key for parent in parents]
    return sign_entry(signer(number), topic, 1 + max((p.clock for p in parents), default=0), keys, pcf.encode(payload))


async def test_posts_that_no_replica_accepts_are_400_with_the_rule() -> None:
    async with served(1) as (hub, log, entries):
        lost = sign(2, "parent")
        record = json.loads(entry_to_line(sign(2, "x", entries[0])))
        forged = {**record, "message": {**record["message"], "payload": "y"}}
        cases = {
            b"parents": entry_to_line(sign(2, "orphan", lost)),
            b"topic": entry_to_line(sign(2, "x", topic="other.example")),
            b"signature": json.dumps(forged).encode(),
            b"clock": json.dumps({**record, "message": {**record["message"], "clock": 9}}).encode(),
            b"no entry": b'{"message":{}}',
            b"the body": b"not json",
        }
        for reason, body in cases.items():
            answer = await fetch(hub, "/api/messages", method="POST", headers=JSON, body=body)
            assert answer.status == 400
            assert reason in answer.body, (reason, answer.body)
        for headers, body in ((CBOR, b"\xff"), (CBOR, b"\xa0"), ({}, b"{}"), ({"content-type": "text/plain"}, b"{}")):
            assert (await fetch(hub, "/api/messages", method="POST", headers=headers, body=body)).status == 400
        assert await log.count() == 1


async def test_body_that_no_entry_can_need_is_refused() -> None:
    async with served() as (hub, _, _):
        too_large = b'"' + b"x" * BODY_BYTES_MAX + b'"'
        answer = await fetch(hub, "/api/messages", method="POST", headers=JSON, body=too_large)
        assert answer.status == 413


async def test_fault_of_the_store_is_not_the_senders_and_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from gossiplog.errors import StorageFull

    async with served() as (hub, log, _):

        async def write(plan: object) -> None:
            raise StorageFull("/secret/place is full")

        monkeypatch.setattr(log._store, "write", write)
        answer = await fetch(hub, "/api/messages", method="POST", headers=JSON, body=entry_to_line(sign(2, "x")))
        assert answer.status == 503
        assert b"secret" not in answer.body
    caplog.clear()


async def test_api_of_several_logs_lies_under_their_topics() -> None:
    async with memory_log(1, "a.example") as a, memory_log(2, "b.example") as b:
        await b.append_many(range(3))
        async with listen([a, b], "127.0.0.1:0", make_http=make_http) as hub:
            assert (await fetch(hub, "/b.example/api/messages/count")).json == {"count": 3}
            assert (await fetch(hub, "/a.example/api/messages/count")).json == {"count": 0}
            assert (await fetch(hub, "/api/messages/count")).status == 404
            assert (await fetch(hub, "/")).json["topics"] == ["a.example", "b.example"]


async def test_page_of_large_entries_is_written_as_it_is_read() -> None:
    async with memory_log(1, value_bytes_max=2**20) as log, log.listen("127.0.0.1:0") as hub:
        for n in range(20):
            await log.append({"n": n, "bulk": b"x" * 700_000})
        answer = await fetch(hub, "/api/messages")
        assert [each["message"]["payload"]["n"] for each in answer.json] == list(range(20))


async def test_ids_are_those_of_the_log() -> None:
    async with served(1) as (hub, _, entries):
        assert (await fetch(hub, "/api/heads")).json == {"heads": [encode_id(entries[0].key)]}
    await trio.lowlevel.checkpoint()
