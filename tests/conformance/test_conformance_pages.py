"""A page of entries ends after 8 MiB, whatever number of them was asked for, and nothing is lost between two pages."""

import pytest
from log_support import SIGNERS, all_of, make

from gossiplog.log.ancestry import AncestorQuery
from gossiplog.log.fsck_requests import ReadEntryRows
from gossiplog.log.page import PAGE_BYTES_MAX
from gossiplog.log.requests import (
    Aside,
    Quarantined,
    ReadPage,
    ReadQuarantine,
    ReadQuarantineCount,
    ReadQuarantined,
    ReadTail,
    ReadValues,
    WriteQuarantine,
)
from gossiplog.plan import ask

COUNT = 12


class NeverEnding:
    """A search that finds nothing."""

    def step(self):
        return None
        yield


def large_entries():
    return [make([number, bytes(2**20)]) for number in range(COUNT)]


@pytest.fixture(scope="module")
def entries():
    return large_entries()


async def read_all(log, request, place_of):
    """Sizes of all pages, and everything in them."""
    sizes, rows, place = [], [], None
    while page := await log.run(ask(request(place))):
        sizes.append(len(page))
        rows += page
        place = place_of(page[-1])
    return sizes, rows


async def test_page_ends_with_the_entry_with_which_it_has_8_mib(open_log, entries) -> None:
    async with open_log() as log:
        assert all(verdict.is_new for verdict in await log.insert_many([entry.value for entry in entries]))
        expected = sorted((entry.key, entry.value) for entry in entries)
        fit = -(-PAGE_BYTES_MAX // len(entries[0].value))
        sizes = [fit, COUNT - fit]
        assert await read_all(log, lambda after: ReadPage(after, None, False, 1_000), lambda row: row[0]) == (sizes, expected)
        assert await read_all(log, lambda before: ReadPage(None, before, True, 1_000), lambda row: row[0]) == (sizes, expected[::-1])
        tail = [(seq, entry.value) for seq, entry in enumerate(entries, 1)]
        assert await read_all(log, lambda seq: ReadTail(seq or 0, 1_000), lambda row: row[0]) == (sizes, tail)
        assert await read_all(log, lambda seq: ReadEntryRows(seq or 0, 1_000), lambda row: row[0]) == (sizes, tail)
        assert [entry.key for entry in await all_of(log)] == [key for key, _ in expected]
        assert [entry.key async for entry in log.iterate(reverse=True, limit=COUNT - 1)] == [key for key, _ in expected[:0:-1]]
        records = [Quarantined(key, value, "parents", "no", 0.0) for key, value in expected]
        await log._store.write(ask(WriteQuarantine(records, [])))
        assert await read_all(log, lambda after: ReadQuarantine(after, 1_000), lambda record: record.key) == (sizes, records)
        assert [record.key async for record in log.quarantine()] == [record.key for record in records]
        chosen = [record.key for record in records[1:]]
        aside = await log.run(ask(ReadQuarantined([*chosen, bytes(20)])))
        assert aside == {key: Aside("parents", "no", 0.0) for key in chosen}
        later = records[0]._replace(key=bytes(20), since=7.0)
        await log._store.write(ask(WriteQuarantine([later], [])))
        counts = [await log.run(ask(ReadQuarantineCount(since))) for since in (None, 0.0, 7.0, 8.0)]
        assert counts == [(COUNT + 1, number) for number in (0, COUNT + 1, 1, 0)]


async def test_values_by_key_are_given_up_to_8_mib_and_the_others_when_they_are_asked_for(open_log, entries) -> None:
    fit = -(-PAGE_BYTES_MAX // len(entries[0].value))
    async with open_log(signer=SIGNERS[0]) as log:
        await log.insert_many([entry.value for entry in entries])
        found, left = {}, [bytes(20), *[entry.key for entry in entries]]
        while page := await log.run(ask(ReadValues(left))):
            assert len(page) <= fit
            found |= page
            left = [key for key in left if key not in page]
        assert found == {entry.key: entry.value for entry in entries} and left == [bytes(20)]
        tip = await log.append("the child of all")
        assert [entry.key async for entry in log.ancestors(tip.id)] == sorted(found, reverse=True)
        walk = AncestorQuery((int.from_bytes(min(found)) - 1).to_bytes(20), tip.key)
        walk._search = NeverEnding()
        assert await log.run(walk.run()) is False


async def test_large_entries_leave_the_quarantine_by_their_ids(open_log, entries) -> None:
    async with open_log() as log:
        await log._store.write(ask(WriteQuarantine([Quarantined(entry.key, entry.value, "parents", "", 0.0) for entry in entries], [])))
        chosen = sorted(entries, key=lambda entry: entry.key)[:-1]
        retried = [(record.key, verdict.is_new) async for record, verdict in log.retrying([entry.id for entry in chosen])]
        assert retried == [(entry.key, True) for entry in chosen]
        assert await log.count() == COUNT - 1
