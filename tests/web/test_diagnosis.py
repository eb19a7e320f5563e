"""`GET why` and `GET doctor` over a real socket: what a server says of an entry and of itself, and to whom."""

from pathlib import Path

import pytest
import trio
from glass_support import seen_log
from network_support import PATIENCE_S, TOPIC, eventually, fetch, memory_log, signer, until_has

import gossiplog
from gossiplog import Reject
from gossiplog.entry.message import Entry
from gossiplog.net.ground.access import Access, hash_token
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.hub.server import Hub

NOBODYS = "0" * 32


async def why(hub: Hub, entry: str, peer: str | None = None) -> dict[str, object]:
    answer = await fetch(hub, f"/api/why?entry={entry}" + (f"&peer={peer}" if peer else ""))
    assert answer.status == 200, answer.body
    found: dict[str, object] = answer.json
    return found


async def test_an_entry_that_came_is_told_with_its_way_and_one_that_did_not_with_the_reason() -> None:
    async with seen_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0") as hub:
        alone = await why(hub, NOBODYS)
        assert (alone["state"], alone["cause"]) == ("absent", "partition")
        async with client.connect(hub.urls[0]):
            await eventually(lambda: hub.links() and hub.links()[0].is_pushing)
            entry = await client.append("pushed")
            await until_has(log, [entry])
            found = await why(hub, entry.id)
            assert (found["state"], found["cause"], found["node"]) == ("present", "here", alone["node"])
            assert [step["kind"] for step in found["way"] if step["kind"] == "deliver"] == ["deliver"]  # type: ignore[attr-defined]
            with trio.fail_after(PATIENCE_S):
                # The session with which they met may not have ended.
                while (nobodys := (await why(hub, NOBODYS))["cause"]) == "syncing":
                    await trio.sleep(0.01)
            assert nobodys == "never-heard"
            assert (await why(hub, NOBODYS, "12D3KooWnobody"))["cause"] == "partition"
            assert (await why(hub, entry.id, hub.links()[0].peer))["cause"] == "here"


async def test_what_is_held_back_is_told_without_facts_too() -> None:
    def apply(entries: list[Entry], tx: object) -> None:
        for entry in entries:
            if entry.message.payload == "odd":
                raise Reject("it is odd", id=entry.id)

    async with (
        gossiplog.open(
            ":memory:", topic=TOPIC, signer=signer(1), apply=apply, authorize=lambda message, did: message.payload != "void"
        ) as log,
        memory_log(2) as other,
        log.listen("127.0.0.1:0") as hub,
    ):
        odd, void = await other.append("odd"), await other.append("void")
        await log.insert_many([odd.value, void.value])
        aside = await why(hub, odd.id)
        assert (aside["state"], aside["cause"]) == ("present", "set-aside")
        assert "it is odd" in str(aside["text"])
        assert (await why(hub, void.id))["cause"] == "void"
        findings = (await fetch(hub, "/api/doctor")).json["findings"]
        assert {finding["check"]: finding["severity"] for finding in findings}["set-aside"] == "warning"


async def test_a_doctor_looks_at_everything_that_a_server_can_look_at(tmp_path: object) -> None:
    async with gossiplog.open(f"{tmp_path}/app.db", topic=TOPIC, signer=signer(1)) as log, log.listen("127.0.0.1:0") as hub:
        await log.append_many(range(100))
        answer = await fetch(hub, "/api/doctor")
        checks = {finding["check"]: finding for finding in answer.json["findings"]}
        assert {"version", "disk", "files", "heads", "tree", "quarantine", "set-aside", "store", "peers", "queues"} <= set(checks)
        assert checks["tree"]["details"] == {"looked_at": 64, "faults": []}
        assert checks["heads"]["details"] == {"entries": 100, "heads": 1}
        assert checks["peers"]["severity"] == "note"


async def test_both_take_the_right_to_watch_and_refuse_what_is_no_id() -> None:
    access = Access.parse({"tokens": {"ops": hash_token("t")}, "default": {"tokens": {"ops": ["watch"]}}})
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=HubLimits(access=access)) as hub:
        for path in ("/api/why?entry=" + NOBODYS, "/api/doctor"):
            assert (await fetch(hub, path)).status == 401
            assert (await fetch(hub, path, headers={"authorization": "Bearer t"})).status == 200
        for query in ("", "?entry=", "?entry=x", "?entry=" + "z" * 32, f"?entry={NOBODYS}&more=1"):
            assert (await fetch(hub, "/api/why" + query, headers={"authorization": "Bearer t"})).status == 400


async def test_doctor_says_that_the_logs_file_was_moved_away_or_another_one_put_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def of_store(hub: Hub) -> tuple[str, str]:
        findings = (await fetch(hub, "/api/doctor")).json["findings"]
        (found,) = (finding for finding in findings if finding["check"] == "store")
        return found["severity"], found["text"]

    path = tmp_path / "app.db"
    async with gossiplog.open(path, topic=TOPIC, signer=signer(1)) as log, log.listen("127.0.0.1:0") as hub:
        assert (await of_store(hub))[0] == "ok"
        path.rename(tmp_path / "moved.db")
        severity, text = await of_store(hub)
        assert (severity, "is not there any more" in text) == ("error", True)
        path.write_bytes(b"another")
        severity, text = await of_store(hub)
        assert (severity, "is another file now" in text) == ("error", True)
        path.unlink()
        (tmp_path / "moved.db").rename(path)
        assert (await of_store(hub))[0] == "ok"
    # The server's own look may have come while the other file was there, of which it rightly says that the log does not answer.
    caplog.clear()
