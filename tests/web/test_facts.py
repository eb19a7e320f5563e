"""A server tells what happens to its log, over real sockets: every way in which an entry comes, and gap-free to whoever comes back."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import trio
from glass_support import following, seen_log
from network_support import PATIENCE_S, eventually, fetch, memory_log, open_stream, until_equal

from gossiplog import Application, Entry
from gossiplog.archive import entry_to_line
from gossiplog.errors import StorageFull
from gossiplog.glass.fact import KINDS, WAYS, Fact
from gossiplog.net.ground.access import Access, hash_token
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.reports import observer as board_module
from gossiplog.net.service.service import observed, service_of
from gossiplog.web.glass import facts as facts_module


async def test_each_way_of_an_entry_is_told_with_who_brought_it() -> None:
    async with seen_log(1) as log, memory_log(2) as client, memory_log(3) as poster, log.listen("127.0.0.1:0") as hub:
        before = await client.append("before")
        async with following(hub) as seen:
            own = await log.append("own")
            published = await seen.until_fact("publish", message=own.id)
            assert published["way"] == "append" and published["node"] == seen.hello["node"] and published["scenario"] == log.topic
            posted = await poster.append("posted")
            answer = await fetch(
                hub, "/api/messages", method="POST", headers={"content-type": "application/json"}, body=entry_to_line(posted)
            )
            assert answer.status == 201
            await seen.until_fact("deliver", message=posted.id, way="http")
            async with client.connect(hub.urls[0]):
                connected = await seen.until_fact("connect", type="client")
                synced = await seen.until_fact("deliver", message=before.id)
                assert synced["way"] in ("sync", "reconcile") and synced["peer"] == connected["peer"]
                await until_equal(log, client)
                await seen.until(lambda: seen.all("sync") or seen.all("sync-begin"))
                await eventually(lambda: hub.links()[0].is_pushing)
                pushed = await client.append("pushed")
                assert (await seen.until_fact("deliver", message=pushed.id))["way"] == "push"
                told = await log.append("told")
                sent = await seen.until_fact("send", message=told.id)
                assert (sent["type"], sent["peer"]) == ("push", connected["peer"]) and sent["bytes"] > 50
            await seen.until_fact("disconnect", peer=connected["peer"])
            root = (await log.root()).hash.hex()
            last = await seen.until_fact("root", message=root)
            assert last["count"] == 5
        assert [fact["seq"] for fact in seen.facts] == list(range(len(seen.facts)))
        for record in seen.facts:
            fact = Fact.from_record(record)
            assert fact.kind in KINDS and (fact.way is None or fact.way in WAYS)


async def test_both_sides_of_a_first_sync_tell_its_figures() -> None:
    async with seen_log(1) as log, seen_log(2) as client, log.listen("127.0.0.1:0") as hub, client.listen("127.0.0.1:0") as other:
        mine = await log.append_many(range(30))
        async with following(hub), following(other) as seen, client.connect(hub.urls[0]):
            done = await seen.until_fact("sync")
            assert done["count"] == 30 and done["type"] in ("merkle", "reconcile") and "reason" not in done
            assert seen.all("sync-begin", type=done["type"], peer=done["peer"])
            delivered = seen.all("deliver")
            assert {fact["message"] for fact in delivered} == {entry.id for entry in mine}
            assert {fact["way"] for fact in delivered} == {"reconcile" if done["type"] == "reconcile" else "sync"}


async def test_whoever_comes_back_goes_on_without_a_gap() -> None:
    async with seen_log(1) as log, log.listen("127.0.0.1:0") as hub:
        await log.append("a")
        async with following(hub) as first:
            await first.until_fact("publish")
        entries = [await log.append(n) for n in range(20)]
        async with following(hub, last_id=first.last_id) as second:
            await second.until_fact("publish", message=entries[-1].id)
        assert second.gaps == []
        both = first.facts + second.facts
        assert [fact["seq"] for fact in both] == list(range(len(both)))


@pytest.mark.parametrize("last_id", ["000000000000-3", "nonsense", "{boot}-99999", "\u00e9"])
async def test_whoever_comes_back_to_another_run_is_told_of_the_gap(last_id: str) -> None:
    async with seen_log(1) as log, log.listen("127.0.0.1:0") as hub:
        service = service_of(log)
        assert service is not None and service.observer is not None
        async with following(hub, last_id=last_id.format(boot=service.observer.board.boot)) as seen:
            await log.append("a")
            await seen.until_fact("publish")
        assert len(seen.gaps) == 1


async def test_follower_says_how_much_of_the_past_it_wants() -> None:
    async with seen_log(1) as log, log.listen("127.0.0.1:0") as hub:
        await log.append_many(range(10))
        async with following(hub, "?past=0") as seen:
            entry = await log.append("now")
            await seen.until_fact("publish")
            assert [fact["message"] for fact in seen.all("publish")] == [entry.id]
        for query in ("?past=-1", "?past=50001", "?past=x", "?future=1"):
            assert (await fetch(hub, f"/api/facts{query}")).status == 400


async def test_slow_reader_costs_no_memory_and_stalls_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "GATHER_S", 0.0)
    monkeypatch.setattr(board_module, "Board", partial(board_module.Board, 300))
    async with seen_log(1) as log, log.listen("127.0.0.1:0") as hub:
        service = service_of(log)
        assert service is not None and service.observer is not None
        observer = service.observer
        async with await open_stream(hub) as idle, following(hub) as seen:
            await idle.send_all(b"GET /api/facts HTTP/1.1\r\nhost: localhost\r\n\r\n")
            # Far more than the sockets of both sides hold.
            for n in range(100):
                for _ in range(100):
                    observer.tell("fault", reason=f"{n} " + "x" * 3_000)
                await seen.until(partial(lambda n: seen.facts and seen.facts[-1].get("reason", "").startswith(f"{n} "), n))
            assert len(observer.board) == 300 and seen.gaps == []
            # What the idle one has not read is what the sockets hold, and after that it is told what it lost.
            received = b""
            with trio.fail_after(PATIENCE_S):
                while b'event: gap\ndata: {"lost":' not in received:
                    received = received[-100:] + await idle.receive_some(1 << 20)


async def test_facts_are_for_those_who_may_watch() -> None:
    tokens = {name: hash_token(name) for name in ("reader", "watcher")}
    access = Access.parse({"tokens": tokens, "default": {"tokens": {"reader": ["connect", "pull", "push", "post"], "watcher": ["watch"]}}})
    async with seen_log(1) as log, log.listen("127.0.0.1:0", limits=HubLimits(access=access)) as hub:
        assert (await fetch(hub, "/api/facts")).status == 401
        assert (await fetch(hub, "/api/facts", headers={"authorization": "Bearer reader"})).status == 403
        async with following(hub, "?token=watcher&past=10") as seen:
            await seen.until_fact("start")


async def test_without_facts_the_answer_says_how_to_get_them() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        answer = await fetch(hub, "/api/facts")
        assert answer.status == 404 and b"--dashboard" in answer.body
        service = service_of(log)
        assert service is not None and service.observer is None


async def test_peers_are_shown_with_all_that_is_known_of_them() -> None:
    async with seen_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0") as hub:
        entry = await log.append("a")
        async with client.connect(hub.urls[0]):
            await until_equal(log, client)
            await eventually(lambda: hub.links()[0].is_pushing)
            shown = (await fetch(hub, "/api/peers")).json
        assert (shown["topic"], shown["router"], shown["entries"], shown["heads"]) == (log.topic, "gossipsub", 1, [entry.id])
        assert shown["root"]["hash"] == (await log.root()).hash.hex()
        (peer,) = shown["peers"]
        assert (peer["kind"], peer["outbound"], peer["address"], peer["peering"]) == ("client", False, "127.0.0.1", "none")
        assert any(carried["out"] > 0 for carried in peer["traffic"].values()) and peer["queue"] == {"bytes": 0, "rpcs": 0, "dropped": 0}
        assert shown["dials"] == shown["bans"] == shown["refused"] == []


async def test_hub_that_is_not_reached_is_a_failed_dial() -> None:
    async with seen_log(1) as log, memory_log(2) as gone, log.listen("127.0.0.1:0") as hub:
        async with gone.listen("127.0.0.1:0") as former:
            url = former.urls[0]
        async with following(hub) as seen, log.connect(url):
            failed = await seen.until_fact("dial-failed", peer=url)
            assert "refused" in failed["reason"].lower()
            (dial,) = (await fetch(hub, "/api/peers")).json["dials"]
            assert dial["address"] == url and dial["tries"] >= 1


async def test_facts_are_written_to_a_file_to_the_last(tmp_path: Path) -> None:
    file = tmp_path / "facts.jsonl"
    async with seen_log(1, file) as log, log.listen("127.0.0.1:0"):
        entries = [await log.append(n) for n in range(5)]
    lines = file.read_text("utf-8").splitlines()
    facts = [Fact.from_json(line) for line in lines]
    assert [fact.seq for fact in facts] == list(range(len(facts)))
    assert [fact.message for fact in facts if fact.kind == "publish"] == [entry.id for entry in entries]
    assert facts[0].kind == "start" and facts[-1].kind == "stop"
    assert all("null" not in json.dumps(json.loads(line)) for line in lines)


async def test_entry_that_an_application_sets_aside_is_told() -> None:
    async def apply(entries: Sequence[Entry], tx: object) -> None:
        if any(entry.payload == "bad" for entry in entries):
            raise ValueError("no use for it")

    async with memory_log(1) as writer, memory_log(2, app=Application("table", 1, apply)) as log:
        with observed(log):
            async with log.listen("127.0.0.1:0") as hub, following(hub) as seen, writer.connect(hub.urls[0]):
                entry = await writer.append("bad")
                aside = await seen.until_fact("aside", message=entry.id)
                assert (aside["type"], aside["reason"]) == ("table", "ValueError: no use for it")
                await seen.until_fact("deliver", message=entry.id)


async def test_disk_that_is_full_is_told_once() -> None:
    async with seen_log(1) as log, log.listen("127.0.0.1:0") as hub, following(hub) as seen:
        log.writer.failure = time.monotonic(), StorageFull("/somewhere is full")
        await seen.until_fact("full", reason="the disk is full")
        log.writer.failure = None
        await trio.sleep(0)
        assert len(seen.all("full")) == 1
