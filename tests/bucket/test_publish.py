"""Publishing into a folder, and what others take from it."""

import os
from pathlib import Path
from random import Random

import pytest
from log_support import SIGNERS, TOPIC, assert_whole, make

import gossiplog
from gossiplog.bucket.folder import Folder
from gossiplog.bucket.kept import Kept
from gossiplog.errors import BucketError, LocalProtocolError, LogBusy
from gossiplog.gossip_log import GossipLog, clone
from gossiplog.tlog.note import parse_checkpoint, publisher_of

OURS = publisher_of(SIGNERS[0])


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


async def test_a_clone_has_what_was_published(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    published = await log.publish(bucket)
    assert (published.size, published.added, published.origin) == (700, 700, f"{TOPIC}/{OURS}/1")
    report = await clone(bucket, tmp_path / "theirs.db")
    assert [(each.size, each.entries, each.is_complete, each.faults) for each in report.publishers] == [(700, 700, True, [])]
    async with gossiplog.open(tmp_path / "theirs.db") as theirs:
        assert await theirs.root() == await log.root()
        await assert_whole(theirs)


async def test_the_layout_is_that_of_the_specification(log: GossipLog, bucket: Path) -> None:
    await log.publish(bucket)
    assert sorted(files(bucket / OURS)) == [
        "1/checkpoint",
        "1/tile/0/000",
        "1/tile/0/001",
        "1/tile/0/002.p/188",
        "1/tile/1/000.p/2",
        "1/tile/entries/000",
        "1/tile/entries/001",
        "1/tile/entries/002.p/188",
        "1/values/000.p/700",
        "head",
    ]
    assert (bucket / OURS / "head").read_bytes() == (bucket / OURS / "1" / "checkpoint").read_bytes()
    _, checkpoint = parse_checkpoint((bucket / OURS / "head").read_bytes())
    assert checkpoint.log_root is not None
    assert (checkpoint.log_root.level, checkpoint.log_root.hash) == ((await log.root()).level, (await log.root()).hash)


async def test_publishing_again_writes_only_what_is_new(log: GossipLog, bucket: Path) -> None:
    await log.publish(bucket)
    before = files(bucket)
    assert (await log.publish(bucket)).objects == 0
    assert files(bucket) == before
    await log.append({"n": 700})
    published = await log.publish(bucket)
    # The tail's four partial objects and the checkpoint.
    assert (published.added, published.objects) == (1, 5)
    after = files(bucket)
    full = [name for name in before if ".p/" not in name and "checkpoint" not in name and "head" not in name]
    assert {name: after[name] for name in full} == {name: before[name] for name in full}


async def test_partial_objects_go_once_they_are_full(log: GossipLog, bucket: Path) -> None:
    await log.publish(bucket)
    await log.append({"n": 700})
    await log.publish(bucket)
    names = [name for name in files(bucket / OURS / "1") if ".p/" in name]
    assert "values/000.p/700" in names, "who read the older checkpoint may still want it"
    await log.append_many([{"n": n} for n in range(701, 768)])
    await log.publish(bucket)
    assert sorted(name for name in files(bucket / OURS / "1") if ".p/" in name) == [
        "tile/1/000.p/2",
        "tile/1/000.p/3",
        "values/000.p/701",
        "values/000.p/768",
    ]


async def test_a_segment_is_sealed_at_4096_and_its_tails_go(bucket: Path, tmp_path: Path) -> None:
    async with gossiplog.open(tmp_path / "ours.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.append_many([{"n": n} for n in range(4_000)])
        await log.publish(bucket)
        await log.append_many([{"n": n} for n in range(4_000, 4_200)])
        await log.publish(bucket)
        assert sorted(name for name in files(bucket / OURS / "1") if name.startswith("values")) == ["values/000", "values/001.p/104"]
        await clone(bucket, tmp_path / "theirs.db")
        async with gossiplog.open(tmp_path / "theirs.db") as theirs:
            assert await theirs.root() == await log.root()


async def test_two_writers_meet_in_a_folder(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    async with gossiplog.open(tmp_path / "theirs.db", topic=TOPIC, signer=SIGNERS[1], durability="off") as theirs:
        await theirs.append({"from": "them"})
        await log.sync(bucket)
        done = await theirs.sync(bucket)
        assert (done.taken.entries, done.published and done.published.size) == (700, 701)
        done = await log.sync(bucket)
        assert done.taken.entries == 1
        assert await log.root() == await theirs.root()
        done = await theirs.sync(bucket)
        assert (done.taken.entries, done.taken.faults, done.published and done.published.objects) == (0, [], 0)


async def test_a_poll_that_finds_nothing_reads_one_object_a_publisher(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    await log.publish(bucket)
    await clone(bucket, tmp_path / "theirs.db")
    for path in (bucket / OURS / "1").rglob("*"):
        if path.is_file():
            path.unlink()
    async with gossiplog.open(tmp_path / "theirs.db", topic=TOPIC) as theirs:
        done = await theirs.sync(bucket)
        assert done.published is None
        assert [(each.is_complete, each.faults) for each in done.taken.publishers] == [(True, [])]


async def test_a_log_in_memory_publishes_and_takes(bucket: Path) -> None:
    async with gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[0]) as log:
        await log.append("hello")
        await log.publish(bucket)
        await log.append("again")
        assert (await log.publish(bucket)).added == 1
    async with gossiplog.open(":memory:", topic=TOPIC) as theirs:
        assert (await theirs.sync(bucket)).taken.entries == 2


async def test_an_empty_log_is_published_as_such(bucket: Path, tmp_path: Path) -> None:
    async with gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[0]) as log:
        assert (await log.publish(bucket)).size == 0
        assert (await log.publish(bucket)).objects == 0
    report = await clone(bucket, tmp_path / "theirs.db")
    assert [(each.size, each.is_complete) for each in report.publishers] == [(0, True)]


async def test_what_is_lost_or_damaged_is_written_again(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    await log.publish(bucket)
    before = files(bucket)
    (bucket / OURS / "1" / "tile" / "0" / "000").unlink()
    (bucket / OURS / "1" / "values" / "000.p" / "700").write_bytes(b"damaged")
    published = await log.publish(bucket, again=True)
    assert (published.size, published.added) == (700, 0)
    assert files(bucket) == before
    # Without being told to, where it is noticed.
    (bucket / OURS / "1" / "values" / "000.p" / "700").write_bytes(b"damaged")
    await log.append("more")
    assert (await log.publish(bucket)).added == 1
    report = await clone(bucket, tmp_path / "theirs.db")
    assert report.entries == 701
    assert report.faults == []


async def test_a_second_place_gets_the_same_tree(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    await log.publish(bucket)
    await log.append("more")
    await log.publish(tmp_path / "second")
    await log.append("still more")
    for place in (bucket, tmp_path / "second"):
        await log.publish(place)
    assert (bucket / OURS / "head").read_bytes() == (tmp_path / "second" / OURS / "head").read_bytes()


async def test_another_log_of_the_same_key_is_refused(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    await log.publish(bucket)
    before = files(bucket)
    async with gossiplog.open(tmp_path / "other.db", topic=TOPIC, signer=SIGNERS[0]) as other:
        await other.append("something else")
        with pytest.raises(BucketError, match="another log is published"):
            await other.publish(bucket)
    async with gossiplog.open(":memory:", topic="other.example.com", signer=SIGNERS[0]) as other:
        with pytest.raises(BucketError, match=r"this log's topic is other\.example\.com"):
            await other.publish(bucket)
    assert files(bucket) == before


async def test_a_log_that_forgot_goes_on_where_it_was(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    await log.publish(bucket)
    for path in (tmp_path / "ours.db-buckets").iterdir():
        path.unlink()
    assert (await log.publish(bucket)).added == 0
    await log.append("more")
    published = await log.publish(bucket)
    assert (published.size, published.origin.rpartition("/")[2]) == (701, "1")


async def test_a_log_put_back_to_an_older_state_begins_a_new_generation(bucket: Path, tmp_path: Path) -> None:
    entries = [make(n) for n in range(300)]
    async with gossiplog.open(tmp_path / "a.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.insert_many([entry.value for entry in entries])
        await log.publish(bucket)
        await clone(bucket, tmp_path / "theirs.db")
    (tmp_path / "a.db").unlink()
    async with gossiplog.open(tmp_path / "a.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.insert_many([entry.value for entry in reversed(entries)])
        await log.append("new")
        published = await log.publish(bucket)
        assert (published.size, published.origin.rpartition("/")[2]) == (301, "2")
    async with gossiplog.open(tmp_path / "theirs.db", topic=TOPIC) as theirs:
        done = await theirs.sync(bucket)
        assert (done.taken.entries, done.taken.faults) == (1, [])


async def test_one_process_publishes_at_a_time(log: GossipLog, bucket: Path) -> None:
    from gossiplog.bucket import open_storage

    async with open_storage(bucket).lock(OURS):
        with pytest.raises(LogBusy):
            await log.publish(bucket)
    await log.publish(bucket)


async def test_a_forked_process_does_not_keep_the_lock_of_its_parent(log: GossipLog, bucket: Path) -> None:
    ends = os.pipe()
    async with Folder(bucket).lock(OURS):
        child = os.fork()
        if not child:
            os.close(ends[1])
            os.read(ends[0], 1)
            os._exit(0)
    try:
        await log.publish(bucket)
    finally:
        os.close(ends[1])
        os.waitpid(child, 0)
        os.close(ends[0])


async def test_a_signer_is_needed_and_a_file_is_no_bucket(bucket: Path, tmp_path: Path) -> None:
    async with gossiplog.open(":memory:", topic=TOPIC) as log:
        with pytest.raises(LocalProtocolError):
            await log.publish(bucket)
    async with gossiplog.open(tmp_path / "x.db", topic=TOPIC, signer=SIGNERS[0]) as log:
        with pytest.raises(LocalProtocolError, match="is a file"):
            await log.publish(tmp_path / "x.db")
        with pytest.raises(LocalProtocolError, match="is no storage"):
            await log.publish("ftp://example.com/x")
    with pytest.raises(LocalProtocolError, match="nothing is published"):
        await clone(bucket, tmp_path / "theirs.db")
    assert not (tmp_path / "theirs.db").exists()


@pytest.mark.parametrize(
    "place",
    ["", b"", "s3://", "s3:///", "file:///", "https://", "x" * 300, f"{'x' * 300}/", "a\0b", "\ud800", "x.db/x"],
    ids=ascii,
)
async def test_a_place_that_names_no_bucket_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    async with gossiplog.open("x.db", topic=TOPIC, signer=SIGNERS[0]) as log:
        await log.append(1)
        before = sorted(tmp_path.rglob("*"))
        for use in (log.publish, log.sync, lambda place: clone(place, "theirs.db")):
            with pytest.raises(LocalProtocolError):
                await use(place)
        assert sorted(tmp_path.rglob("*")) == before


async def test_a_folder_whose_name_is_no_utf_8_is_a_bucket(tmp_path: Path) -> None:
    place = os.fsencode(tmp_path) + b"/\xff"
    async with gossiplog.open(tmp_path / "x.db", topic=TOPIC, signer=SIGNERS[0]) as log:
        await log.append(1)
        await log.sync(place)
        await log.prove((await log.heads())[0], place)
    await clone(place, tmp_path / "theirs.db")


async def test_a_segment_beyond_8_mib_is_read_frame_by_frame(bucket: Path, tmp_path: Path) -> None:
    noise = Random(1)
    async with gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[0], value_bytes_max=1 << 20) as log:
        for _ in range(24):
            await log.append(noise.randbytes(400_000))
        await log.publish(bucket)
        assert (bucket / OURS / "1" / "values" / "000.p" / "24").stat().st_size > 9_000_000
        report = await clone(bucket, tmp_path / "theirs.db")
        assert (report.entries, report.faults) == (24, [])


async def test_what_was_signed_is_kept_before_it_is_seen(log: GossipLog, bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gossiplog.bucket.folder import Folder

    async def fail(self: Folder, path: str, data: bytes, expected: bytes | None) -> bool:
        raise BucketError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "swap", fail)
        with pytest.raises(BucketError):
            await log.publish(bucket)
    signed = Kept.beside(log).signed(OURS)
    assert signed is not None
    await log.append("more")
    await log.publish(bucket)
    both = Kept.beside(log).signed(OURS)
    assert both is not None
    assert both.steps[0] == signed.steps[0], "the checkpoint that was signed is one that the tree passed through"
    assert [step.checkpoint.size for step in both.steps] == [700, 701]
