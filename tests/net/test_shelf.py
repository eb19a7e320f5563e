"""A shelf: logs that open when they are used, on a server and without one."""

import asyncio
import gc
import json
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trio
from trio.testing import MockClock

import gossiplog
import gossiplog.aio
import gossiplog.blocking
from gossiplog.errors import DamagedLog, ForeignFile, LocalProtocolError, LogBusy, LogNotFound, ShelfFull, TopicMismatch
from gossiplog.net import HubLimits
from gossiplog.net.ground.access import Access, hash_token
from gossiplog.net.hub import server
from gossiplog.net.hub.client import parse_url
from gossiplog.net.service.service import open_service
from gossiplog.store.places import file_of

SIGNER = gossiplog.Ed25519Signer.generate()
TOKENS = {"a": "token-of-a", "maker": "token-of-maker"}
ACCESS = {
    "tokens": {name: hash_token(token) for name, token in TOKENS.items()},
    "default": {"tokens": {"maker": ["connect", "pull", "push", "create"]}},
    "logs": {"a.example.com": {"tokens": {"a": ["connect", "pull", "push", "create"], "maker": ["connect", "pull", "push", "create"]}}},
}


@asynccontextmanager
async def waiting(seconds: float = 10) -> AsyncIterator[None]:
    with trio.fail_after(seconds):
        yield


async def get(url: str, path: str, token: str | None = None) -> tuple[int, bytes]:
    server = parse_url(url.replace("ws://", "http://"), of_server=True)
    answer = await server.ask(path if token is None else f"{path}?token={token}", answer_bytes_max=100_000)
    return answer.status, answer.body


def test_names_of_files_differ_where_case_does_not_count() -> None:
    topics = ["a.b", "A.b", "a:b", "a#b", ".hidden", "-rf", "a-wal", "x" * 128, "X" * 66, "X" * 67, "X" * 128, "a%3Ab".replace("%", "-")]
    names = [file_of(topic) for topic in topics]
    assert len({name.lower() for name in names}) == len(topics)
    assert all(len(name) < 240 and name[0] not in ".-" and "/" not in name for name in names)
    assert file_of("Doc:1") == "%44oc%3a1.db"
    assert not file_of("X" * 66).startswith("=") and file_of("X" * 67).startswith("=")
    for wrong in ("", ".", "..", "a/b", "../a", "a\0b", "x" * 129, "x" * 10_000, "é"):
        with pytest.raises(LocalProtocolError):
            file_of(wrong)


async def test_logs_open_when_used_are_shared_and_the_longest_idle_makes_room(tmp_path: Path) -> None:
    async with gossiplog.shelf(tmp_path, signer=SIGNER, most_open=2, most_logs=4) as shelf, waiting():
        with pytest.raises(LogNotFound):
            async with shelf.open("a"):
                pass
        assert await shelf.topics() == [] and shelf.logs.open_topics == []
        async with shelf.open("a", create=True) as log, shelf.open("a") as same:
            assert log is same
            await log.append(1)
            async with shelf.open("b", create=True):
                with pytest.raises(ShelfFull):
                    async with shelf.open("c", create=True):
                        pass
            async with shelf.open("C", create=True):
                assert shelf.logs.open_topics == ["a", "C"]
            async with shelf.open("X" * 128, create=True):
                # Its place is that of "C", not that of "a", which is in use.
                assert shelf.logs.open_topics == ["a", "X" * 128]
        with pytest.raises(ShelfFull):
            async with shelf.open("e", create=True):
                pass
        assert await shelf.topics() == ["C", "X" * 128, "a", "b"]
    async with gossiplog.shelf(tmp_path) as shelf, shelf.open("a") as log:
        assert await log.count() == 1


async def test_who_may_create_is_not_refused_because_somebody_asked_first_who_may_not(tmp_path: Path) -> None:
    found: list[str] = []
    async with gossiplog.shelf(tmp_path) as shelf, waiting(), trio.open_nursery() as nursery:

        async def look(create: bool) -> None:
            try:
                async with shelf.open("a", create=create):
                    found.append("open")
            except LogNotFound:
                found.append("none")

        nursery.start_soon(look, False)
        nursery.start_soon(look, True)
    assert "open" in found and len(found) == 2


