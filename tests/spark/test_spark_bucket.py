"""Buckets through Spark: tables, jobs, streams and incremental exports over several publishers, and what is wrong with a bucket."""

import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from log_support import SIGNERS, TOPIC, opened
from spark_support import Log, root_of

import gossiplog
from gossiplog.bucket import open_storage, publish, take
from gossiplog.cli.app import root
from gossiplog.cli.spark import session as cli_session
from gossiplog.spark.jobs.follow import follow
from gossiplog.spark.jobs.jobs import Job, diff_job, export_job, state_job, stats_job, tree_job, verify_job
from gossiplog.tlog.note import publisher_of
from gossiplog.tlog.segment import SegmentWriter

OURS, THEIRS = (publisher_of(signer) for signer in SIGNERS[:2])


def published(path: Path, bucket: Path, by: int, *payloads: object, takes: bool = False) -> list[bytes]:
    """Append to a log and publish it; return its VALUEs."""

    async def run() -> list[bytes]:
        async with opened(path, create=True, topic=TOPIC) as log:
            if takes:
                await take(log, open_storage(bucket))
            for payload in payloads:
                await log.append(payload, signer=SIGNERS[by])
            await publish(log, open_storage(bucket), SIGNERS[by])
            return [entry.value async for entry in log.iterate()]

    return trio.run(run)


@pytest.fixture
def ours(whole: Log, tmp_path: Path) -> Path:
    path = tmp_path / "ours.db"
    path.write_bytes(Path(whole.path).read_bytes())
    return path


@pytest.fixture
def bucket(ours: Path, tmp_path: Path) -> Path:
    """What two publishers have of the whole log; the second has some of its own."""
    place = tmp_path / "bucket"
    published(ours, place, 0)
    published(tmp_path / "theirs.db", place, 1, *[{"key": "theirs", "n": n} for n in range(20)], takes=True)
    return place


def load(spark: Any, path: Path | str, **options: Any) -> list[Any]:
    rows: list[Any] = spark.read.format("gossiplog").options(**options).load(str(path)).collect()
    return rows


def test_entries_of_several_publishers_are_rows_once(spark: Any, bucket: Path, whole: Log, tmp_path: Path) -> None:
    rows = load(spark, bucket, columns="key,value,seq,place,fault")
    assert len(rows) == len({bytes(row["key"]) for row in rows}) == 420
    assert {row["place"] for row in rows} >= {f"{THEIRS}/1 seq 1", f"{THEIRS}/1 seq 420"}
    assert not any(row["fault"] for row in rows)
    alone = load(spark, bucket / OURS, columns="value,seq", minSeq=100, maxSeq=300, prove="true")
    assert [bytes(row["value"]) for row in alone] == [entry.value for entry in whole.entries[99:300]]
    assert [row["seq"] for row in alone] == list(range(100, 301))
    chosen = [whole.entries[7].id, whole.entries[300].id]
    assert sorted(row["id"] for row in load(spark, bucket, columns="id", ids=",".join(chosen))) == sorted(chosen)
    with pytest.raises(Exception, match=r"option prove: .* is no bucket"):
        load(spark, whole.path, prove="true")
    with pytest.raises(Exception, match="only `gossiplog publish` writes there"):
        spark.read.format("gossiplog").load(whole.path).write.format("gossiplog").mode("append").save(str(bucket))


def test_jobs_say_of_a_bucket_what_they_say_of_its_log(spark: Any, bucket: Path, whole: Log, tmp_path: Path) -> None:
    where, theirs = str(bucket), str(tmp_path / "theirs.db")
    found = tree_job(Job(spark), where).results
    # Not all publishers have the same, so there is no root to compare with.
    assert (found["root"], found["entries"], "log's root" in found) == (root_of(theirs), 420, False)
    assert tree_job(Job(spark), f"{where}/{OURS}").results["log's root"] == root_of(whole.path)
    found = verify_job(Job(spark), where).results
    assert (found["entries"], found["failed"]) == (420, 0)
    assert diff_job(Job(spark), where, theirs).results["equal"]
    names = [state_job(Job(spark), place, "$.key").results["names"] for place in (where, theirs)]
    shapes = [stats_job(Job(spark), place).results for place in (where, theirs)]
    assert (names[0], shapes[0]) == (names[1], shapes[1])


