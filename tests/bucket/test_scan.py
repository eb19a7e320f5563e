"""Reading a bucket without a log: ranges of leaves, each entry once, and what is said of what is missing or damaged."""

import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import trio
from click.testing import CliRunner
from log_support import SIGNERS, TOPIC

import gossiplog
from gossiplog.bucket import open_storage, take
from gossiplog.bucket.leaves import read_leaves
from gossiplog.bucket.reading import PublishedTree
from gossiplog.bucket.scan import BucketPlace, Extent, extents, look, read_extent, up_to_gaps
from gossiplog.bucket.table import bucket_to_arrow, read_pages
from gossiplog.cli.app import root
from gossiplog.errors import BucketError, DamagedBucket, DecodeError, LocalProtocolError
from gossiplog.gossip_log import GossipLog
from gossiplog.tlog.note import publisher_of
from gossiplog.tlog.segment import SegmentWriter

OURS, THEIRS = (publisher_of(signer) for signer in SIGNERS[:2])


@pytest.fixture
async def theirs(tmp_path: Path) -> AsyncIterator[GossipLog]:
    async with gossiplog.open(tmp_path / "theirs.db", topic=TOPIC, signer=SIGNERS[1], durability="off") as log:
        await log.append_many([{"theirs": n} for n in range(20)])
        yield log


async def rows_of(
    place: Path | str, between: Iterable[Extent] | None = None, *, proves: bool = False
) -> list[tuple[int, bytes | None, str | None]]:
    """Number, VALUE and fault of what lies in these extents, else in all."""
    storage = open_storage(place)
    chosen = extents(BucketPlace(), await look(storage)) if between is None else list(between)

    def read() -> list[tuple[int, bytes | None, str | None]]:
        found: list[tuple[int, bytes | None, str | None]] = []
        for extent in chosen:
            for leaves in read_extent(storage, extent, proves=proves):
                found += [(n, value, leaves.fault and str(leaves.fault)) for n, value in zip(leaves.numbers, leaves.values, strict=True)]
        return found

    return await trio.to_thread.run_sync(read)


async def values_of(log: GossipLog) -> list[bytes]:
    return sorted([entry.value async for entry in log.iterate()])


async def test_a_tail_that_has_grown_and_was_removed_is_read_from_the_longer_one(log: GossipLog, bucket: Path) -> None:
    await log.publish(bucket)
    before = [leaves.values async for leaves in read_leaves(PublishedTree(open_storage(bucket), f"{OURS}/1", 700, b""), 0, 700)]
    planned = extents(BucketPlace(), await look(open_storage(bucket)))
    for _ in range(3):
        await log.append({"more": True})
        await log.publish(bucket)
    assert sorted(path.name for path in (bucket / OURS / "1" / "values" / "000.p").iterdir()) == ["702", "703"]
    assert [leaves.values async for leaves in read_leaves(PublishedTree(open_storage(bucket), f"{OURS}/1", 700, b""), 0, 700)] == before
    # What was planned before is what is read, and proved by the tree of that time.
    assert [value for _, value, fault in await rows_of(bucket, planned, proves=True)] == [value for values in before for value in values]


@pytest.mark.parametrize("proves", [False, True])
async def test_entries_that_several_publishers_have_are_read_once(log: GossipLog, theirs: GossipLog, bucket: Path, proves: bool) -> None:
    await log.publish(bucket)
    await theirs.sync(bucket)
    found = await rows_of(bucket, proves=proves)
    assert sorted(value for _, value, _ in found if value) == await values_of(theirs)
    assert not any(fault for _, _, fault in found)
    await log.sync(bucket)
    end = await look(open_storage(bucket))
    # Both logs have the same root now, so that nobody has to compare leaves.
    assert [extent.others for extent in extents(BucketPlace(), end)] == [()]
    assert end.log_root is not None
    assert sorted(value for _, value, _ in await rows_of(bucket, proves=proves) if value) == await values_of(theirs)


