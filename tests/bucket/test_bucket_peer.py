"""A bucket as one more peer: what arrives goes out and what others publish comes in, and whatever fails there stops nothing else."""

import json
import logging
import os
import shutil
import signal
import urllib.request
from pathlib import Path

import pytest
import trio
from log_support import SIGNERS, TOPIC
from network_support import eventually, fetch
from served_process import serving

import gossiplog
from gossiplog import blocking
from gossiplog.entry import Ed25519Signer
from gossiplog.errors import LocalProtocolError
from gossiplog.gossip_log import GossipLog
from gossiplog.tlog.note import parse_checkpoint, publisher_of

OURS = publisher_of(SIGNERS[0])


def size_in(bucket: Path, publisher: str = OURS) -> int:
    head = bucket / publisher / "head"
    return parse_checkpoint(head.read_bytes())[1].size if head.exists() else 0


async def test_what_is_new_goes_out_and_what_others_publish_comes_in(log: GossipLog, bucket: Path, tmp_path: Path) -> None:
    async with (
        gossiplog.open(tmp_path / "theirs.db", topic=TOPIC, signer=SIGNERS[1], durability="off") as theirs,
        log.keep_synced(bucket, every_s=0.1) as peer,
        theirs.keep_synced(bucket, every_s=0.1),
    ):
        await eventually(lambda: size_in(bucket) == 700)
        await theirs.append("from there")
        await log.append("from here")
        await eventually(lambda: size_in(bucket, publisher_of(SIGNERS[1])) == 702 and peer.published == 702)
        assert await log.root() == await theirs.root()
        assert (peer.error, peer.failures, peer.taken, peer.published) == (None, 0, 1, 702)
        await log.append("and the last")
    assert size_in(bucket) == 703, "at the end what is new goes out"


async def test_a_bucket_that_is_away_and_comes_back(
    log: GossipLog, bucket: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossiplog.bucket.peer.PAUSE_MAX_S", 0.2)
    caplog.set_level(logging.INFO, "gossiplog")
    bucket.write_text("a file where a folder should be")
    with pytest.raises(LocalProtocolError):
        async with log.keep_synced(bucket):
            pass
    bucket.unlink()
    async with log.keep_synced(bucket, every_s=0.02) as peer:
        await eventually(lambda: peer.published == 700)
        shutil.move(bucket, bucket.with_name("away"))
        bucket.write_text("the disk is gone")
        await log.append("meanwhile")
        await eventually(lambda: peer.failures > 8)
        assert peer.error is not None
        bucket.unlink()
        shutil.move(bucket.with_name("away"), bucket)
        await eventually(lambda: peer.published == 701)
        assert peer.error is None
    told = [record.event for record in caplog.records if record.name == "gossiplog.net"]
    assert told == ["bucket away", "bucket back"], "once each, not at every attempt"


async def test_a_fault_of_ours_in_the_exchange_ends_nothing(log: GossipLog, bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*args: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("gossiplog.bucket.peer.exchange", fail)
    async with log.keep_synced(bucket, every_s=0.05) as peer:
        await eventually(lambda: peer.failures >= 1)
        assert peer.error == "RuntimeError: a fault"
        await log.append("still here")


async def test_what_is_wrong_in_the_bucket_is_told_once_and_the_rest_goes_on(
    log: GossipLog, bucket: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await log.publish(bucket)
    (bucket / OURS / "1" / "values" / "000.p" / "700").write_bytes(b"damaged")
    caplog.set_level(logging.INFO, "gossiplog")
    async with gossiplog.open(tmp_path / "theirs.db", topic=TOPIC, signer=SIGNERS[1], durability="off") as theirs:
        await theirs.append("theirs")
        async with theirs.keep_synced(bucket, every_s=0.05) as peer:
            await eventually(lambda: peer.exchanged_at > 0 and len(peer.faults) == 1)
            before = peer.exchanged_at
            await eventually(lambda: peer.exchanged_at > before)
            assert size_in(bucket, publisher_of(SIGNERS[1])) == 1
    told = [record.event for record in caplog.records if record.name == "gossiplog.net"]
    assert told == ["bucket fault"]


async def test_a_block_that_is_cancelled_publishes_what_is_new(log: GossipLog, bucket: Path) -> None:
    with trio.CancelScope() as scope:
        async with log.keep_synced(bucket, every_s=60) as peer:
            await eventually(lambda: peer.published == 700)
            await log.append("the last")
            scope.cancel()
            await trio.sleep_forever()
    assert size_in(bucket) == 701


async def test_the_server_tells_how_its_bucket_stands_and_is_ready_without_it(log: GossipLog, bucket: Path) -> None:
    async with log.keep_synced(bucket, every_s=0.1) as peer, log.listen("127.0.0.1:0") as hub:
        await eventually(lambda: peer.published == 700)
        said = (await fetch(hub, "/metrics")).body.decode()
        labels = f'{{bucket="{bucket}",topic="{TOPIC}"}}'
        assert f"gossiplog_bucket_up{labels} 1.0" in said
        assert f"gossiplog_bucket_published_entries{labels} 700.0" in said
        shutil.rmtree(bucket)
        bucket.write_text("gone")
        await eventually(lambda: peer.error is not None)
        said = (await fetch(hub, "/metrics")).body.decode()
        assert f"gossiplog_bucket_up{labels} 0.0" in said
        assert f"gossiplog_bucket_failures_total{labels}" in said
        assert (await fetch(hub, "/readyz")).status == 200


def test_in_asyncio_and_plain_python_it_is_the_same(bucket: Path, tmp_path: Path) -> None:
    with blocking.open(tmp_path / "a.db", topic=TOPIC, signer=SIGNERS[0]) as log:
        log.append("a")
        with log.keep_synced(bucket, every_s=0.1) as peer:
            assert peer.url == str(bucket)
    assert size_in(bucket) == 1


def test_serve_publishes_what_is_posted_and_takes_what_others_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gossiplog.keyring import Keyring

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    bucket, signer = tmp_path / "bucket", Ed25519Signer.generate()
    Keyring.from_environment().add("server", signer)
    ours = publisher_of(signer)
    options = ("--publish", str(bucket), "--publish-every", "0.3", "--key", "server")
    with serving(tmp_path, "served", "bucket.example.com", *options) as served:
        served.post({"first": 1})
        with blocking.open(tmp_path / "other.db", topic="bucket.example.com", signer=SIGNERS[1]) as other:
            entry = other.append({"by": "another publisher"})
            other.publish(bucket)
        for _ in range(200):
            if size_in(bucket, ours) == 2 and served.has(entry):
                break
            trio.run(trio.sleep, 0.1)
        assert served.has(entry)
        os.kill(served.process.pid, signal.SIGHUP)
        last = served.post({"just": "before the end"})
        assert json.loads(urllib.request.urlopen(served.url.replace("ws://", "http://") + "/").read())["topics"]
    assert size_in(bucket, ours) == 3, "a server that ends publishes what it has"
    with blocking.open(":memory:", topic="bucket.example.com") as reader:
        reader.sync(bucket)
        assert reader.get(last.id) is not None
