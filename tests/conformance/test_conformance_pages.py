"""A page of entries ends after 8 MiB, whatever number of them was asked for, and nothing is lost between two pages."""

import pytest
from log_support import all_of, make

from gossiplog.log.fsck_requests import ReadEntryRows
from gossiplog.log.page import PAGE_BYTES_MAX
from gossiplog.log.requests import Quarantined, ReadPage, ReadQuarantine, ReadTail, WriteQuarantine
from gossiplog.plan import ask

COUNT = 12


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
        records = [Quarantined(key, value, "apply", "no", 0.0) for key, value in expected]
        await log._store.write(ask(WriteQuarantine(records, [])))
        assert await read_all(log, lambda after: ReadQuarantine(after, 1_000), lambda record: record.key) == (sizes, records)
        assert [record.key async for record in log.quarantine()] == [record.key for record in records]
