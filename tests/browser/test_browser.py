"""Real Chromium with the reference in IndexedDB, two tabs, and a hub of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from interop_support import Reference
from network_support import eventually

import gossiplog
from gossiplog import GossipLog, Policy
from gossiplog.net.ground.access import Access, hash_token, make_token
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.hub.client import fetch_token, parse_url

pytestmark = pytest.mark.slow

TOPIC = "browser.example.com"
WAIT_MS = 60_000


class Tab:
    """One tab with a replica of its own."""

    def __init__(self, browser: Reference, name: str, number: int, topic: str = TOPIC) -> None:
        self._browser = browser
        self._name = name
        self._topic = topic
        self._seed = bytes([number]).hex() * 32

    async def open(self) -> None:
        await self._browser.ask("tab", tab=self._name)
        await self.start()

    async def start(self) -> None:
        await self.call("open", name=f"replica-{self._name}", topic=self._topic, seed=self._seed)

    async def call(self, name: str, /, **argument: Any) -> Any:
        return await self._browser.ask("call", tab=self._name, name=name, argument=argument)

    async def until_equal(self, log: GossipLog) -> None:
        root = await log.root()
        state: dict[str, Any] = await self._browser.ask("until", tab=self._name, hash=root.hash.hex(), ms=WAIT_MS)
        assert (state["hash"], state["level"]) == (root.hash.hex(), root.level)
        assert state["count"] == await log.count()
        assert sorted(state["heads"]) == await log.heads()

    async def until_shown(self, text: str) -> None:
        with trio.fail_after(WAIT_MS / 1000):
            while text not in (await self.call("state"))["shown"]:
                await trio.sleep(0.02)


async def until_count(log: GossipLog, count: int) -> None:
    with trio.fail_after(WAIT_MS / 1000):
        while await log.count() < count:
            await trio.sleep(0.02)


async def test_tabs_see_each_other_through_our_hub_edit_offline_and_keep_their_state(browser: Reference, tmp_path: Path) -> None:
    a, b = Tab(browser, "a", 1), Tab(browser, "b", 2)
    origins = HubLimits(origins=frozenset({await browser.ask("origin")}))
    async with gossiplog.open(tmp_path / "hub.db", topic=TOPIC, signer=gossiplog.Ed25519Signer.from_seed(bytes(32))) as log:
        await log.append_many({"from": "python", "n": n} for n in range(30))
        async with log.listen("127.0.0.1:0", limits=origins) as hub:
            port, url = hub.port, hub.urls[0]
            for tab in (a, b):
                await tab.open()
                await tab.call("connect", url=url)
                await tab.until_equal(log)
            await eventually(lambda: len(hub.links()) == 2)

            # Append in a tab: the other tab and the Python log have it.
            id = await a.call("append", payload={"from": "tab a", "text": "grüß dich 🌍"})
            await until_count(log, 31)
            assert (await log.get(id)).message.payload == {"from": "tab a", "text": "grüß dich 🌍"}
            await b.until_equal(log)
            await b.until_shown("grüß dich 🌍")

            # A tab that is away and comes back.
            await a.call("disconnect")
            await eventually(lambda: len(hub.links()) == 1)
            await a.call("append", payload={"from": "tab a", "offline": True})
            await b.call("append", payload={"from": "tab b", "meanwhile": True})
            await log.append({"from": "python", "meanwhile": True})
            await until_count(log, 33)
            await a.call("connect", url=url)
            await until_count(log, 34)
            for tab in (a, b):
                await tab.until_equal(log)
            assert len(await log.heads()) >= 1

        # The hub is away; both tabs go on, and it is back at the same place.
        for tab in (a, b):
            await tab.call("append", payload={"while": "the hub is away"})
        async with log.listen(f"127.0.0.1:{port}") as hub:
            for tab in (a, b):
                await tab.call("connect", url=url)
            await until_count(log, 36)
            for tab in (a, b):
                await tab.until_equal(log)

            # A reload keeps everything, without the hub's help.
            before = await a.call("state")
            await browser.ask("reload", tab="a")
            await a.start()
            after = await a.call("state")
            assert {key: before[key] for key in ("count", "hash", "heads")} == {key: after[key] for key in ("count", "hash", "heads")}
            await a.call("connect", url=url)
            await log.append({"from": "python", "text": "after the reload"})
            await a.until_equal(log)
            await a.until_shown("after the reload")
            await browser.ask("screenshot", tab="a", file=str(tmp_path / "tab.png"))
            assert (tmp_path / "tab.png").stat().st_size > 5_000
    assert await browser.ask("faults") == []


async def test_page_goes_on_when_its_sync_session_is_cut_short(browser: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.net.service.sessions.SESSION_S", 0.5)
    tab = Tab(browser, "slow", 5)
    async with gossiplog.open(":memory:", topic=TOPIC, signer=gossiplog.Ed25519Signer.from_seed(bytes(32))) as log:
        # The page's IndexedDB takes some 200 a second.
        await log.append_many(range(400))
        async with log.listen("127.0.0.1:0") as hub:
            await tab.open()
            await tab.call("connect", url=hub.urls[0])
            await tab.until_equal(log)


async def test_page_of_another_origin_is_not_let_in(browser: Reference) -> None:
    tab = Tab(browser, "stranger", 3)
    limits = HubLimits(origins=frozenset({"https://elsewhere.example.com"}))
    async with gossiplog.open(":memory:", topic=TOPIC) as log, log.listen("127.0.0.1:0", limits=limits) as hub:
        await tab.open()
        assert await browser.ask("call", may_fail=True, tab="stranger", name="connect", argument={"url": hub.urls[0]}) is None
        assert hub.links() == []


async def test_page_brings_its_token_in_the_url_and_reads_in_the_close_code_why_not(browser: Reference) -> None:
    reader, watcher = make_token(), make_token()
    rules = {
        "tokens": {"reader": hash_token(reader), "watcher": hash_token(watcher)},
        "default": {"tokens": {"reader": ["connect", "pull", "push"], "watcher": ["watch"]}},
    }
    limits = HubLimits(origins=frozenset({await browser.ask("origin")}), access=Access.parse(rules))
    tab = Tab(browser, "guest", 4)
    async with gossiplog.open(":memory:", topic=TOPIC, signer=gossiplog.Ed25519Signer.from_seed(bytes(32))) as log:
        await log.append_many(range(10))
        async with log.listen("127.0.0.1:0", limits=limits) as hub:
            await tab.open()
            refused = {"": (4401, "takes a token"), "?token=wrong": (4401, "not known"), f"?token={watcher}": (4403, "does not allow")}
            for query, (code, reason) in refused.items():
                url = hub.urls[0] + query
                told = await tab.call("goodbye", url=url)
                assert told["code"] == code
                assert reason in told["reason"]
                # The reference says nothing of it, and gets nothing.
                await browser.ask("call", may_fail=True, tab="guest", name="connect", argument={"url": url})
            assert (await tab.call("state"))["count"] == 0
            assert hub.links() == []
            await tab.call("connect", url=f"{hub.urls[0]}?token={reader}")
            await tab.until_equal(log)
            await tab.call("append", payload={"from": "a guest"})
            await until_count(log, 11)
            await tab.until_equal(log)


async def test_page_does_in_a_log_with_members_what_its_did_may(browser: Reference) -> None:
    writer, reader = (gossiplog.Ed25519Signer.from_seed(bytes([number]) * 32) for number in (6, 7))
    founder = gossiplog.Ed25519Signer.from_seed(bytes(32))
    rules = Access.parse({"default": {"anonymous": []}})
    limits = HubLimits(origins=frozenset({await browser.ask("origin")}), access=rules)
    async with (
        gossiplog.open(":memory:", topic="team.example.com", policy=gossiplog.Policy([founder.did]), signer=founder) as log,
        log.listen("127.0.0.1:0", limits=limits) as hub,
    ):
        tabs = {}
        for number, identity, role in ((6, writer, "write"), (7, reader, "read")):
            node = await log.grant(identity.did, role)
            tabs[role] = tab = Tab(browser, f"member {role}", number, log.topic)
            await tab.open()
            token = await fetch_token(parse_url(hub.urls[0], identity=identity))
            assert (await tab.call("goodbye", url=hub.urls[0]))["code"] == 4401
            await tab.call("connect", url=f"{hub.urls[0]}?token={token}")
            await tab.until_equal(log)
        await tabs["write"].call("append", payload="by a page")
        await until_count(log, 4)
        for tab in tabs.values():
            await tab.until_equal(log)
        await tabs["read"].call("append", payload="by a reader")
        await log.append("by the founder")
        await tabs["write"].until_equal(log)
        assert await log.count() == 5
        await log.revoke(node.id)
        await eventually(lambda: len(hub.links()) == 1)


async def test_tabs_of_a_removed_member_and_of_a_stranger_change_nothing_at_an_open_hub(browser: Reference) -> None:
    """The reference in Chromium knows no members: what the removed wrote offline comes in and is void, the stranger's stays in its tab."""
    founder, removed, stranger = (gossiplog.Ed25519Signer.from_seed(bytes([number]) * 32) for number in (80, 81, 82))
    origins = HubLimits(origins=frozenset({await browser.ask("origin")}))
    async with gossiplog.open(":memory:", topic="team.example.com", policy=Policy((founder.did,)), signer=founder) as log:
        place = await log.grant(removed.did)
        a, b = Tab(browser, "removed", 81, log.topic), Tab(browser, "stranger", 82, log.topic)
        async with log.listen("127.0.0.1:0", limits=origins) as hub:
            port = hub.port
            for tab in (a, b):
                await tab.open()
                await tab.call("connect", url=hub.urls[0])
                await tab.until_equal(log)
            while_in = await a.call("append", payload={"text": "while a member"})
            await until_count(log, 3)
            await b.until_equal(log)
            for tab in (a, b):
                await tab.call("disconnect")
        removal = await log.revoke(place.id)
        void = await a.call("append", payload={"text": "offline"})
        refused = await b.call("append", payload={"text": "by a stranger"})
        async with log.listen(f"127.0.0.1:{port}", limits=origins) as hub:
            for tab in (a, b):
                await tab.call("connect", url=hub.urls[0])
            await until_count(log, 5)
            await a.until_equal(log)
            last = await log.append({"text": "after all that"})
            await a.until_equal(log)
            await b.until_shown("after all that")
            assert len(hub.links()) == 2, "nobody is blamed"
        standings = {entry.id: await log.standing(entry.id) async for entry in log.iterate()}
        assert refused not in standings and stranger.did not in [entry.author async for entry in log.iterate()]
        assert [standings[id].counts for id in (while_in, void, last.id)] == [True, False, True]
        assert standings[void].revoked_by == (removal.id,)
