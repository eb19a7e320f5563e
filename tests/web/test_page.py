"""The page of a server: its files, what it asks of a log, and who may append through it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trio
from loop_watch import watching_loop
from network_support import eventually, fetch, memory_log, signer

from gossiplog import Entry, GossipLog, Policy, Reject
from gossiplog.net.ground.access import Access, hash_token
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.hub.server import Hub, listen
from gossiplog.net.service.service import observed
from gossiplog.web import make_http
from gossiplog.web.glass import GlassSettings
from gossiplog.web.glass.log_graph import LogGraph

PAGE = Path(__file__).parents[2] / "gossiplog"
JSON = {"content-type": "application/json"}


@asynccontextmanager
async def served(log: GossipLog, *, limits: HubLimits | None = None, may_append: bool = False) -> AsyncIterator[Hub]:
    settings = GlassSettings(has_page=True, may_append=may_append)
    options: dict[str, Any] = {} if limits is None else {"limits": limits}
    async with listen([log], "127.0.0.1:0", make_http=partial(make_http, glass=settings), **options) as hub:
        yield hub


async def test_browser_gets_the_page_and_a_program_gets_json() -> None:
    async with memory_log(1) as log, served(log) as hub:
        page = await fetch(hub, "/", headers={"accept": "text/html,*/*"})
        assert page.status == 200
        assert page.body.startswith(b"<!doctype html>")
        assert (await fetch(hub, "/")).json["topics"] == [log.topic]
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        assert (await fetch(hub, "/", headers={"accept": "text/html"})).json["topics"] == [log.topic]
        assert (await fetch(hub, "/glass/main.js")).status == 404


async def test_every_question_about_a_log_refuses_a_parameter_that_it_does_not_take_by_name() -> None:
    paths = "clock messages messages/count messages/x ancestors/x connections heads root events facts peers glass/facts glass/nodes"
    paths += " glass/links overview graph aside members standing search why doctor"
    async with memory_log(1) as log:
        with observed(log):
            async with served(log) as hub:
                for path in paths.split():
                    answer = await fetch(hub, f"/api/{path}?unheard=1")
                    assert (answer.status, b'there is no parameter "unheard" here' in answer.body) == (400, True), path
                assert (await fetch(hub, "/metrics?unheard=1")).status == 200


async def test_files_of_the_page_are_served_under_a_strict_policy_and_kept_until_they_change() -> None:
    names = [path.name for path in (PAGE / "web" / "page").iterdir()]
    names += [f"drawing/{path.name}" for path in (PAGE / "graph" / "drawing").iterdir()]
    async with memory_log(1) as log, served(log) as hub:
        for name in ["palette.css", *names]:
            answer = await fetch(hub, f"/glass/{name}")
            assert answer.status == 200, name
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            again = await fetch(hub, f"/glass/{name}", headers={"if-none-match": answer.headers["etag"]})
            assert (again.status, again.body) == (304, b"")
        for name in ("../app.py", "%2e%2e/app.py", "drawing/../../html.py", "", "main.js/"):
            assert (await fetch(hub, f"/glass/{name}")).status == 404


def test_page_has_neither_inline_scripts_nor_anything_that_parses_markup() -> None:
    html = (PAGE / "web" / "page" / "index.html").read_text()
    assert "<script>" not in html
    assert " style=" not in html
    assert " onclick=" not in html
    for folder in (PAGE / "web" / "page", PAGE / "graph" / "drawing"):
        for path in folder.glob("*.js"):
            source = path.read_text()
            for door in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "new Function", "srcdoc"):
                assert door not in source, f"{path.name}: {door}"
            assert len(source.splitlines()) <= 400, path.name


async def test_graph_comes_in_pages_with_parents_by_insertion_number() -> None:
    async with memory_log(1) as log, memory_log(2) as other, served(log) as hub:
        await log.append_many(range(30))
        await log.insert_many([entry.value for entry in await other.append_many(["<b>", {"a": 1}])])
        merge = await log.append("merge")
        first = (await fetch(hub, "/api/graph?limit=20&text=1")).json
        rest = (await fetch(hub, f"/api/graph?after={first['seq'][-1]}")).json
        assert (first["last"], first["more"], rest["more"]) == (33, True, False)
        seqs, ids = first["seq"] + rest["seq"], first["id"] + rest["id"]
        assert seqs == list(range(1, 34))
        assert first["text"][:2] == ["0", "1"]
        assert first["parents"][:3] == [[], [1], [2]]
        assert ids[-1] == merge.id
        assert {ids[seq - 1] for seq in rest["parents"][-1]} == set(merge.message.parents)
        assert [rest["authors"][number] for number in rest["author"]][-1] == merge.author
        assert (await fetch(hub, "/api/graph?after=33")).json["id"] == []
        assert (await fetch(hub, "/api/graph?after=30&until=31")).json["seq"] == [31]
        for query in ("after=-1", "limit=x", "limit=0", "text=yes", "after=" + "9" * 40, "nonsense=1"):
            assert (await fetch(hub, f"/api/graph?{query}")).status == 400, query


async def test_large_pages_that_many_wait_for_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = LogGraph._make

    async def count(self: LogGraph, after: int, *rest: int, has_text: bool) -> bytes:
        made.append(after)
        return await make(self, after, *rest, has_text=has_text)

    monkeypatch.setattr(LogGraph, "_make", count)
    async with memory_log(1) as log, served(log) as hub, trio.open_nursery() as nursery:
        await log.append_many(range(700))
        answers: list[list[int]] = []

        async def ask(after: int) -> None:
            answers.append((await fetch(hub, f"/api/graph?after={after}&text=1")).json["seq"])

        for number in range(30):
            nursery.start_soon(ask, number % 3)
        await eventually(lambda: len(answers) == 30)
        assert {tuple(seqs) for seqs in answers} == {tuple(range(after + 1, 701)) for after in range(3)}
        assert len(made) < 12
        # What nobody waits for is not kept.
        before = len(made)
        await ask(0)
        assert len(made) == before + 1


async def test_list_shows_the_telling_field_first() -> None:
    payloads: list[tuple[Any, str]] = [
        ({"at": 1, "author": "a", "text": "hello"}, '{"text":"hello","at":1,"author":"a"}'),
        ({"board": "b", "title": "card"}, '{"title":"card","board":"b"}'),
        ({"a": 1, "text": None, "type": "move"}, '{"type":"move","a":1,"text":null}'),
        ({"text": "only"}, '{"text":"only"}'),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        (["text"], '["text"]'),
    ]
    async with memory_log(1) as log, served(log) as hub:
        await log.append_many([payload for payload, _ in payloads])
        assert (await fetch(hub, "/api/graph?text=1")).json["text"] == [text for _, text in payloads]
        found = (await fetch(hub, "/api/search?text=hello")).json["found"]
        assert [one["text"] for one in found] == [payloads[0][1]]


async def test_list_is_told_what_was_set_aside() -> None:
    def apply(entries: list[Entry], tx: object) -> None:
        for entry in entries:
            if entry.message.payload == "odd":
                raise Reject("it is odd", id=entry.id)

    async with memory_log(1, apply=apply) as log, memory_log(2) as other, served(log) as hub:
        assert (await fetch(hub, "/api/aside")).json == {"ids": [], "more": False}
        odd, even = await other.append_many(["odd", "even"])
        await log.insert_many([odd.value, even.value])
        assert (await fetch(hub, "/api/aside")).json == {"ids": [odd.id], "more": False}
        assert (await fetch(hub, "/api/aside?more=1")).status == 400


async def test_page_of_the_graph_does_not_hold_the_loop() -> None:
    async with memory_log(1) as log, served(log) as hub:
        for _ in range(4):
            await log.append_many([{"n": n, "text": "x" * 100} for n in range(1_000)])
        await fetch(hub, "/api/graph?limit=2048")
        with watching_loop() as held:
            assert len((await fetch(hub, "/api/graph?limit=2048&text=1")).json["id"]) == 2_048
        assert not held


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("text=TEA", {"tea", "order"}),
        ("text=12", {"order"}),
        ("text=" + quote("<script>"), {"script"}),
        ("path=order.total&value=12", {"order"}),
        ("path=order.items.0.sku&value=tea", {"order"}),
        ("path=order.items.1", set()),
        ("path=flag&value=1", set()),
        ("path=flag&value=true", {"flag"}),
        ("text=none-of-them", set()),
    ],
)
async def test_search_finds_entries(query: str, expected: set[str]) -> None:
    payloads = {
        "tea": "a cup of Tea",
        "order": {"order": {"items": [{"sku": "tea"}], "total": 12}},
        "script": "<script>alert(1)</script>",
        "flag": {"flag": True},
    }
    async with memory_log(1) as log, served(log) as hub:
        ids = {(await log.append(payload)).id: name for name, payload in payloads.items()}
        found = (await fetch(hub, f"/api/search?{query}")).json
        assert {ids[one["id"]] for one in found["found"]} == expected
        assert found["next"] is None


async def test_search_goes_on_where_it_was_by_id_and_author() -> None:
    async with memory_log(1) as log, memory_log(2) as other, served(log) as hub:
        entries = await log.append_many(range(20))
        await log.insert_many([entry.value for entry in await other.append_many(["theirs"])])
        page = (await fetch(hub, f"/api/search?author={entries[0].author[-8:]}&limit=15")).json
        following = (await fetch(hub, f"/api/search?author={entries[0].author[-8:]}&limit=15&before={page['next']}")).json
        assert [one["id"] for one in page["found"] + following["found"]] == [entry.id for entry in reversed(entries)]
        assert [one["id"] for one in (await fetch(hub, f"/api/search?id={entries[7].id[:20]}")).json["found"]] == [entries[7].id]
        for query in ("id=xyz!", "value=1", "limit=no", "limit=0", "text=" + "x" * 300, "before=q", "before=0", "path=a&else=1"):
            answer = await fetch(hub, f"/api/search?{query}")
            name, _, value = query.partition("&")[0].partition("=")
            said = answer.body.decode()
            assert (answer.status, name in said, value[:60] in said) == (400, True, True), query


async def test_standing_of_what_is_no_id_is_refused() -> None:
    async with memory_log(1, policy=Policy((signer(1).did,))) as log, served(log) as hub:
        entry = await log.append(1)
        assert (await fetch(hub, f"/api/standing?entry={entry.id}")).json["counts"] is True
        for query, status in (("", 400), ("?entry=xyz", 400), (f"?entry={'0' * 32}", 404)):
            assert (await fetch(hub, f"/api/standing{query}")).status == status, query


async def test_overview_says_what_the_log_is() -> None:
    async with memory_log(1) as log, served(log) as hub:
        await log.append_many(range(5))
        overview = (await fetch(hub, "/api/overview")).json
        assert (overview["entries"], overview["clock"], overview["head_count"]) == (5, 5, 1)
        assert overview["heads"] == await log.heads()
        assert overview["root"]["hash"] == (await log.root()).hash.hex()
        assert overview["can_append"] is False


async def test_append_is_for_the_page_of_this_server_alone() -> None:
    body = json.dumps({"payload": {"text": "from the page"}}).encode()

    async def post(hub: Hub, data: bytes = body, **headers: str) -> int:
        return (await fetch(hub, "/api/append", method="POST", headers={**JSON, **headers}, body=data)).status

    async with memory_log(1) as log, served(log, may_append=True) as hub:
        own = f"http://127.0.0.1:{hub.port}"
        assert await post(hub, origin=own, host=f"127.0.0.1:{hub.port}", **{"sec-fetch-site": "same-origin"}) == 201
        assert await post(hub) == 201
        assert await post(hub, origin="https://evil.example.com") == 403
        assert await post(hub, origin="null") == 403
        assert await post(hub, **{"sec-fetch-site": "cross-site"}) == 403
        assert await post(hub, **{"content-type": "text/plain"}) == 415
        assert await post(hub, b"[]") == 400
        assert await post(hub, b"{") == 400
        assert await post(hub, b'{"payload":"' + b"x" * 70_000 + b'"}') == 413
        assert await log.count() == 2
    async with memory_log(1) as log, served(log) as hub:
        assert await post(hub) == 403
        assert await log.count() == 0


async def test_rules_of_access_hold_for_what_the_page_asks() -> None:
    access = Access.parse({"tokens": {"ops": hash_token("s3cret")}, "default": {"anonymous": ["pull"], "tokens": {"ops": ["watch"]}}})
    async with memory_log(1) as log, served(log, limits=HubLimits(access=access), may_append=True) as hub:
        assert (await fetch(hub, "/glass/main.js")).status == 200
        assert (await fetch(hub, "/api/graph")).status == 200
        assert (await fetch(hub, "/api/aside")).status == 200
        assert (await fetch(hub, "/api/overview")).status in (401, 403)
        assert (await fetch(hub, "/api/append", method="POST", headers=JSON, body=b'{"payload":1}')).status in (401, 403)
