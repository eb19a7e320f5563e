"""Twelve faults, made in real processes over real sockets: `why` names each of them, and no other, as a command, in JSON and on the page.

Those that are not of an honest server's making come from a host of ours in this process, which speaks libp2p or WebSocket to the server.
"""

from __future__ import annotations

import json
import resource
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import trio
from chromium import CHROMIUM, Tab, connected_to, running_browser
from click.testing import CliRunner
from mesh_support import a_host, free_place
from served_process import Served, relayed, serving

from gossiplog.cli.app import root
from gossiplog.codec import pcf
from gossiplog.codec.framing import encode_frame
from gossiplog.entry import Ed25519Signer, sign_entry
from gossiplog.entry.message import Entry
from gossiplog.entry.message_id import encode_id, message_key
from gossiplog.entry.rules import next_clock
from gossiplog.errors import CannotConnect
from gossiplog.net import Connection, Stream, open_muxed
from gossiplog.net.ground.protocol_ids import push_protocol
from gossiplog.net.hub.client import open_websocket, parse_url
from gossiplog.net.libp2p import Address
from gossiplog.pubsub.rpc import Message, Rpc, Subscription
from gossiplog.pubsub.types import PeerId, Topic
from gossiplog.pubsub.wire.rpc_codec import RPC, Wire
from gossiplog.sync.rpc import Insert
from gossiplog.sync.wire import encode_event

TOPIC = Topic("faults.example.com")
MESHSUB = "/meshsub/1.1.0"
PUSH = push_protocol(TOPIC)
SIGNER = Ed25519Signer.from_seed(b"\x66" * 32)
NOWHERE = "/ip4/127.0.0.1/tcp/1"
"""What it tells others of its address, so that nobody who is cut off finds another way to it."""
NAMED_S = 10.0
"""Within which a fault is to be named, on a machine that is not busy."""
BUSY = 6.0
SAID = """
(entry, peer) => {
    const why = document.querySelector('.why')
    const isAsked = document.querySelector('.way-search input')?.value === entry && document.querySelector('.of-peer select').value === peer
    return isAsked && !why.hidden ? why.textContent : ''
}
"""
"""What the page says of an entry and a peer; empty until it knows."""
FOUND = """
[...document.querySelectorAll('.finding')]
    .filter((one) => ['warning', 'error'].includes(one.querySelector('.severity').textContent))
    .map((one) => one.querySelector('.check').textContent)
"""
APP = """
from gossiplog import Reject

def apply(entries, tx):
    for entry in entries:
        if entry.payload == "odd":
            raise Reject("it is odd", id=entry.id)
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server that most faults are about. It believes a proxy, so that a client can come from any address."""
    folder: Path = tmp_path_factory.mktemp("here")
    (folder / "odd_app.py").write_text(APP)
    place = str(free_place())
    mesh = ("--p2p", place, "--announce", NOWHERE, "--peers", "1")
    with serving(folder, "here", TOPIC, *mesh, "--proxy", "127.0.0.1", "--app", "odd_app:apply") as served:
        served.multiaddr = f"{place}/p2p/{served.peer}"
        yield served


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A browser that all tests share."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: `apt-get install chromium`")
    with running_browser(tmp_path_factory.mktemp("chromium")) as url:
        yield url


@pytest.fixture
async def page(chromium: str) -> AsyncIterator[Page]:
    """A tab of its own for each test."""
    async with connected_to(chromium) as browser:
        tab = await browser.open("about:blank")
        yield Page(tab)
        await tab.command("Page.close")