def test_verify_finds_what_is_not_of_the_checkpoint(spark: Any, bucket: Path, whole: Log, tmp_path: Path) -> None:
    """An entry put in place of another is valid by itself; the tree alone tells."""
    tail = bucket / THEIRS / "1" / "values" / "000.p" / "420"
    values = [row["value"] for row in load(spark, bucket / THEIRS, columns="value")]
    changed = SegmentWriter()
    for number, value in enumerate(values):
        changed.add(values[0] if number == 419 else value)
    tail.write_bytes(changed.to_bytes())
    found = verify_job(Job(spark, str(tmp_path / "out")), str(bucket)).results
    assert (found["entries"], found["failed"]) == (420, 1)
    (bad,) = spark.read.parquet(str(tmp_path / "out" / "quarantine")).collect()
    assert (bad["place"], bad["rule"]) == (f"{THEIRS}/1 seq 420", "file")
    assert "not the VALUE that the publisher's tree has here" in bad["reason"]
    # A scan alone believes the publisher.
    assert not any(row["fault"] for row in load(spark, bucket, columns="fault"))
    tail.unlink()
    (bad,) = [row for row in load(spark, bucket, columns="place,fault") if row["fault"]]
    assert "values/000.p/420 is missing" in bad["fault"]


def followed(spark: Any, bucket: Path, out: Path) -> list[Any]:
    query = follow(spark, str(bucket), str(out), rows_max=150)
    query.awaitTermination()
    assert query.exception() is None
    rows: list[Any] = spark.read.parquet(str(out / "entries")).collect()
    return rows


def test_a_stream_has_each_entry_once_with_late_publishers_and_one_that_rolls_back(spark: Any, ours: Path, tmp_path: Path) -> None:
    place, out = tmp_path / "bucket", tmp_path / "out"
    published(ours, place, 0)
    shutil.copytree(place / OURS, tmp_path / "older")
    published(ours, place, 0, {"more": 1})
    assert len(followed(spark, place, out)) == 401
    assert len(followed(spark, place, out)) == 401
    expected = published(tmp_path / "theirs.db", place, 1, {"from": "them"}, takes=True)
    assert sorted(bytes(row["value"]) for row in followed(spark, place, out)) == sorted(expected)
    shutil.rmtree(place / OURS)
    shutil.copytree(tmp_path / "older", place / OURS)
    published(tmp_path / "theirs.db", place, 1, {"and": "more"})
    rows = followed(spark, place, out)
    rows = followed(spark, place, out)
    good = [row for row in rows if row["verdict"] == "accept"]
    assert len(good) == len({row["id"] for row in good}) == 403
    bad = [(row["place"], row["reason"]) for row in rows if row["verdict"] != "accept"]
    assert [place for place, reason in bad if reason.startswith("rolled-back: ")] == [f"did:key:{OURS}"], "named, and only once"


def test_a_stream_waits_for_a_segment_that_is_missing(spark: Any, ours: Path, tmp_path: Path) -> None:
    """Another program may copy a folder in any order, and so bring a checkpoint before its segments."""
    place, out = tmp_path / "bucket", tmp_path / "out"
    expected = published(ours, place, 0)
    tail = place / OURS / "1" / "values" / "000.p" / "400"
    tail.rename(tmp_path / "late")
    for _ in range(2):
        (row,) = followed(spark, place, out)
        assert (row["place"], row["verdict"]) == (f"did:key:{OURS}", "reject")
        assert row["reason"].startswith("missing: ") and row["reason"].endswith("values/000.p/400 is missing")
    (tmp_path / "late").rename(tail)
    rows = [bytes(row["value"]) for row in followed(spark, place, out) if row["verdict"] == "accept"]
    assert sorted(rows) == sorted(expected)


