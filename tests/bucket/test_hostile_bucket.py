"""Buckets that are damaged, that lie, or that were made to harm: nothing wrong is accepted, each thing is named, the rest is taken."""

import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import trio
from log_support import SIGNERS, TOPIC, make

import gossiplog
from gossiplog.bucket import Taken, look, open_storage
from gossiplog.bucket.kept import Kept, TakenState
from gossiplog.bucket.scan import BucketPlace, extent_leaves, extents
from gossiplog.entry import Entry
from gossiplog.errors import BucketError
from gossiplog.gossip_log import GossipLog
from gossiplog.tlog.growth import Growth
from gossiplog.tlog.note import Checkpoint, Note, NoteSignature, Origin, publisher_of, signed_checkpoint
from gossiplog.tlog.tiles import edge_root, edge_tiles

OURS, THEIRS = publisher_of(SIGNERS[0]), publisher_of(SIGNERS[1])


def objects(bucket: Path) -> list[Path]:
    return sorted(path for path in bucket.rglob("*") if path.is_file() and path.name != "lock")


async def take(bucket: Path, location: str | Path = ":memory:") -> tuple[Taken, int]:
    async with gossiplog.open(location, topic=TOPIC, durability="off") as log:
        return (await log.sync(bucket)).taken, await log.count()


def write_tree(bucket: Path, entries: list[Entry], *, signer: int = 1, generation: int = 1) -> Path:
    """Publish as somebody does who is no log, and may be a liar."""
    growth = Growth()
    growth.add({entry.value: (entry.key, entry.value) for entry in entries}.values())
    folder = bucket / publisher_of(SIGNERS[signer]) / str(generation)
    for path, data in growth.full() + growth.partial():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    origin = Origin(TOPIC, publisher_of(SIGNERS[signer]), generation)
    note = signed_checkpoint(Checkpoint(origin, growth.size, growth.root), SIGNERS[signer])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "checkpoint").write_bytes(note.to_bytes())
    (folder.parent / "head").write_bytes(note.to_bytes())
    return folder


def damages(data: bytes, random: Random) -> Iterator[bytes]:
    flipped = bytearray(data)
    flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
    yield bytes(flipped)
    yield data[: random.randrange(len(data))]
    yield data + b"\0"
    yield bytes(len(data))


async def test_no_damage_to_an_object_is_accepted_and_each_is_named(log: GossipLog, bucket: Path) -> None:
    await log.publish(bucket)
    values = {entry.value async for entry in log.iterate()}
    random = Random(1)
    # A reader needs no bundles and no full tiles at level 0, nor the checkpoint beside its copy, `head`.
    read = [path for path in objects(bucket) if "entries" not in path.parts and path.name not in ("000", "001", "checkpoint")]
    assert len(read) == 4
    for path in read:
        data = path.read_bytes()
        for damaged in [*(each for _ in range(15) for each in damages(data, random)), None]:
            path.unlink() if damaged is None else path.write_bytes(damaged)
            async with gossiplog.open(":memory:", topic=TOPIC) as theirs:
                taken = (await theirs.sync(bucket)).taken
                assert {entry.value async for entry in theirs.iterate()} <= values
                (report,) = taken.publishers
                name = "head" if path.name == "head" else str(path.relative_to(bucket / OURS))
                if damaged is None and path.name == "head":
                    assert (await theirs.count(), report.size) == (0, 0), "nobody has seen that it has published"
                elif await theirs.count() < 700 or not report.is_complete:
                    assert name.removeprefix("1/") in report.faults[0].reason
                    assert not report.is_complete
        path.write_bytes(data)
    assert (await take(bucket))[1] == 700


async def test_objects_in_each_others_place_are_not_accepted(bucket: Path) -> None:
    write_tree(bucket, [make(n) for n in range(600)])
    folder = bucket / THEIRS / "1"
    write_tree(bucket / "other", [make(-n) for n in range(1, 601)])
    other = bucket / "other" / THEIRS / "1"
    for name in ("tile/0/002.p/88", "tile/1/000.p/2", "values/000.p/600"):
        before = (folder / name).read_bytes()
        shutil.copy(other / name, folder / name)
        taken, count = await take(bucket)
        assert (count, [fault.kind for fault in taken.faults]) == (0, ["damaged"])
        (folder / name).write_bytes(before)
    assert (await take(bucket))[1] == 600