class Page:
    """The page of one server after another, in one tab."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab
        self._url = ""

    async def names(self, cause: str, at: Served, entry: str, peer: str, state: str) -> None:
        """The view of the entry's way says the cause, for the peer that its address names."""
        await self._show(at, f"#/way/{entry}?{urlencode({'peer': peer})}" if peer else f"#/way/{entry}")
        words = ""
        place = {"absent": "Not here", "present": "Here"}
        asked = json.dumps([entry, peer])
        with trio.move_on_after(NAMED_S * BUSY):
            while f", {cause}: " not in words:
                if words.startswith(("Here", "it is here")) and state == "absent":
                    raise Arrived
                if words:
                    await self._tab.run("document.querySelector('.way-search').requestSubmit()")
                await trio.sleep(0.05)
                words = await self._tab.run(f"({SAID})(...{asked})")
        assert words.startswith(f"{place[state]}, {cause}: "), words

    async def finds(self, check: str, at: Served) -> None:
        """The overview shows what the doctor found, and how bad it is, in words."""
        await self._show(at, "#/overview")
        with trio.fail_after(NAMED_S * BUSY):
            while not await self._tab.run(f"({FOUND}).includes({check!r})"):
                await self._tab.run("document.querySelector('.findings-head button')?.click()")
                await trio.sleep(0.05)

    async def _show(self, at: Served, view: str) -> None:
        if self._url == at.url:
            await self._tab.run(f"location.hash = {json.dumps(view)}")
            return
        self._url = at.url
        await self._tab.command("Page.navigate", url=f"{at.url.replace('ws://', 'http://').rstrip('/')}/{view}")
        with trio.fail_after(NAMED_S * BUSY):
            await self._tab.wait("document.body?.dataset.ready === 'true'")


class Arrived(Exception):
    """The entry came while we asked why it had not."""


async def named(cause: str, at: Served, entry: str, peer: str = "", state: str = "absent", page: Page | None = None) -> dict[str, Any]:
    """Ask until the cause is named, over HTTP; then the command names it as well, and the page. Returns the answer."""
    began = time.monotonic()
    query = {"entry": entry} | ({"peer": peer} if peer else {})
    answer: dict[str, Any] = {}
    with trio.move_on_after(NAMED_S * BUSY):
        while answer.get("cause") != cause and answer.get("state") in (None, state):
            await trio.sleep(0.05)
            answer = await trio.to_thread.run_sync(lambda: at.get("why", **query))
    if answer["state"] != state:
        raise Arrived
    assert answer["cause"] == cause, answer
    print(f"{cause}: named after {time.monotonic() - began:.2f} s")
    args = ["why", at.url, entry, *([peer] if peer else []), "--json"]
    ran = await trio.to_thread.run_sync(lambda: CliRunner().invoke(root, args))
    said = json.loads(ran.stdout)
    if said["state"] != state:
        raise Arrived
    assert (said["cause"], ran.exit_code) == (cause, 7), said
    if page is not None:
        await page.names(cause, at, entry, peer, state)
    return answer


async def diagnosed(check: str, at: Served, page: Page | None = None) -> None:
    """The server's doctor finds it as well, and the page shows that."""
    found = (await trio.to_thread.run_sync(at.get, "doctor"))["findings"]
    assert check in {finding["check"] for finding in found if finding["severity"] in ("warning", "error")}, found
    if page is not None:
        await page.finds(check, at)


async def until(holds: Callable[[], Any]) -> None:
    """Wait for what a process brings about, by asking it in a thread."""
    with trio.fail_after(NAMED_S * BUSY):
        while not await trio.to_thread.run_sync(holds):
            await trio.sleep(0.05)


def entry(payload: Any, *parents: bytes) -> Entry:
    return sign_entry(SIGNER, TOPIC, next_clock(parents), list(parents), pcf.encode(payload))


def poisoned(payload: Any) -> tuple[bytes, bytes]:
    """An entry whose signature is wrong, under its true key."""
    good = bytearray(entry(payload).value)
    at = bytes(good).index(entry(payload).envelope.signature)
    good[at] ^= 1
    return message_key(1, bytes(good)), bytes(good)


def pushed(key: bytes, value: bytes) -> bytes:
    return encode_frame(encode_event(Insert(key, value)))


def published(one: Entry) -> Message:
    return Message.of(TOPIC, encode_event(Insert(one.key, one.value)))


async def until_stream_ends(connection: Connection, stream: Stream) -> None:
    while await stream.receive_some():
        pass


@asynccontextmanager
async def hostile(at: Served) -> AsyncIterator[tuple[str, Connection]]:
    """A peer of the mesh that does what the test does; it subscribes to the topic."""
    handlers = dict.fromkeys((MESHSUB, PUSH), until_stream_ends)
    async with a_host(handlers=handlers) as host:
        connection = await host.connect(None, [Address.parse(at.multiaddr)])
        await until(lambda: host.id in at_peers(at))
        yield host.id, connection


