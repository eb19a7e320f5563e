"""Entries found in the pages of a file whose own structure leads nowhere any more."""

from pathlib import Path
from random import Random

import pytest
from damage_support import Pages
from log_support import TOPIC, make, opened

from gossiplog.entry import Entry
from gossiplog.entry.envelope import build_value
from gossiplog.store.sqlite import pages as pages_module
from gossiplog.store.sqlite.pages import scan_values


async def log_of(path: Path, entries: list[Entry]) -> None:
    async with opened(path) as log:
        await log.insert_many([entry.value for entry in entries])


def blind(path: Path) -> None:
    """Make the header and the list of rows of every leaf of the entries noise."""
    pages = Pages(path)
    for page in pages.leaves("gossiplog_entries"):
        count = int.from_bytes(pages.data[pages.at(page) + 3 : pages.at(page) + 5])
        pages.fill(page, Random(page).randbytes(8 + 2 * count))
    pages.write()


@pytest.mark.parametrize("bytes_each", [40, 900, 3_000, 4_050, 4_500, 30_000])
async def test_entries_are_found_where_no_page_says_what_it_holds(tmp_path: Path, bytes_each: int) -> None:
    random = Random(bytes_each)
    entries: list[Entry] = []
    for _ in range(60):
        entries.append(make(random.randbytes(random.randint(bytes_each // 2, bytes_each)), entries[-1:]))
    await log_of(tmp_path / "app.db", entries)
    blind(tmp_path / "app.db")
    found = set(scan_values(tmp_path / "app.db"))
    # A page that is entered by the last byte of its header, which the first row may follow at once, is not expected here.
    assert {entry.value for entry in entries} <= found


async def test_entries_behind_a_large_one_are_found(tmp_path: Path) -> None:
    """Its length spans those that lie in the same page, for most of it lies elsewhere."""
    entries = [make({"number": number, "text": "x" * (4_200 if number % 5 == 0 else 20)}) for number in range(100)]
    await log_of(tmp_path / "app.db", entries)
    blind(tmp_path / "app.db")
    assert {entry.value for entry in entries} <= set(scan_values(tmp_path / "app.db"))


@pytest.mark.parametrize("codec", ["dag-cbor", "dag-json", "canvas-snapshot", "canvas-session-eip712"])
def test_entries_of_every_codec_are_found_in_the_order_of_their_rows(tmp_path: Path, codec: str) -> None:
    values = [build_value(codec, "did:key:z6Mk", bytes(64), TOPIC, number, [], b"\xf6") for number in (1, 2)]
    # SQLite fills a page from its end.
    (tmp_path / "app.db").write_bytes(bytes(2_000) + values[1] + bytes(9) + values[0] + bytes(500))
    assert list(scan_values(tmp_path / "app.db")) == values


async def test_a_write_ahead_log_alone_has_entries(tmp_path: Path) -> None:
    entries = [make({"number": number, "text": "x" * 9_000}) for number in range(9)]
    async with opened(tmp_path / "app.db") as log:
        await log.insert_many([entry.value for entry in entries])
        (tmp_path / "alone.db-wal").write_bytes((tmp_path / "app.db-wal").read_bytes())
    assert {entry.value for entry in entries} <= set(scan_values(tmp_path / "alone.db"))


@pytest.mark.parametrize("bytes_each", [4_500, 30_000, 200_000])
async def test_large_entries_are_put_together_though_the_headers_of_their_rows_are_destroyed(tmp_path: Path, bytes_each: int) -> None:
    """What says how long a row is, and so where its page has the number of the next, is noise: the VALUE's own form tells both."""
    random = Random(bytes_each)
    entries: list[Entry] = []
    for number in range(30):
        data = random.randbytes(random.randint(bytes_each // 2 + 2_000, bytes_each))
        entries.append(make({"number": number, "data": data} if number % 2 else [[byte] for byte in data[:3_000]], entries[-1:]))
    await log_of(tmp_path / "app.db", entries)
    pages = Pages(tmp_path / "app.db")
    for entry in entries:
        at = bytes(pages.data).index(entry.value[:300])
        pages.data[at - 4 : at] = b"\xff" * 4
    pages.write()
    assert {entry.value for entry in entries} <= set(scan_values(tmp_path / "app.db"))


async def test_a_large_entry_is_read_for_nothing_where_pages_lead_nowhere(tmp_path: Path) -> None:
    """Numbers of pages that lead in circles are followed a bounded number of times."""
    path = tmp_path / "hostile.db"
    await log_of(path, [make("one")])
    value = make({"data": b"x" * 20_000}).value
    size = 4_096
    page = (value[:600] + (2).to_bytes(4) * size)[:size]
    path.write_bytes(path.read_bytes()[: 2 * size] + b"".join([(3).to_bytes(4) + page[4:]] * 50))
    reads, read_file = 0, pages_module._PageFile.read_file

    def counted(self: pages_module._PageFile, number: int) -> bytes:
        nonlocal reads
        reads += 1
        return read_file(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages_module._PageFile, "read_file", counted)
        assert all(found != value for found in scan_values(path))
    assert reads <= 10 * 52
