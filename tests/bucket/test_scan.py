"""Reading a bucket without a log: ranges of leaves, each entry once, and what is said of what is missing or damaged."""

from pathlib import Path

from log_support import SIGNERS

from gossiplog.bucket import open_storage
from gossiplog.bucket.reading import read_segment
from gossiplog.gossip_log import GossipLog
from gossiplog.tlog import publisher_of

OURS = publisher_of(SIGNERS[0])


async def test_a_tail_that_has_grown_and_was_removed_is_read_from_the_longer_one(log: GossipLog, bucket: Path) -> None:
    await log.publish(bucket)
    before = [values async for _, values in read_segment(open_storage(bucket), f"{OURS}/1", 0, 700)]
    for _ in range(3):
        await log.append({"more": True})
        await log.publish(bucket)
    assert sorted(path.name for path in (bucket / OURS / "1" / "values" / "000.p").iterdir()) == ["702", "703"]
    assert [values async for _, values in read_segment(open_storage(bucket), f"{OURS}/1", 0, 700)] == before