def at_peers(at: Served) -> dict[str, dict[str, Any]]:
    return {peer["peer"]: peer for peer in at.get("peers")["peers"]}


async def speak(connection: Connection, *rpcs: Rpc) -> Stream:
    stream = await connection.open_stream([MESHSUB])
    for rpc in (Rpc(subscriptions=(Subscription(TOPIC, True),)), *rpcs):
        for frame in Wire().encode(rpc):
            await stream.send_all(frame)
    return stream


async def test_entry_set_aside_by_an_application(here: Served) -> None:
    await see_an_entry_set_aside(here)


async def test_parent_that_nobody_has(here: Served) -> None:
    await see_a_missing_parent(here)


@pytest.mark.slow
async def test_page_names_those_two_as_well(here: Served, page: Page) -> None:
    await see_an_entry_set_aside(here, page)
    await see_a_missing_parent(here, page)


async def see_an_entry_set_aside(here: Served, page: Page | None = None) -> None:
    odd = await trio.to_thread.run_sync(here.post, "odd")
    answer = await named("set-aside", here, odd.id, state="present", page=page)
    assert "it is odd" in answer["text"]
    await diagnosed("set-aside", here, page)


async def see_a_missing_parent(here: Served, page: Page | None = None) -> None:
    missing = entry("nobody has it")
    child = entry("a child", missing.key)
    async with hostile(here) as (_, connection):
        await speak(connection, Rpc(messages=(published(child),)))
        answer = await named("waiting-for-parent", here, child.id, page=page)
        assert missing.id in answer["text"] and answer["details"]["missing"] == [missing.id]


@pytest.mark.slow
async def test_poisoned_entry_and_a_score_below_the_threshold(here: Served, page: Page) -> None:
    async with hostile(here) as (id, connection):
        # The third would end the connection, as nothing of this peer would be read any more.
        for number in range(2):
            key, value = poisoned(number)
            data = encode_event(Insert(key, value))
            await speak(connection, Rpc(messages=(Message.of(TOPIC, data),)))
        answer = await named("rejected", here, encode_id(poisoned(0)[0]), page=page)
        assert "rule signature" in answer["text"] and id in answer["text"]
        await until(lambda: at_peers(here)[id]["score"]["total"] < 0)
        await named("score-below-threshold", here, entry("of a peer out of the mesh").id, id, page=page)
        await diagnosed("scores", here, page)


@pytest.mark.slow
async def test_address_that_is_banned(here: Served, page: Page) -> None:
    hub = parse_url(here.url, headers={"X-Forwarded-For": "203.0.113.7"})

    async def attack() -> str:
        websocket = await open_websocket(hub)
        async with open_muxed(websocket, is_client=True, peer=PeerId(hub.url)) as connection:
            stream = await connection.open_stream([PUSH])
            await until(lambda: any(peer["address"] == "203.0.113.7" for peer in here.get("peers")["peers"]))
            id = next(peer["peer"] for peer in here.get("peers")["peers"] if peer["address"] == "203.0.113.7")
            for number in range(5):
                await stream.send_all(pushed(*poisoned(f"banned {number}")))
            await connection.wait_ended()
            return str(id)

    id = await attack()
    with pytest.raises(CannotConnect):
        await open_websocket(hub)
    answer = await named("banned-sender", here, entry("from a banned address").id, id, page=page)
    assert "signature" in answer["text"]
    await diagnosed("bans", here, page)


@pytest.mark.slow
async def test_message_refused_by_the_signature_policy(here: Served, page: Page) -> None:
    async with hostile(here) as (id, connection):
        signed = entry("in a message that is signed")
        stream = await speak(connection)
        data = published(signed).data
        await stream.send_all(encode_frame(RPC.encode({"publish": [{"data": data, "topic": TOPIC, "signature": bytes(64)}]})))
        answer = await named("refused-by-policy", here, signed.id, id, page=page)
        assert "StrictNoSign" in answer["text"]
        await diagnosed("refused", here, page)