async def test_segments_that_were_swapped_are_named_by_all_who_prove(bucket: Path) -> None:
    write_tree(bucket, [make(n) for n in range(8_300)])
    values = bucket / THEIRS / "1" / "values"
    (values / "000").rename(values / "x")
    (values / "001").rename(values / "000")
    (values / "x").rename(values / "001")
    taken, count = await take(bucket)
    assert (count, {fault.kind for fault in taken.faults}) == (108, {"damaged"})
    storage = open_storage(bucket)
    found = [leaves for part in extents(BucketPlace(), await look(storage)) async for leaves in extent_leaves(storage, part, proves=True)]
    assert sum(len(leaves.numbers) for leaves in found if leaves.fault is None) == 108
    for reasons in ({fault.reason for fault in taken.faults}, {str(leaves.fault) for leaves in found if leaves.fault}):
        assert {reason.partition("/values/")[2] for reason in reasons} == {
            f"00{number}: not the VALUE that the publisher's tree has here" for number in range(2)
        }


async def test_what_is_missing_is_taken_later_and_the_rest_now(bucket: Path, tmp_path: Path) -> None:
    write_tree(bucket, [make(n) for n in range(8_300)])
    segment = bucket / THEIRS / "1" / "values" / "001"
    before = segment.read_bytes()
    segment.unlink()
    taken, count = await take(bucket, tmp_path / "ours.db")
    assert (count, [fault.kind for fault in taken.faults]) == (8_300 - 4_096, ["missing"])
    assert "values/001" in taken.faults[0].reason
    segment.write_bytes(before)
    taken, count = await take(bucket, tmp_path / "ours.db")
    assert (count, taken.faults, taken.publishers[0].known) == (8_300, [], 108)


