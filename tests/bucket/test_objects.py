"""Buckets in S3, on moto's server, and behind nginx for those who read."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from log_support import SIGNERS, TOPIC
from ports import free_port
from s3_support import wait_for

import gossiplog
from gossiplog.bucket import open_storage
from gossiplog.errors import BucketError, LocalProtocolError
from gossiplog.gossip_log import GossipLog, clone
from gossiplog.tlog.note import publisher_of

OURS = publisher_of(SIGNERS[0])


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL under which nginx serves it."""
    nginx = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed: `apt-get install nginx-light`")
    folder, port = tmp_path / "www", free_port()
    folder.mkdir()
    settings = tmp_path / "nginx.conf"
    settings.write_text(
        f"daemon off; pid {tmp_path}/nginx.pid; error_log {tmp_path}/error.log; worker_processes 1;\n"
        f"events {{}}\nhttp {{ access_log {tmp_path}/access.log; client_body_temp_path {tmp_path}/t1; proxy_temp_path {tmp_path}/t2;\n"
        f"fastcgi_temp_path {tmp_path}/t3; uwsgi_temp_path {tmp_path}/t4; scgi_temp_path {tmp_path}/t5;\n"
        f"server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
    # Its workers give up what root may do, and tmp_path is ours alone.
    user = ["-g", "user root;"] if os.geteuid() == 0 else []
    process = subprocess.Popen([nginx, "-e", str(tmp_path / "error.log"), "-c", str(settings), *user])
    wait_for(port)
    yield folder, f"http://127.0.0.1:{port}/app"
    process.terminate()
    process.wait()


async def test_a_log_goes_through_s3(log: GossipLog, s3: str, tmp_path: Path) -> None:
    assert (await log.publish(s3)).size == 700
    assert (await log.publish(s3)).objects == 0
    await log.append_many([{"n": n} for n in range(700, 800)])
    assert (await log.publish(s3)).added == 100
    report = await clone(s3, tmp_path / "theirs.db")
    assert (report.entries, report.faults) == (800, [])
    _, tails = await open_storage(s3).list(f"{OURS}/1/values/000.p")
    assert tails == ["700", "800"]
    _, partial = await open_storage(s3).list(f"{OURS}/1/tile/0/002.p")
    assert partial == [], "what is full now has no partial object left"


async def test_two_writers_meet_in_s3(log: GossipLog, s3: str, tmp_path: Path) -> None:
    async with gossiplog.open(tmp_path / "theirs.db", topic=TOPIC, signer=SIGNERS[1], durability="off") as theirs:
        await theirs.append({"from": "them"})
        await log.sync(s3)
        await theirs.sync(s3)
        await log.sync(s3)
        assert await log.root() == await theirs.root()
        entry = (await theirs.heads())[0]
        assert len(await log.prove(entry, s3)) > 300


async def test_two_logs_of_one_key_that_start_at_once_in_s3(s3: str, tmp_path: Path) -> None:
    done: list[GossipLog] = []
    async with (
        gossiplog.open(tmp_path / "a.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as one,
        gossiplog.open(tmp_path / "b.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as other,
    ):

        async def start(log: GossipLog, name: str) -> None:
            await log.append_many([{name: n} for n in range(300)])
            try:
                await log.publish(s3)
                done.append(log)
            except BucketError as error:
                assert "another log" in str(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(start, one, "one")
            nursery.start_soon(start, other, "other")
        assert len(done) == 1
        async with gossiplog.open(":memory:", topic=TOPIC) as reader:
            assert (await reader.sync(s3)).taken.faults == []
            assert await reader.root() == await done[0].root()


async def test_without_keys_the_metadata_address_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr("gossiplog.bucket.objects._FIRST_S", 0.2)
        with trio.fail_after(30), pytest.raises(BucketError, match=r"has not answered within 0\.2 s") as raised:
            await open_storage("s3://nope/app").list("")
        assert "AWS_ACCESS_KEY_ID" in (raised.value.hint or "")
        # The waiting thread is let go of.
        silent.accept()[0].close()


async def test_head_is_put_if_it_is_what_it_was(s3: str) -> None:
    storage = open_storage(s3)
    assert await storage.swap("x/head", b"one", None)
    assert not await storage.swap("x/head", b"two", None)
    assert not await storage.swap("x/head", b"two", b"other")
    assert await storage.swap("x/head", b"two", b"one")
    assert await storage.read("x/head", 0, 100) == (b"two", 3)
    assert await storage.read("x/head", 1, 1) == (b"w", 3)
    assert await storage.read("x/other", 0, 100) is None
    await storage.remove(["x/head", "x/never"])
    assert await storage.list("") == ([], [])


async def reads_logged(access_log: Path) -> int:
    """Count what nginx has served. It notes a request after the answer has gone."""
    before, now = -1, 0
    while before != now:
        await trio.sleep(0.1)
        before, now = now, access_log.read_text().count("GET")
    return now


@pytest.mark.slow
async def test_a_publisher_is_read_behind_a_web_server(log: GossipLog, web: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = web
    await log.publish(folder / "app")
    report = await clone(f"{url}/{OURS}", tmp_path / "theirs.db")
    assert (report.entries, report.faults) == (700, [])
    entry = (await log.heads())[0]
    async with gossiplog.open(tmp_path / "theirs.db") as theirs:
        assert len(await theirs.prove(entry, f"{url}/{OURS}")) > 300
        reads = await reads_logged(tmp_path / "access.log")
        assert (await theirs.sync(f"{url}/{OURS}")).taken.entries == 0
        assert await reads_logged(tmp_path / "access.log") - reads == 1, "a poll that finds nothing reads one object"
    (folder / "app" / OURS / "1" / "values" / "000.p" / "700").write_bytes(b"x")
    taken = await clone(f"{url}/{OURS}", ":memory:")
    assert [fault.kind for fault in taken.faults] == ["damaged"]


@pytest.mark.slow
async def test_what_cannot_be_done_says_so(log: GossipLog, web: tuple[Path, str], tmp_path: Path) -> None:
    _, url = web
    with pytest.raises(BucketError, match="does not list"):
        await clone(url, ":memory:")
    with pytest.raises(BucketError, match="not written to"):
        await log.publish(url)
    with pytest.raises(LocalProtocolError, match="no storage"):
        await log.publish("https://name:secret@example.com/app")
    with pytest.raises(BucketError, match=f"{OURS}/head"):
        await clone(f"http://127.0.0.1:1/app/{OURS}", tmp_path / "theirs.db", topic=TOPIC)
    assert not (tmp_path / "theirs.db").exists()


async def test_one_publisher_of_a_folder(log: GossipLog, bucket: Path) -> None:
    await log.publish(bucket)
    async with gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[1]) as theirs:
        await theirs.append("theirs")
        await theirs.publish(bucket)
    assert (await clone(bucket / OURS, ":memory:")).entries == 700


async def test_a_bucket_that_does_not_exist_is_named_in_the_stores_own_words(log: GossipLog, s3: str) -> None:
    nowhere = "s3://nobody-made-this/app"
    for action in (log.publish(nowhere), log.sync(nowhere)):
        with pytest.raises(BucketError, match=r"^s3://nobody-made-this/app/\S*: NoSuchBucket: The specified bucket does not exist$"):
            await action