async def test_a_publisher_that_lies_in_a_bundle_hides_nothing_from_a_scan_that_proves(
    log: GossipLog, theirs: GossipLog, bucket: Path
) -> None:
    await log.publish(bucket)
    await theirs.append_many([{"more": n} for n in range(900)])
    await theirs.publish(bucket)
    lie = bucket / THEIRS / "1" / "tile" / "entries" / "000"
    lie.write_bytes((bucket / OURS / "1" / "tile" / "entries" / "000").read_bytes())
    ours, everything = set(await values_of(log)), sorted(await values_of(log) + await values_of(theirs))
    assert len([value for _, value, _ in await rows_of(bucket) if value in ours]) == 700 - 256, "a plain scan believes it"
    found = await rows_of(bucket, proves=True)
    assert sorted(value for _, value, fault in found if not fault) == everything
    (fault,) = [fault for _, _, fault in found if fault]
    assert fault.endswith(f"{THEIRS}/1: leaves 0 to 255 are missing or wrong; what has them too may come again")


async def test_a_range_is_cut_at_segments_and_reads_no_other_frames(bucket: Path, tmp_path: Path) -> None:
    async with gossiplog.open(tmp_path / "long.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.append_many([{"n": n} for n in range(9000)])
        await log.publish(bucket)
        values = [entry.value async for entry in log.iterate()]
    end = await look(open_storage(bucket))
    assert [(extent.low, extent.high) for extent in extents(BucketPlace(), end, 9)] == [(0, 4096), (4096, 8192), (8192, 9000)]
    assert [(extent.low, extent.high) for extent in extents(BucketPlace(), end, 9, low=4000, high=8200)] == [
        (4000, 4096),
        (4096, 8192),
        (8192, 8200),
    ]
    # The segments before and after are not looked at.
    (bucket / OURS / "1" / "values" / "000").unlink()
    chosen = extents(BucketPlace(), end, 1, low=5000, high=8500)
    for proves in (False, True):
        assert [value for _, value, _ in await rows_of(bucket, chosen, proves=proves)] == values[5000:8500]


async def test_a_place_can_end_before_the_first_segment_that_is_missing(bucket: Path, tmp_path: Path) -> None:
    async with gossiplog.open(tmp_path / "long.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.append_many([{"n": n} for n in range(9000)])
        await log.publish(bucket)
    storage, values = open_storage(bucket), bucket / OURS / "1" / "values"
    end = await look(storage)
    assert await up_to_gaps(storage, BucketPlace(), end) == end
    (values / "001").rename(tmp_path / "001")
    (values / "002.p" / "808").rename(tmp_path / "tail")
    cut = await up_to_gaps(storage, BucketPlace(), end)
    assert (cut.seq, list(cut.faults)) == (4096, [OURS])
    assert cut.faults[OURS].endswith("values/001 is missing")
    assert await up_to_gaps(storage, cut, end) == cut, "nothing new, and the same fault"
    (tmp_path / "001").rename(values / "001")
    cut = await up_to_gaps(storage, cut, end)
    assert cut.seq == 8192
    (tmp_path / "tail").rename(values / "002.p" / "808")
    assert await up_to_gaps(storage, cut, end) == end


async def test_what_is_missing_or_damaged_is_a_row_with_a_fault_and_the_rest_goes_on(bucket: Path, tmp_path: Path) -> None:
    async with gossiplog.open(tmp_path / "long.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.append_many([{"n": n} for n in range(4096 + 600)])
        await log.publish(bucket)
        values = [entry.value async for entry in log.iterate()]
    generation = bucket / OURS / "1"
    tail = generation / "values" / "001.p" / "600"
    whole = tail.read_bytes()
    # A VALUE that the tree has not, in a frame that is well-formed.
    changed = SegmentWriter()
    for number, value in enumerate(values[4096:]):
        changed.add(values[0] if number in (3, 599) else value)
    tail.write_bytes(changed.to_bytes())
    found = await rows_of(bucket, proves=True)
    assert [(number, value) for number, value, fault in found if fault] == [(4099, values[0]), (4695, values[0])]
    assert len(found) == 4696
    assert not any(fault for _, _, fault in await rows_of(bucket))
    # A frame that is none.
    tail.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    for proves in (False, True):
        found = await rows_of(bucket, proves=proves)
        assert [number for number, _, fault in found if fault and "001.p/600" in fault] == [4096]
        assert len(found) == 4096 + 1 + 600 - 256
    # No segment, and no tile.
    tail.unlink()
    assert [(number, "001.p/600 is missing" in fault) for number, _, fault in await rows_of(bucket) if fault] == [(4096, True)]
    tail.write_bytes(whole)
    shutil.rmtree(generation / "tile" / "1" / "000.p")
    found = await rows_of(bucket, proves=True)
    assert [(number, "tile/1/000" in (fault or "")) for number, _, fault in found] == [(0, True)]
    assert len(await rows_of(bucket)) == 4696


async def test_a_place_grows_by_what_is_new_with_late_publishers_and_new_generations(
    log: GossipLog, theirs: GossipLog, bucket: Path, tmp_path: Path
) -> None:
    storage = open_storage(bucket)
    await log.publish(bucket)
    seen: list[bytes] = []
    place = BucketPlace()

    async def go_on(rows_max: int | None = None) -> BucketPlace:
        end = (await look(storage, since=place)).within(place, rows_max=rows_max)
        assert BucketPlace.from_json(json.loads(json.dumps(end.to_json()))) == end
        seen.extend(value for _, value, fault in await rows_of(bucket, extents(place, end)) if value)
        return end

    place = await go_on(rows_max=300)
    assert (place.seq, len(seen)) == (300, 300)
    place = await go_on()
    assert await go_on() == place
    await theirs.sync(bucket)
    place = await go_on()
    await log.sync(bucket)
    more = await log.append({"more": True})
    await log.publish(bucket)
    place = await go_on()
    # The publisher begins a new generation, as the log has the entries in another order now, one less, and one more.
    shutil.copytree(tmp_path / "ours.db-buckets", tmp_path / "again.db-buckets", ignore=shutil.ignore_patterns("taken-*"))
    async with gossiplog.open(tmp_path / "again.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as again:
        await take(again, open_storage(bucket / THEIRS))
        await again.append({"again": True})
        assert (await again.publish(bucket)).origin.endswith("/2")
        expected = sorted([*await values_of(again), more.value])
    place = await go_on()
    assert sorted(place.trees) == [f"{THEIRS}/1", f"{OURS}/1", f"{OURS}/2"]
    assert sorted(seen) == expected


@pytest.mark.parametrize("what", ["rolled-back", "forked", "missing", "damaged"])
async def test_a_publisher_that_contradicts_itself_is_named_and_others_are_read_on(
    log: GossipLog, theirs: GossipLog, bucket: Path, tmp_path: Path, what: str
) -> None:
    storage = open_storage(bucket)
    await log.publish(bucket)
    shutil.copytree(bucket / OURS, tmp_path / "older")
    await log.append({"more": True})
    await log.publish(bucket)
    await theirs.publish(bucket)
    place = await look(storage)
    assert not place.faults

    async def fork() -> None:
        shutil.rmtree(bucket / OURS)
        async with gossiplog.open(tmp_path / "fork.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as other:
            await other.append_many([{"other": n} for n in range(900)])
            await other.publish(bucket)

    match what:
        case "rolled-back":
            shutil.rmtree(bucket / OURS)
            shutil.copytree(tmp_path / "older", bucket / OURS)
        case "forked":
            await fork()
        case "missing":
            (bucket / OURS / "head").unlink()
        case _:
            (bucket / OURS / "head").write_bytes(b"nothing\n")
    await theirs.append({"more": True})
    await theirs.publish(bucket)
    end = await look(storage, since=place)
    assert [(name, fault.partition(":")[0]) for name, fault in end.faults.items()] == [(OURS, what)]
    assert [value for _, value, fault in await rows_of(bucket, extents(place, end)) if not fault] == [
        (await theirs.get((await theirs.heads())[0])).value
    ]
    # It is told once, and once it is mended it is read on.
    assert await look(storage, since=end) == end


async def test_what_cannot_be_read_is_said_in_a_line(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    async with gossiplog.open(":memory:", topic="other.example.com", signer=SIGNERS[1]) as other:
        await other.append({"n": 1})
        with pytest.raises(LocalProtocolError, match="nothing is published at"):
            await look(open_storage(bucket))
        await other.publish(bucket)
    with pytest.raises(LocalProtocolError, match=r"has other\.example\.com, not test\.example\.com"):
        await look(open_storage(bucket), TOPIC)
    await log.publish(bucket)
    with pytest.raises(LocalProtocolError, match="several topics"):
        await look(open_storage(bucket))
    assert [tree.partition("/")[0] for tree in (await look(open_storage(bucket), TOPIC)).trees] == [OURS]
    # Of a log that is followed, another log's publisher is a fault.
    place = await look(open_storage(bucket), TOPIC)
    assert (await look(open_storage(bucket), since=place)).faults[THEIRS].startswith("topic: other.example.com/")
    shutil.rmtree(bucket / THEIRS)
    (bucket / OURS / "head").write_bytes(b"nothing\n")
    with pytest.raises(DamagedBucket, match=f"{OURS}/head"):
        await look(open_storage(bucket))
    (bucket / OURS / "head").unlink()
    (bucket / OURS / "head").mkdir()
    with pytest.raises(BucketError, match="no plain file"):
        await look(open_storage(bucket))


@pytest.mark.parametrize(
    "record",
    [{"trees": []}, {"topic": None, "trees": {"a": [1]}, "faults": {}}, {"topic": None, "trees": {"a": [1, 2, "?", None]}, "faults": {}}],
)
def test_what_is_no_place_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        BucketPlace.from_json(record)


async def test_a_bucket_is_an_arrow_table_for_duckdb_and_polars(log: GossipLog, theirs: GossipLog, bucket: Path) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    await log.publish(bucket)
    await theirs.sync(bucket)
    columns = ["id", "author", "payload", "seq", "place", "fault"]

    def ask(query: Callable[[Any], Any]) -> Any:
        return query(bucket_to_arrow(bucket, columns))

    def sql(entries: Any) -> Any:
        return duckdb.sql("SELECT author, count(*) FROM entries GROUP BY author ORDER BY 2").fetchall()

    counted = await trio.to_thread.run_sync(ask, sql)
    assert counted == [(SIGNERS[1].did, 20), (SIGNERS[0].did, 700)]
    table = await trio.to_thread.run_sync(ask, lambda entries: polars.DataFrame(entries))
    assert table["id"].n_unique() == 720
    assert table["place"][0] == f"{THEIRS}/1 seq 1"
    with pytest.raises(LocalProtocolError, match="'nothing' is none of"):
        bucket_to_arrow(bucket, ["nothing"])


async def test_keys_that_are_wanted_are_found_by_what_values_say(log: GossipLog, bucket: Path) -> None:
    await log.publish(bucket)
    heads = await log.heads()
    storage = open_storage(bucket)
    (extent,) = extents(BucketPlace(), await look(storage))

    def read() -> list[Any]:
        return [
            row for page in read_pages(storage, extent, has_key=lambda key: gossiplog.entry.encode_id(key) in heads) for row in page.rows()
        ]

    assert [(row.seq, row.place) for row in await trio.to_thread.run_sync(read)] == [(700, f"{OURS}/1 seq 700")]


async def test_verify_and_export_read_a_bucket(log: GossipLog, theirs: GossipLog, bucket: Path, tmp_path: Path) -> None:
    await log.publish(bucket)
    await theirs.sync(bucket)

    async def ran(*arguments: object, code: int = 0) -> Any:
        run = partial(CliRunner().invoke, root, [*map(str, arguments), "--json"], prog_name="gossiplog")
        result = await trio.to_thread.run_sync(run)
        assert result.exit_code == code, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    verdicts = await ran("verify", bucket, "--jobs", 1)
    assert (len(verdicts), all(verdict["accepted"] for verdict in verdicts)) == (720, True)
    out = tmp_path / "out.parquet"
    assert (await ran("export", bucket, "-o", out, "--columns", "id,payload"))[0]["count"] == 720
    assert pyarrow.parquet.read_table(out).column_names == ["id", "payload"]
    await ran("export", bucket, "-o", tmp_path / "out.car", code=1)
    # Without its last tail the publisher's own entries are missing, and named.
    (bucket / THEIRS / "1" / "values" / "000.p" / "720").unlink()
    failed = [verdict for verdict in await ran("verify", bucket, code=5) if not verdict["accepted"]]
    assert ["values/000.p/720 is missing" in verdict["reason"] for verdict in failed] == [True]
    assert (await ran("export", bucket, "-o", out, code=3))[0]["count"] == 0