@pytest.mark.slow
async def test_other_topic(here: Served, page: Page, tmp_path: Path) -> None:
    with serving(tmp_path, "topic", "elsewhere.example.com", "--bootstrap", here.multiaddr, "--peers", "1") as foreign:
        there = await trio.to_thread.run_sync(foreign.post, "in another topic")
        await until(lambda: foreign.peer in at_peers(here))
        await named("other-topic", here, there.id, foreign.peer, page=page)
        await diagnosed("topic", here, page)


@pytest.mark.slow
async def test_other_version_of_the_protocol(here: Served, page: Page) -> None:
    later = ("/meshsub/2.0.0", f"/canvas/v2/{TOPIC}/push")
    async with a_host(handlers=dict.fromkeys(later, until_stream_ends)) as host:
        await host.connect(None, [Address.parse(here.multiaddr)])
        await until(lambda: host.id in at_peers(here))
        await named("other-version", here, entry("of a later version").id, host.id, page=page)
        await diagnosed("protocol", here, page)
        assert here.path.with_suffix(".log").read_text().count("peer speaks less than we do") >= 1


@pytest.mark.slow
async def test_peer_that_is_not_grafted_and_then_cut_off(here: Served, page: Page, tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text(
        "D = 0\nD_lo = 0\nD_hi = 0\nD_out = 0\nD_score = 0\nD_lazy = 0\ngossip_factor = 0.0\nflood_publish = false\n"
    )
    place = Address.parse(here.multiaddr)
    async with relayed(place.port) as relay:
        bootstrap = f"/ip4/127.0.0.1/tcp/{relay.port}/p2p/{place.peer}"
        with serving(
            tmp_path, "lonely", TOPIC, "--bootstrap", bootstrap, "--peers", "1", "--mesh-params", str(tmp_path / "none.toml")
        ) as lonely:
            # Who dialled takes a graft though it wants none, and prunes it at its next heartbeat; until then entries come at once. And a
            # sync brings them in the end, now and then before we have asked.
            for number in range(9):
                await until(lambda: at_peers(here).get(lonely.peer, {}).get("peering") == "metadata")
                unsent = await trio.to_thread.run_sync(lonely.post, number)
                with suppress(Arrived):
                    await named("not-grafted", here, unsent.id, lonely.peer, page=page)
                    break
            else:
                pytest.fail("each entry came too soon to ask about it")
            relay.cut()
            await until(lambda: lonely.peer not in at_peers(here))
            beyond = await trio.to_thread.run_sync(lonely.post, "beyond the cut")
            await named("partition", here, beyond.id, lonely.peer, page=page)
            # The side that dialled says why it cannot.
            mine = await trio.to_thread.run_sync(here.post, "on this side")
            await until(lambda: str(relay.port) in lonely.get("why", entry=mine.id)["text"])
            await named("partition", lonely, mine.id, page=page)
            await diagnosed("dials", lonely, page)


@pytest.mark.slow
async def test_slow_reader(here: Served, page: Page, tmp_path: Path) -> None:
    with serving(tmp_path, "slow", TOPIC, "--connect", here.url) as slow:
        await until(lambda: any(peer["kind"] == "client" and peer["pushing"] for peer in here.get("peers")["peers"]))
        (id,) = [peer["peer"] for peer in here.get("peers")["peers"] if peer["kind"] == "client"]
        slow.process.send_signal(signal.SIGSTOP)
        for number in range(8):
            large = await trio.to_thread.run_sync(here.post, {"n": number, "filler": "x" * 700_000})
        answer = await named("slow-reader", here, large.id, id, state="present", page=page)
        assert answer["details"]["link"]["queued_bytes"] > 2**20 or answer["details"]["link"]["dropped"]
        await diagnosed("queues", here, page)
        slow.process.send_signal(signal.SIGCONT)
        await until(lambda: slow.has(large))


@pytest.mark.slow
async def test_full_disk(here: Served, page: Page) -> None:
    async with hostile(here) as (_, connection):
        no_limit = resource.prlimit(here.process.pid, resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
        try:
            unstored = entry("there is no room for it")
            await speak(connection, Rpc(messages=(published(unstored),)))
            answer = await named("disk-full", here, unstored.id, page=page)
            assert str(here.path) in answer["text"]
            await diagnosed("store", here, page)
        finally:
            resource.prlimit(here.process.pid, resource.RLIMIT_FSIZE, no_limit)
    await until(lambda: here.post("there is room again"))
