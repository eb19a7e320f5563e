"""Presence among the processes of one PostgreSQL log, which hear each other by notifications."""

from typing import Any

import trio
from log_support import SIGNERS, opened
from mesh_support import eventually
from network_support import PATIENCE_S

from gossiplog import GossipLog
from gossiplog.store import NOTE_BYTES_MAX
from gossiplog.store.postgres.notify import _NOTES_MAX


async def shows(log: GossipLog, states: dict[str, Any]) -> None:
    await eventually(lambda: log.presence.states == states, PATIENCE_S)


async def test_workers_on_one_log_see_each_others_clients_and_a_newcomer_is_told(postgres) -> None:
    url = postgres.new_log()
    anna, ben = SIGNERS[2:4]
    async with opened(url) as one, opened(url, signer=SIGNERS[1]) as other:
        assert other.presence.states == {}
        async with one.listen("127.0.0.1:0") as hub, opened(":memory:", signer=anna) as page:
            async with page.connect(hub.urls[0]):
                await page.presence.set({"cursor": 3, "name": "Anna"}, ttl_s=60)
                await shows(other, {anna.did: {"cursor": 3, "name": "Anna"}})
                await other.presence.set({"cursor": 7}, ttl_s=60, signer=ben)
                both = {anna.did: {"cursor": 3, "name": "Anna"}, ben.did: {"cursor": 7}}
                await shows(page, both)
                async with opened(url) as newcomer:
                    await shows(newcomer, both)
                    await page.presence.set({"name": None}, ttl_s=60)
                    await shows(newcomer, {anna.did: {"cursor": 3}, ben.did: {"cursor": 7}})
            # The page has gone: nobody else brought what it stated.
            await shows(other, {ben.did: {"cursor": 7}})
        await other.presence.leave()
        await shows(one, {})


async def test_what_is_told_at_once_is_cut_to_notifications_and_nothing_is_stored(postgres) -> None:
    """The largest statements, more of them than a notification holds."""
    url = postgres.new_log()
    async with opened(url) as one, opened(url, signer=SIGNERS[1]) as other:
        assert other.presence.states == {}
        async with trio.open_nursery() as nursery:
            for signer in SIGNERS:
                nursery.start_soon(lambda signer: one.presence.set({"x": "y" * 1_015}, ttl_s=60, signer=signer), signer)
        await shows(other, {signer.did: {"x": "y" * 1_015} for signer in SIGNERS})
        assert await one.count() == 0


async def test_a_flood_of_notes_is_bounded_and_commits_are_heard_beside_it(postgres) -> None:
    url = postgres.new_log()
    async with opened(url) as one, opened(url, signer=SIGNERS[1]) as other, other.subscribe() as entries:
        heard: list[bytes | None] = []
        tell = one._store.talk(lambda note: None)
        other._store.talk(heard.append)
        await eventually(lambda: other._store._database.is_listening, PATIENCE_S)
        for number in range(_NOTES_MAX + 100):
            tell(number.to_bytes(4) + bytes(NOTE_BYTES_MAX - 4))
        tell(b"the last")
        await one.append("an entry")
        with trio.fail_after(PATIENCE_S):
            assert (await anext(aiter(entries))).payload == "an entry"
        await eventually(lambda: heard[-1:] == [b"the last"], PATIENCE_S)
        assert heard.pop(0) is None, "it hears from now on"
        assert len(heard) <= _NOTES_MAX + 16
        assert heard == [*sorted(filter(None, heard[:-1])), b"the last"], "in order"
