"""Entries as large as a frame: every way that an entry can take."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from network_support import TOPIC, eventually, fetch, memory_log, signer, until_count, until_has
from test_chain import DOWN, MESH, UP, joined

from gossiplog import Entry, GossipLog
from gossiplog.archive import entry_to_line
from gossiplog.entry.rules import VALUE_BYTES_LIMIT, next_clock
from gossiplog.entry.signing import sign_entry
from gossiplog.net.hub.client import parse_url
from gossiplog.net.hub.exchange import exchange
from gossiplog.net.service.service import service_of
from gossiplog.sync import serve_plan as answer
from gossiplog.sync.source import Source

SIZES = (70_000, 1_100_000, VALUE_BYTES_LIMIT)


def large_entries(sizes: Sequence[int] = SIZES) -> list[Entry]:
    """One entry upon the other, VALUEs of these sizes."""
    entries: list[Entry] = []
    for size in sizes:
        parents = [entries[-1].key] if entries else []
        clock = next_clock(parents)
        empty = sign_entry(signer(9), TOPIC, clock, parents, b"\x5a" + bytes(4))
        payload = size - len(empty.value)
        entries.append(sign_entry(signer(9), TOPIC, clock, parents, b"\x5a" + payload.to_bytes(4, "big") + bytes(payload)))
    assert [len(entry.value) for entry in entries] == list(sizes)
    return entries


def offences(log: GossipLog) -> dict[str, int]:
    return dict(service_of(log).state().offences)


@pytest.mark.parametrize("line", [(UP, UP), (MESH, DOWN)], ids="-".join)
async def test_large_entry_arrives_everywhere_and_nobody_is_blamed(line: tuple[str, ...]) -> None:
    async with joined(line) as logs:
        for number, entry in enumerate(large_entries()):
            # As if the application of a client had brought it.
            assert (await logs[number % 2 * 2].insert(entry.value)).is_new
            for log in logs:
                await until_has(log, [entry])
        assert [offences(log) for log in logs] == [{}] * len(logs)


async def test_large_entries_are_synced_posted_and_served() -> None:
    entries = large_entries()
    async with memory_log(1) as hub_log, memory_log(2) as ours, hub_log.listen("127.0.0.1:0") as hub:
        for entry in entries:
            body = entry_to_line(entry)
            posted = await fetch(hub, "/api/messages", method="POST", headers={"content-type": "application/json"}, body=body)
            assert posted.status == 201, posted.body
            assert (await fetch(hub, f"/api/messages/{entry.id}")).body == body
        done = await exchange(ours, parse_url(hub.urls[0]))
        assert done.pulled is not None
        assert (done.pulled.entries, done.is_equal) == (3, True)


async def test_source_that_answers_with_more_than_a_frame_is_asked_for_less_and_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    # As the reference answers, which looks at no size.
    monkeypatch.setattr(answer, "FRAME_BYTES_MAX", 2**40)
    monkeypatch.setattr(Source, "may_reconcile", lambda source, now: False)
    async with memory_log(1) as hub_log, memory_log(2) as client, hub_log.listen("127.0.0.1:0") as hub:
        await hub_log.insert_many([entry.value for entry in large_entries([900_000] * 12)])
        async with client.connect(hub.urls[0]) as link:
            await until_count(client, 12)
            await eventually(lambda: link.state is not None and link.state.counts.get("syncs", 0) > 1)
            assert offences(client) == {}
