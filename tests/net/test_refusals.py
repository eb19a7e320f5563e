"""A client whose entries a hub does not take hears which, why and once: on its link, in its log, by facts, and from `sync`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from hostile_client import muxed
from network_support import TOPIC, eventually, memory_log, signer, until_has

import gossiplog
from gossiplog.cli.app import root
from gossiplog.codec.framing import encode_frame
from gossiplog.entry.validation import Outcome, Rule, Verdict
from gossiplog.errors import DecodeError
from gossiplog.net.ground.access import Access
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.ground.protocol_ids import refusals_protocol
from gossiplog.net.hub.client import parse_url
from gossiplog.net.hub.exchange import exchange
from gossiplog.net.service.refusals import RefusalBox, read_refusals
from gossiplog.net.service.service import observed, service_of
from gossiplog.sync.refusals import IDS_MAX, Refused

READ_ONLY: dict[str, Any] = {"anonymous": ["connect", "pull"]}
STRICT: dict[str, Any] = {"allow": [signer(9).did]}
QUOTA: dict[str, Any] = {"quota": {"entries_per_minute": 20}}


def limits(rules: dict[str, Any]) -> HubLimits:
    return HubLimits(access=Access.parse({"default": rules}))


@pytest.mark.parametrize(
    ("rules", "rule", "reason"),
    [
        (READ_ONLY, "unwelcome", "this client may not push"),
        (STRICT, "unwelcome", f"entries of {signer(2).did} are not taken here"),
        ({"quota": {"entries_per_minute": 1}}, "quota", "more than 1 entries of one writer a minute; again in 60 s"),
    ],
)
@pytest.mark.parametrize("is_pushed", [True, False])
async def test_client_hears_what_is_not_taken_whether_it_was_pushed_or_pulled(
    rules: dict[str, Any], rule: str, reason: str, is_pushed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=limits(rules)) as hub:
        with observed(client):
            if not is_pushed:
                entries = [await client.append(number) for number in range(3)]
            async with client.connect(hub.urls[0]) as link:
                await eventually(lambda: hub.links() and hub.links()[0].is_pushing)
                if is_pushed:
                    entries = [await client.append(number) for number in range(3)]
                with trio.fail_after(60):
                    await link.wait_refused()
                lacking = {entry.id for entry in entries} - {entry.id async for entry in log.iterate()}
                # Of what a client may not push the hub sees the heads alone.
                expected = lacking if is_pushed or rules is not READ_ONLY else {entries[-1].id}
                await eventually(lambda: set(link.refused[rule].ids) == expected)
                assert link.refused[rule].reason.partition(";")[0] == reason.partition(";")[0]
                assert link.refused[rule].count == len(expected)
                assert link.refused[rule].taken == len(entries) - len(lacking)
                service = service_of(client)
                assert service is not None
                assert service.observer is not None
                facts = [fact for fact in service.observer.board.facts() if fact.kind == "refused"]
                assert {fact.rule for fact in facts} == {rule}
                assert {fact.message for fact in facts} <= expected
    warned = [record for record in caplog.records if getattr(record, "event", "") == "hub does not take entries of ours"]
    assert len(warned) == 1


async def test_entry_that_a_rule_of_the_application_refuses_is_told_of() -> None:
    async with (
        memory_log(1, authorize=lambda message, did: message.payload != "no") as log,
        memory_log(2) as client,
        log.listen("127.0.0.1:0") as hub,
        client.connect(hub.urls[0]) as link,
    ):
        await eventually(lambda: hub.links() and hub.links()[0].is_pushing)
        refused = await client.append("no")
        with trio.fail_after(60):
            await link.wait_refused()
        assert [(rule, each.ids) for rule, each in link.refused.items()] == [("access", (refused.id,))]


async def test_nobody_is_told_of_what_was_taken_or_comes_in_later() -> None:
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=limits(READ_ONLY)) as hub:
        entry = await log.append("of the hub")
        async with client.connect(hub.urls[0]) as link:
            await until_has(client, [entry])
            await eventually(lambda: hub.links() and hub.links()[0].is_pushing)
            assert link.refused == {}
    box = RefusalBox()
    for rule in (Rule.PARENTS, Rule.STORAGE):
        box.add(bytes(20), Verdict(Outcome.IGNORE, rule, "later"))
    with trio.move_on_after(0) as waiting:
        await box.take()
    assert waiting.cancelled_caught


async def test_box_is_bounded_and_tells_of_an_entry_once() -> None:
    box = RefusalBox()
    for number in range(10_000):
        for _ in range(2):
            box.add(number.to_bytes(20), Verdict(Outcome.REJECT, Rule.SIZE, "x" * 5_000 + "\ud800"))
    refused = await box.take()
    assert (len(refused.ids), refused.count, len(refused.reason)) == (IDS_MAX, 10_000, 512)
    for number in range(1_000):
        box.add((20_000 + number).to_bytes(20), Verdict(Outcome.REJECT, f"rule {number}", "why"))
    assert len(box._waiting) == 16
    assert len(box._told) <= 4_096


GOOD = {"rule": "quota", "reason": "many", "ids": ["0" * 32], "count": 1, "taken": 0}


@pytest.mark.parametrize(
    "told",
    [
        b"[]",
        b"\xff",
        b"[" * 10_000,
        json.dumps(GOOD | {"rule": 7}).encode(),
        json.dumps(GOOD | {"count": -1}).encode(),
        json.dumps(GOOD | {"count": True}).encode(),
        json.dumps(GOOD | {"taken": 2**60}).encode(),
        json.dumps(GOOD | {"ids": ["no id"]}).encode(),
        json.dumps(GOOD | {"ids": ["0" * 32] * 65}).encode(),
        json.dumps({}).encode(),
        b"x" * 20_000,
    ],
)
async def test_what_a_hub_says_is_bounded_and_checked(told: bytes) -> None:
    heard = list[Refused]()

    class Said:
        """A stream on which a hub says something good and then something else."""

        def __init__(self) -> None:
            self.left = [encode_frame(json.dumps(GOOD | {"reason": "a\x1b[31mb"}).encode()), encode_frame(told)]

        async def receive_some(self) -> bytes:
            return self.left.pop(0) if self.left else b""

        def reset(self) -> None:
            self.left = []

    with pytest.raises(DecodeError):
        await read_refusals(Said(), heard.append)  # type: ignore[arg-type]
    assert [each.reason for each in heard] == ["a?[31mb"]


async def test_second_stream_takes_the_place_of_the_first() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits(STRICT)) as hub, muxed(hub) as connection:
        first = await connection.open_stream([refusals_protocol(TOPIC)])
        await connection.open_stream([refusals_protocol(TOPIC)])
        with trio.fail_after(60):
            assert await first.receive_some() == b""


@pytest.mark.parametrize(("rules", "taken", "rule"), [(READ_ONLY, 0, "unwelcome"), (STRICT, 0, "unwelcome"), (QUOTA, 20, "quota")])
async def test_exchange_counts_each_entry_once_and_ends_at_once(rules: dict[str, Any], taken: int, rule: str) -> None:
    async with memory_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0", limits=limits(rules)) as hub:
        await client.append_many(range(200))
        with trio.fail_after(30):
            done = await exchange(client, parse_url(hub.urls[0]))
        assert done.is_taken is False
        assert done.pushed == taken == await log.count()
        assert {name: each.count for name, each in done.refused.items()} == {rule: 200 - taken}


@pytest.mark.parametrize(
    ("rules", "code", "words"),
    [
        (READ_ONLY, 6, "refuses 200 entries: this client may not push"),
        (QUOTA, 5, "refuses 180 entries: more than 20 entries of one writer a minute; again in "),
    ],
)
async def test_sync_says_what_is_not_taken(rules: dict[str, Any], code: int, words: str, tmp_path: Path) -> None:
    path = tmp_path / "client.db"
    async with gossiplog.open(path, topic=TOPIC, signer=signer(2)) as client:
        await client.append_many(range(200))
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=limits(rules)) as hub:
        run: Callable[[], Any] = lambda: CliRunner().invoke(root, ["sync", str(path), hub.urls[0]])  # noqa: E731
        result = await trio.to_thread.run_sync(run)
    assert result.exit_code == code, result.output
    assert words in result.output
    assert ("run it again after that" in result.output) == (code == 5)