async def test_what_is_no_log_of_ours_is_left_alone_and_others_live(tmp_path: Path) -> None:
    async with gossiplog.open(tmp_path / "other.db", topic="elsewhere"):
        pass
    async with gossiplog.open(tmp_path / "busy.db", topic="busy"):
        (tmp_path / "damaged.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
        (tmp_path / "foreign.db").write_bytes(b"hello" * 100)
        (tmp_path / "good.db-journal").write_bytes(b"x")
        (tmp_path / "notes.txt").write_bytes(b"x")
        (tmp_path / "folder.db").mkdir()
        (tmp_path / "link.db").symlink_to("/etc/passwd")
        os.mkfifo(tmp_path / "fifo.db")
        async with gossiplog.shelf(tmp_path) as shelf, waiting(30):
            for topic, expected in [
                ("other", TopicMismatch),
                ("busy", LogBusy),
                ("damaged", (DamagedLog, ForeignFile)),
                ("foreign", ForeignFile),
                ("folder", ForeignFile),
                ("link", ForeignFile),
                ("fifo", ForeignFile),
            ]:
                with pytest.raises(expected):
                    async with shelf.open(topic, create=True):
                        pass
            async with shelf.open("fine", create=True) as log:
                assert await log.count() == 0
            assert await shelf.topics() == ["busy", "damaged", "fine", "foreign", "other"]


async def test_a_hub_opens_what_clients_ask_for_and_creates_by_right_alone(tmp_path: Path) -> None:
    limits = HubLimits(access=Access.parse(ACCESS), creatable=("*.example.com",))
    async with (
        gossiplog.shelf(tmp_path / "hub", signer=SIGNER, most_open=2) as shelf,
        shelf.listen("127.0.0.1:0", limits=limits) as hub,
        gossiplog.shelf(tmp_path / "client", signer=SIGNER) as own,
        waiting(30),
    ):
        url = f"ws://127.0.0.1:{hub.port}"
        async with shelf.open("there.example.com", create=True) as log:
            await log.append("old")
        # Without rights one does not learn whether a log exists, and makes none.
        for topic in ("there.example.com", "none.example.com"):
            status, body = await get(url, f"/{topic}/api/heads", TOKENS["a"])
            assert (status, body) == (403, b"this token does not allow to pull\n")
        for path in ("/none.example.com/api/heads", f"/{quote('../x', safe='')}/api/heads", f"/{'x' * 9000}/api/heads"):
            assert (await get(url, path, TOKENS["maker"]))[0] == 404, path
        assert sorted(each.name for each in (tmp_path / "hub").iterdir() if each.suffix == ".db") == ["there.example.com.db"]
        assert json.loads((await get(url, "/", TOKENS["a"]))[1])["topics"] == []
        assert json.loads((await get(url, "/", TOKENS["maker"]))[1])["topics"] == ["there.example.com"]
        assert (await get(url, "/metrics"))[0] == 401

        async with (
            own.open("there.example.com", create=True) as mine,
            mine.connect(f"{url}/there.example.com", token=TOKENS["maker"]),
            mine.subscribe() as entries,
        ):
            assert (await anext(entries)).payload == "old"
        # One that matches no pattern is not made, one that does is.
        async with own.open("other.org", create=True) as mine, mine.connect(f"{url}/other.org", token=TOKENS["maker"]) as link:
            while "404" not in str(link.error):
                await trio.sleep(0.01)
        async with own.connect(url, topics=["a.example.com"], token=TOKENS["a"]), own.open("a.example.com") as mine:
            entry = await mine.append("new")
            while "a.example.com" not in hub.services:
                await trio.sleep(0.01)
            async with shelf.open("a.example.com") as theirs, theirs.subscribe() as entries:
                assert (await anext(entries)).id == entry.id
        assert await shelf.topics() == ["a.example.com", "there.example.com"]
        assert len(hub.services) <= 2


async def test_a_client_is_not_told_that_logs_are_in_use_when_there_are_too_many(tmp_path: Path) -> None:
    limits = HubLimits(access=Access.parse({"default": {"anonymous": ["connect", "pull", "push", "create"]}}), creatable=("*",))
    async with (
        gossiplog.shelf(tmp_path / "hub", signer=SIGNER, most_logs=1) as shelf,
        shelf.open("a", create=True),
        shelf.listen("127.0.0.1:0", limits=limits) as hub,
        gossiplog.open(tmp_path / "b.db", topic="b", durability="off") as log,
        log.connect(f"ws://127.0.0.1:{hub.port}/b") as link,
        waiting(),
    ):
        while not link.error:
            await trio.sleep(0.01)
        assert "or there are too many in all" in str(link.error)


async def test_who_creates_too_many_and_what_no_space_is_left_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SPACE_EVERY_S", 0.05)
    table = {**ACCESS, "default": {"tokens": {name: ["connect", "pull", "push", "create"] for name in TOKENS}}, "logs": {}}
    access = Access.parse(table)
    limits = HubLimits(access=access, creatable=("*",), creations_per_minute=2, shelf_bytes_max=1_000_000)
    async with (
        gossiplog.shelf(tmp_path / "hub", signer=SIGNER) as shelf,
        shelf.listen("127.0.0.1:0", limits=limits) as hub,
        gossiplog.shelf(tmp_path / "client", signer=SIGNER, durability="off") as own,
        waiting(60),
    ):
        url = f"ws://127.0.0.1:{hub.port}"

        async def bring(topic: str, who: str, payload: object = 1) -> str:
            async with own.open(topic, create=True) as log, log.connect(f"{url}/{topic}", token=TOKENS[who]) as link:
                entry = await log.append(payload)
                while not link.error:
                    if topic in hub.services and await hub.services[topic].log.has(entry.id):
                        return "taken"
                    if link.refused:
                        return min(refused.reason for refused in link.refused.values())
                    await trio.sleep(0.01)
                return str(link.error)

        assert [await bring(topic, "a") for topic in ("1", "2", "1")] == ["taken"] * 3
        assert "429" in await bring("3", "a")
        # Others are not held up by that, nor is the same client where the log is there already.
        assert [await bring(topic, who) for topic, who in (("4", "maker"), ("2", "a"))] == ["taken"] * 2
        (tmp_path / "hub" / "large").write_bytes(bytes(1_000_000))
        while not access.full:
            await trio.sleep(0.01)
        assert "507" in await bring("5", "maker")
        assert "the logs here take" in await bring("1", "a", 2)
        (tmp_path / "hub" / "large").unlink()
        while access.full:
            await trio.sleep(0.01)
        assert await bring("5", "maker") == "taken"
        assert await shelf.topics() == ["1", "2", "4", "5"]


async def test_clients_that_come_while_a_log_is_evicted_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # How long one waits for the place is not what is asked here.
    monkeypatch.setattr("gossiplog.replica.shelving._PATIENCE_S", 60.0)
    async with gossiplog.shelf(tmp_path, signer=SIGNER, most_open=1) as shelf, shelf.listen("127.0.0.1:0") as hub, waiting(60):
        for topic in ("a", "b"):
            async with shelf.open(topic, create=True) as log:
                await log.append(topic)
        url = f"ws://127.0.0.1:{hub.port}"
        answers: list[int] = []

        async def often(topic: str) -> None:
            for _ in range(15):
                status, _ = await get(url, f"/{topic}/api/clock")
                answers.append(status)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(often, "a")
            nursery.start_soon(often, "b")
        assert answers == [200] * 30


async def test_neither_metrics_nor_readiness_speak_of_one_log_of_a_shelf(tmp_path: Path) -> None:
    async with gossiplog.shelf(tmp_path, signer=SIGNER) as shelf, shelf.listen("127.0.0.1:0") as hub, waiting(30):
        async with shelf.open("a", create=True) as log, shelf.open("b", create=True) as other:
            await log.append(1)
            await other.append_many([1, 2])
            text = (await get(f"ws://127.0.0.1:{hub.port}", "/metrics"))[1].decode()
            # None of them has caught up with that hub, which says nothing of the thousands that are closed.
            async with shelf.connect("ws://127.0.0.1:1"):
                assert not hub.services["a"].has_caught_up()
                assert (await get(f"ws://127.0.0.1:{hub.port}", "/readyz"))[0] == 200
        assert "gossiplog_open_logs 2.0" in text and 'gossiplog_entries{topic="*"} 3.0' in text
        assert 'topic="a"' not in text and 'topic="b"' not in text


async def test_what_was_counted_of_a_log_stays_counted_when_it_is_closed_and_the_busiest_are_named(tmp_path: Path) -> None:
    def figures(text: bytes) -> dict[str, float]:
        lines = [line.rpartition(" ") for line in text.decode().splitlines() if line.startswith("gossiplog_")]
        return {name: float(value) for name, _, value in lines if name.partition("{")[0].endswith(("_total", "_count", "_bucket", "_sum"))}

    async with (
        gossiplog.shelf(tmp_path / "hub", signer=SIGNER, most_open=2) as shelf,
        shelf.listen("127.0.0.1:0") as hub,
        gossiplog.shelf(tmp_path / "client", signer=SIGNER) as own,
        waiting(60),
    ):
        url, before = f"ws://127.0.0.1:{hub.port}", dict[str, float]()
        for number, topic in enumerate(["a", "b", "c", "d", "a"]):
            async with shelf.open(topic, create=True), own.open(topic, create=True) as log, log.connect(f"{url}/{topic}"):
                await log.append_many(range(number + 1))
                async with shelf.open(topic) as theirs:
                    while await theirs.root() != await log.root():
                        await trio.sleep(0.01)
                told = json.loads((await get(url, "/"))[1])
                assert topic in told["busiest"] and set(told["busiest"]) <= set(hub.services)
            now = figures((await get(url, "/metrics"))[1])
            assert {name: value for name, value in before.items() if now.get(name, 0) < value} == {}
            before = now
        stored = sum(value for name, value in now.items() if name.startswith("gossiplog_verdicts_total{") and 'way="push"' in name)
        assert now['gossiplog_commit_duration_seconds_count{topic="*"}'] >= 5, "those of the closed ones are missing"
        assert stored >= 1


@pytest.mark.slow
def test_memory_stays_flat_over_a_day_in_which_logs_open_and_close(tmp_path: Path) -> None:
    """Three logs of forty every five minutes, of which eight may be open at a time, on a clock that jumps."""
    clock, rng = MockClock(rate=1.0), random.Random(7)
    objects: list[int] = []
    resident: list[int] = []

    async def main() -> None:
        async with gossiplog.shelf(tmp_path, signer=SIGNER, durability="off", most_open=8) as shelf, shelf.listen("127.0.0.1:0") as hub:
            url, openings = f"ws://127.0.0.1:{hub.port}", 0
            for minute in range(0, 24 * 60, 5):
                for topic in rng.sample([f"room-{number}" for number in range(40)], 3):
                    openings += topic not in shelf.logs.open_topics
                    async with shelf.open(topic, create=True) as log:
                        if minute % 10 == 0:
                            await log.append(minute)
                if minute % 60 == 0:
                    assert (await get(url, "/room-0/api/clock"))[0] in (200, 404)
                    assert (await get(url, "/metrics"))[0] == 200
                clock.jump(300)
                await trio.lowlevel.checkpoint()
                if minute % 240 == 235:
                    gc.collect()
                    objects.append(len(gc.get_objects()))
                    resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
            while shelf.logs.open_topics:
                clock.jump(60)
                await trio.to_thread.run_sync(time.sleep, 0.01)
            assert openings > 600 and hub.services == {} and hub.apis == {} and hub.allowances == {}

    trio.run(main, clock=clock)
    # What is open at a moment differs; two objects of each opening would be more.
    assert objects[-1] < objects[1] + 1_000, objects
    assert resident[-1] < resident[1] + 4_000_000, resident


async def test_an_asgi_server_of_asyncio_serves_a_shelf(tmp_path: Path) -> None:
    def served() -> list[int]:
        async def main() -> list[int]:
            async with gossiplog.aio.shelf(tmp_path, signer=SIGNER) as shelf:
                async with shelf.open("a", create=True) as log:
                    await log.append(1)
                assert await shelf.topics() == ["a"]
                app = gossiplog.asgi(shelf)
                found = []
                for path in ("/a/api/clock", "/b/api/clock", "/"):
                    scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"127.0.0.1")], "query_string": b""}
                    sent: list[Any] = []

                    async def receive() -> Any:
                        return {"type": "http.request", "body": b"", "more_body": False}

                    async def send(message: Any, sent: list[Any] = sent) -> None:
                        sent.append(message)

                    await app({**scope, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http"}, receive, send)
                    found.append(sent[0]["status"])
                return found

        return asyncio.run(main())

    assert await trio.to_thread.run_sync(served) == [200, 404, 200]
    with gossiplog.blocking.shelf(tmp_path) as shelf, shelf.open("a") as log:
        assert log.count() == 1


async def test_logs_of_a_shelf_share_a_place_on_the_network_that_outlives_each(tmp_path: Path) -> None:
    async with gossiplog.shelf(tmp_path, signer=SIGNER) as shelf, waiting(), shelf.open("a", create=True) as a:
        async with shelf.open("b", create=True) as b, open_service(b) as first, open_service(a) as service:
            host = service.host
            assert first.host is host and set(host.logs) == {"a", "b"}
        assert not host.logs
        async with open_service(a) as again:
            # The one before left at once, or this one would not be subscribed.
            assert again.host is host and set(host.logs) == {"a"}
            assert [topic.topic for topic in host.shared.router.state().topics] == ["a"]
        async with open_service(a), gossiplog.open(":memory:", topic="a", signer=SIGNER) as alone, open_service(alone) as other:
            assert other.host is not host


async def test_a_pinned_log_is_used_like_the_shelfs_beyond_their_number_and_has_what_goes_along(tmp_path: Path) -> None:
    along: list[str] = []

    @asynccontextmanager
    async def companion(log: gossiplog.GossipLog) -> AsyncIterator[None]:
        along.append(log.topic)
        try:
            yield
        finally:
            along.remove(log.topic)

    async with (
        gossiplog.shelf(tmp_path, signer=SIGNER, most_open=1) as shelf,
        gossiplog.open(":memory:", topic="pinned", signer=SIGNER) as log,
        waiting(),
    ):
        async with shelf.logs.pinned(log), shelf.logs.accompanied(companion):
            assert along == ["pinned"]
            async with shelf.open("a", create=True), shelf.open("pinned") as same:
                assert same is log and along == ["pinned", "a"]
                assert shelf.logs.open_topics == ["a"] and shelf.logs.is_pinned("pinned") and not shelf.logs.is_pinned("a")
                with pytest.raises(LocalProtocolError, match="is served already"):
                    async with shelf.logs.pinned(log):
                        pass
        assert along == []
        async with shelf.listen("127.0.0.1:0") as hub:
            async with shelf.logs.pinned(log):
                assert (await get(f"ws://127.0.0.1:{hub.port}", "/pinned/api/clock"))[0] == 200
            assert (await get(f"ws://127.0.0.1:{hub.port}", "/pinned/api/clock"))[0] == 404
        assert await log.count() == 0


async def test_a_log_that_could_not_be_created_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("/etc/passwd")
    async with gossiplog.shelf(tmp_path, signer=SIGNER, most_logs=1) as shelf, waiting():
        for _ in range(2):
            with pytest.raises(ForeignFile):
                async with shelf.open("link", create=True):
                    pass
        async with shelf.open("a", create=True):
            pass
        with pytest.raises(ShelfFull):
            async with shelf.open("b", create=True):
                pass