def test_an_export_grows_by_what_is_new_of_all_publishers(spark: Any, bucket: Path, ours: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "exported")
    results = export_job(Job(spark, out), str(bucket), schema="n bigint").results
    assert (results["entries"], results["failed"], results["run"]) == (420, 0, "run=000000000001")
    assert export_job(Job(spark, out), str(bucket)).results["run"] is None
    published(ours, bucket, 0, {"n": 1000}, takes=True)
    published(tmp_path / "theirs.db", bucket, 1, {"n": 2000}, takes=True)
    results = export_job(Job(spark, out), str(bucket)).results
    assert (results["since"], results["entries"]) == (820, 2)
    assert diff_job(Job(spark), out, str(tmp_path / "theirs.db")).results["equal"]
    # Entries of a log have other numbers.
    with pytest.raises(gossiplog.errors.LocalProtocolError, match="a log was read before, and now a bucket"):
        export_job(Job(spark, out), str(ours))
    (bucket / OURS / "head").write_bytes(b"nothing\n")
    published(tmp_path / "theirs.db", bucket, 1, {"n": 3000})
    results = export_job(Job(spark, out), str(bucket)).results
    assert (results["entries"], results["failed"]) == (1, 1)
    assert results["not read on"][0]["publisher"] == f"did:key:{OURS}"
    assert results["not read on"][0]["fault"].startswith("damaged: ")
    results = export_job(Job(spark, out), str(bucket)).results
    assert (results["run"], results["failed"]) == (None, 1)


class _Refusing(BaseHTTPRequestHandler):
    """Object storage that answers every request with one status."""

    status = 403
    code = b"AccessDenied"

    def do_GET(self) -> None:
        body = b'<?xml version="1.0"?>\n<Error>\n<Code>' + self.code + b"</Code>\n<Message>no\nway</Message></Error>"
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Refusing]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "wrong")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield _Refusing
    _Refusing.status, _Refusing.code = 403, b"AccessDenied"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run `gossiplog spark` where Spark must not be started; return the one line that it prints."""

    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(cli_session, "opened_session", start)

    def run(*arguments: str) -> str:
        ran = CliRunner().invoke(root, ["spark", *arguments, "--json"], prog_name="gossiplog")
        assert ran.exit_code not in (0, 2), ran.stderr
        (line,) = ran.stderr.splitlines()
        error = json.loads(line)["error"]
        return f"{error['message']} | {error.get('hint')}"

    return run


def test_what_is_wrong_with_a_bucket_is_one_line_before_spark_starts(
    said: Callable[..., str], refusing: type[_Refusing], bucket: Path, ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "AccessDenied: no way" in said("verify", "s3://bucket/app")
    assert "AccessDenied: no way" in said("follow", "s3://bucket/app", str(tmp_path / "out"))
    assert "cannot be at a URL" in said("import", str(ours), "s3://bucket/log")
    assert "has test.example.com, not other" in said("stats", str(bucket), "--option", "topic=other.example.com")
    (bucket / OURS / "head").write_bytes(b"nothing\n")
    assert f"{OURS}/head: " in said("tree", str(bucket / OURS))
    (bucket / OURS / "head").unlink()
    assert "nothing is published at" in said("state", str(bucket / OURS), "--by", "$.key")
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    assert "pip install 'gossiplog[bucket]'" in said("export", "s3://bucket/app", str(tmp_path / "out"))


@pytest.mark.slow
def test_storage_that_is_overloaded_is_asked_again_and_then_named(said: Callable[..., str], refusing: type[_Refusing]) -> None:
    refusing.status, refusing.code = 503, b"SlowDown"
    assert "SlowDown: no way" in said("verify", "s3://bucket/app")