async def test_a_bucket_that_went_back_is_named(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    await log.publish(bucket)
    shutil.copytree(bucket, tmp_path / "older")
    await log.append("more")
    await log.publish(bucket)
    await take(bucket, tmp_path / "theirs.db")
    shutil.rmtree(bucket)
    (tmp_path / "older").rename(bucket)
    taken, count = await take(bucket, tmp_path / "theirs.db")
    (fault,) = taken.faults
    assert (fault.kind, count) == ("rolled-back", 701)
    assert "went back to 700 entries" in fault.reason
    assert "after 701" in fault.reason
    sizes = [Path(path).read_text().split("\n")[1] for path in fault.evidence]
    assert sizes == ["701", "700"]
    # The publisher mends it, from what it remembers to have signed.
    published = await log.publish(bucket)
    assert (published.size, published.added) == (701, 1)
    assert (await take(bucket, tmp_path / "theirs.db"))[0].faults == []


async def test_a_publisher_that_tells_two_stories_is_named_and_what_is_valid_is_taken(bucket: Path, tmp_path: Path) -> None:
    one, other = [make(n) for n in range(300)], [make(-n) for n in range(1, 321)]
    write_tree(bucket, one)
    await take(bucket, tmp_path / "ours.db")
    shutil.rmtree(bucket)
    for entries in (other, other[:300]):
        write_tree(bucket, entries)
        taken, count = await take(bucket, tmp_path / "ours.db")
        assert count == 620
        assert taken.faults[0].kind == ("forked" if entries is other else "rolled-back")
        assert len({Path(path).read_bytes() for path in taken.faults[0].evidence}) == 2


async def test_a_fork_shows_across_places(bucket: Path, tmp_path: Path) -> None:
    write_tree(bucket, [make(n) for n in range(10)])
    write_tree(tmp_path / "mirror", [make(n) for n in range(1, 20)])
    await take(bucket, tmp_path / "ours.db")
    taken, _ = await take(tmp_path / "mirror", tmp_path / "ours.db")
    assert [fault.kind for fault in taken.faults] == ["forked"]


async def test_entries_that_are_forged_are_refused_though_a_publisher_signed_the_tree(bucket: Path) -> None:
    good, victim = make("good"), make("victim")
    forged = Entry.stored(victim.value.replace(victim.signature.signature, good.signature.signature))
    orphan = make("orphan", [make("nobody has this")])
    foreign = make("foreign", topic="other.example.com")
    write_tree(bucket, [good, forged, orphan, foreign])
    taken, count = await take(bucket)
    (report,) = taken.publishers
    assert (count, report.entries, report.rejected, report.left_out) == (1, 1, 2, 1)
    assert [id for id, _ in report.refused] == [forged.id, orphan.id, foreign.id]


async def test_bytes_that_are_no_entry_cost_themselves_alone(bucket: Path) -> None:
    entries = [make(n) for n in range(600)]
    entries[300] = Entry(entries[300].key, b"no entry")
    write_tree(bucket, entries)
    taken, count = await take(bucket)
    assert count == 599
    assert [fault.kind for fault in taken.faults] == ["damaged"]


def claim(bucket: Path, size: int) -> None:
    """Sign a tree of any size: its right edge is there, and of the rest nothing."""
    edge = [(tile, bytes([tile.level]) * 32 * tile.width) for tile in edge_tiles(size)]
    root = edge_root([(tile.level, [data[:32]] * tile.width) for tile, data in edge])
    note = signed_checkpoint(Checkpoint(Origin(TOPIC, THEIRS, 1), size, root), SIGNERS[1]).to_bytes()
    for path, data in [*((f"1/{tile.path}", data) for tile, data in edge), ("1/checkpoint", note), ("head", note)]:
        (bucket / THEIRS / path).parent.mkdir(parents=True, exist_ok=True)
        (bucket / THEIRS / path).write_bytes(data)


async def test_a_checkpoint_that_claims_any_number_of_entries_costs_few_reads(log: GossipLog, bucket: Path) -> None:
    await log.publish(bucket)
    claim(bucket, 2**53 - 1)
    with trio.fail_after(60):
        taken, count = await take(bucket)
        (theirs,) = (each for each in taken.publishers if each.size > 700)
        assert (count, theirs.size, theirs.is_complete) == (700, 2**53 - 1, False)
        assert {fault.kind for fault in theirs.faults} == {"missing"}
        assert theirs.faults[-1].reason.endswith(f"leaves {64 * 4096:,} to {2**53 - 2:,} are left for later")
        # A scan is cut into parts of any size, each of which ends in the same way.
        storage = open_storage(bucket)
        parts = extents(BucketPlace(), await look(storage))
        assert sum(part.high - part.low for part in parts) == 2**53 - 1 + 700
        assert len(parts) < 200_000
        (ours,) = (part for part in parts if part.tree.startswith(OURS))
        for part, good in ((parts[1], 0), (ours, 700)):
            for proves in (False, True):
                found = [each async for each in extent_leaves(storage, part, proves=proves)]
                assert sum(len(each.numbers) for each in found if each.fault is None) == good
                assert 1 <= sum(each.fault is not None for each in found) <= 66
        # Whoever is first in the alphabet, what others have is proved.
        assert len(await log.prove((await log.heads())[0], bucket)) > 300


@pytest.mark.parametrize("size", [2**53, 2**63 - 1, 2**63, 10**30])
async def test_a_checkpoint_beyond_the_largest_size_is_refused(bucket: Path, size: int) -> None:
    write_tree(bucket, [make("theirs")])
    text = Checkpoint(Origin(TOPIC, THEIRS, 1), size, bytes(32)).to_text()
    key = Origin(TOPIC, THEIRS, 1).key
    note = Note(text, (NoteSignature(key.name, key.key_id, SIGNERS[1].sign(text.encode())),)).to_bytes()
    (bucket / THEIRS / "head").write_bytes(note)
    taken, count = await take(bucket)
    assert (count, [fault.kind for fault in taken.faults]) == (0, ["damaged"])


async def test_a_checkpoint_in_anothers_folder_is_refused(bucket: Path) -> None:
    write_tree(bucket, [make("theirs")])
    (bucket / THEIRS).rename(bucket / OURS)
    taken, count = await take(bucket)
    assert (count, [fault.kind for fault in taken.faults]) == (0, ["damaged"])
    assert "a checkpoint of" in taken.faults[0].reason


async def test_a_log_of_another_topic_is_named(log: GossipLog, bucket: Path) -> None:
    await log.publish(bucket)
    async with gossiplog.open(":memory:", topic="other.example.com") as other:
        taken = (await other.sync(bucket)).taken
    assert [fault.kind for fault in taken.faults] == ["topic"]


async def test_a_frame_that_grows_beyond_what_its_index_says_is_refused(bucket: Path) -> None:
    folder = write_tree(bucket, [make("bomb")])
    segment = folder / "values" / "000.p" / "1"
    data = segment.read_bytes()
    size = data[-20:-16]
    bomb = zlib.compress(bytes(1 << 24), 9)
    segment.write_bytes(b"GLVALUE1" + bomb + len(bomb).to_bytes(4) + (1).to_bytes(4) + size + data[-16:])
    taken, count = await take(bucket)
    assert (count, [fault.kind for fault in taken.faults]) == (0, ["damaged"])
    assert "does not hold" in taken.faults[0].reason


@pytest.mark.parametrize("name", ["head", "1/tile/0/000.p/1", "1/values/000.p/1"])
async def test_what_is_no_plain_file_is_not_read(bucket: Path, name: str) -> None:
    write_tree(bucket, [make("theirs")])
    (bucket / THEIRS / name).unlink()
    os.mkfifo(bucket / THEIRS / name)
    taken, count = await take(bucket)
    assert (count, [fault.kind for fault in taken.faults]) == (0, ["unreadable"])
    assert "is no plain file" in taken.faults[0].reason


async def test_an_object_of_any_size_is_not_read_beyond_what_it_may_have(bucket: Path) -> None:
    folder = write_tree(bucket, [make("theirs")])
    for name in ("head", "1/tile/0/000.p/1"):
        path = folder.parent / name
        before = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(1 << 40)
        taken, count = await take(bucket)
        assert (count, [fault.kind for fault in taken.faults]) == (0, ["unreadable"])
        path.write_bytes(before)


async def test_one_publisher_that_is_damaged_keeps_nobody_else_out(log: GossipLog, bucket: Path) -> None:
    await log.publish(bucket)
    write_tree(bucket, [make("theirs")])
    (bucket / OURS / "head").write_bytes(b"damaged")
    (bucket / "notes.txt").write_text("of somebody else")
    (bucket / "z6MkNotAPublisher").mkdir()
    for name in ("loop", publisher_of(SIGNERS[2])):
        (bucket / name).symlink_to(name)
    taken, count = await take(bucket)
    assert (count, [fault.kind for fault in taken.faults]) == (1, ["damaged"])


async def test_a_drafts_folder_that_is_a_link_costs_nobody_a_file(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("mine")
    (bucket / OURS).mkdir(parents=True)
    (bucket / OURS / "drafts").symlink_to(tmp_path / "mine")
    await log.publish(bucket)
    assert (tmp_path / "mine" / "precious").read_text() == "mine"


async def test_after_a_fork_nothing_of_either_tree_is_passed_over(bucket: Path, tmp_path: Path) -> None:
    one, other = [make(n) for n in range(400)], [make(-n) for n in range(1, 321)]
    counts = []
    for entries in (one[:300], other, one):
        shutil.rmtree(bucket, ignore_errors=True)
        write_tree(bucket, entries)
        counts.append((await take(bucket, tmp_path / "ours.db"))[1])
    assert counts == [300, 620, 720]


@pytest.mark.parametrize(
    "data",
    [None, b"", b"[1]", b"{}", b'{"url": "u", "publishers": []}', b'{"publishers": {"z6Mk": 1}, "log": 1, "steps": [1]}', b"[" * 100_000],
    ids=["pipe", "empty", "list", "nothing", "no-publishers", "no-record", "deep"],
)
async def test_what_is_kept_beside_a_log_and_is_damaged_is_named(log: GossipLog, bucket: Path, data: bytes | None) -> None:
    await log.publish(bucket)
    kept = Kept.beside(log)
    assert kept.folder is not None
    for path in kept.folder.glob("*.json"):
        path.unlink()
        if data is None:
            os.mkfifo(path)
        else:
            path.write_bytes(data)
    with pytest.raises(BucketError, match=r"is damaged|is no plain file"):
        await log.sync(bucket)
    with pytest.raises(BucketError, match=r"is damaged|is no plain file"):
        await log.publish(bucket)


def test_what_is_kept_of_as_many_publishers_as_are_read_is_read_again(tmp_path: Path) -> None:
    state = TakenState(Checkpoint(Origin("t" * 128, OURS, 1), 2**53, bytes(32)), 2**53)
    taken = {f"{number:048}": state for number in range(10_000)}
    Kept(tmp_path).keep_taken("place", taken)
    assert Kept(tmp_path).taken("place") == taken
