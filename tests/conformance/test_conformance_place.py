"""Insertion numbers are given once, and a follower is told when the log it followed has been replaced."""

import sqlite3
from pathlib import Path

import pytest
import trio
from log_support import all_of, assert_whole, make, opened

from gossiplog.errors import DecodeError, LogReplaced
from gossiplog.log.place import LogPlace, check_place, find_place
from gossiplog.log.requests import ReadCount, ReadTail
from gossiplog.plan import ask


async def damage_last(open_log, log) -> None:
    """Overwrite the last entry, through another connection."""
    seq = (await log.run(ask(ReadCount())))[1]
    if open_log.store == "sqlite":
        db = sqlite3.connect(log.location)
        db.execute("UPDATE gossiplog_entries SET value = x'00' WHERE seq = ?", (seq,))
        db.commit()
        db.close()
    else:
        open_log.server.sql(f"UPDATE \"{open_log.schema()}\".entries SET value = '\\x00' WHERE seq = {seq}")


async def test_numbers_of_entries_that_a_repair_took_away_are_not_given_to_others(open_durable) -> None:
    async with open_durable() as log:
        await log.append_many(range(10))
        place = await log.run(find_place(10))
        await damage_last(open_durable, log)
    async with open_durable() as log:
        report = await log.fsck(repair=True)
        assert (report.is_clean, report.set_aside) == (True, 1)
    async with open_durable() as log:
        # What a follower keeps is still good, and it gets what comes next.
        assert (await log.run(check_place(place, "here"))).last == 10
        new = await log.append("new")
        assert await log.run(ask(ReadTail(10, 5))) == [(11, new.value)]
        assert (await log.run(ask(ReadCount()))) == (10, 11)
        await assert_whole(log)


async def test_places_of_another_log_or_an_older_state_are_told_apart(open_log) -> None:
    async with open_log() as log, open_log("other") as other:
        entries = await log.append_many(range(5))
        await other.insert_many([entry.value for entry in entries])
        place = await log.run(find_place(1 << 60))
        assert (place.seq, place.key) == (5, entries[4].key)
        assert LogPlace.from_json(place.to_json()) == place
        await log.append("more")
        await log.run(check_place(place, "here"))
        with pytest.raises(LogReplaced, match="is not the log that was followed"):
            await other.run(check_place(place, "here"))
        # What was noted before there were generations says nothing about them.
        await other.run(check_place(LogPlace.from_json({"seq": 5}), "here"))
        with pytest.raises(LogReplaced, match="ends at 5"):
            await other.run(check_place(LogPlace(6), "here"))
        with pytest.raises(LogReplaced, match=f"{make('x').id} had"):
            await log.run(check_place(LogPlace(5, place.generation, make("x").key), "here"))
        with pytest.raises(DecodeError, match="no place"):
            LogPlace.from_json({"seq": "5"})


@pytest.mark.parametrize("count", [1, 4, 8])
async def test_a_follower_in_another_process_hears_of_a_file_that_was_put_back(tmp_path: Path, count: int) -> None:
    path = tmp_path / "log.db"
    async with opened(path) as log:
        await log.append_many(range(5))
    backup = path.read_bytes()
    async with opened(path) as log:
        await log.append_many(range(5))
    async with opened(path, read_only=True) as log, log.subscribe() as events:
        for _ in range(10):
            await anext(events)
        # As `cp backup.db log.db` does: the file is the same one, and its contents are others.
        path.write_bytes(backup)
        db = sqlite3.connect(path)
        db.execute("UPDATE gossiplog_log SET topic = topic")
        db.commit()
        db.close()
        async with opened(path) as writer:
            await writer.append_many(range(100, 100 + count))
            assert len(await all_of(writer)) == 5 + count
        with pytest.raises(LogReplaced, match="put back"), trio.fail_after(20):
            await anext(events)
