"""What is done at a URL, in whatever file system it is; run as a program, at an S3 server: `remote_support.py LOG FOLDER IVY`.

An own process, as a JVM takes the jars of a file system when it starts.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from log_support import opened

from gossiplog.errors import LocalProtocolError

PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    # Instead of `bundle`, 650 MB in which the whole of AWS is.
    *[f"software.amazon.awssdk:{name}:2.35.4" for name in ("s3", "s3-transfer-manager", "sts")],
)
TRACE = (
    b'{"time_s":0,"kind":"publish","node":"1","message":"m"}',
    b'{"time_s":1,"kind":"deliver","node":"2","message":"m"}',
)


def append(path: Path, count: int) -> None:
    async def insert() -> None:
        async with opened(path) as log:
            await log.append_many([{"number": number} for number in range(count)])

    trio.run(insert)


def export_and_verify(spark: Any, url: str, path: Path) -> None:
    """Export a log of 400 entries to a URL, leave half a run there, and verify the export."""
    from gossiplog.spark.jobs.jobs import Job, export_job, verify_job

    results = export_job(Job(spark, f"{url}/exported"), str(path), schema="number bigint").results
    assert (results["run"], results["entries"]) == ("run=000000000001", 400)
    # As a process does that is killed while Spark's committer is at work.
    killed = spark.read.parquet(f"{url}/exported/entries/run=000000000001").limit(5)
    killed.write.parquet(f"{url}/exported/entries/run=000000000401/of_topic=test.example.com/clocks=0")
    found = verify_job(Job(spark, f"{url}/checked"), f"{url}/exported").results
    assert (found["entries"], found["failed"]) == (400, 0)


def grow_an_export(spark: Any, url: str, path: Path) -> None:
    """Add to the export that `export_and_verify` left."""
    from gossiplog.spark.jobs.jobs import Job, diff_job, export_job

    job = Job(spark, f"{url}/exported")
    assert export_job(job, str(path)).results["run"] is None
    append(path, 3)
    assert export_job(job, str(path)).results | {"fields": None} == {
        "since": 400, "run": "run=000000000401", "entries": 3, "failed": 0, "first_seq": 401, "last_seq": 403, "fields": None
    }  # fmt: skip
    assert diff_job(Job(spark), str(path), f"{url}/exported").results["equal"]
    numbers = spark.read.parquet(f"{url}/exported/entries").where("seq > 400").select("fields.number").collect()
    assert sorted(row["number"] for row in numbers) == [0, 1, 2]


def use_other_jobs(
    spark: Any, url: str, path: Path, damaged: str, put: Callable[[str, bytes], object], remove: Callable[[str], object]
) -> None:
    """Compact an export, follow a log, read traces, and keep a quarantine, at a URL."""
    from gossiplog.spark.jobs.follow import follow
    from gossiplog.spark.jobs.jobs import Job, export_job, import_job, traces_job, tree_job, verify_job

    export_job(Job(spark, f"{url}/compacted"), f"{url}/exported")
    append(path, 2)
    results = export_job(Job(spark, f"{url}/compacted"), str(path)).results
    assert (results["since"], results["entries"], results["fields"]) == (403, 2, "struct<number:bigint>")
    assert tree_job(Job(spark), f"{url}/compacted").results["root"] == tree_job(Job(spark), str(path)).results["root"]
    copy = import_job(Job(spark), f"{url}/compacted", str(path.with_name("copy.db")), topic="test.example.com").results
    assert copy == {"added": 405, "known": 0, "failed": 0}
    with pytest.raises(LocalProtocolError, match="results of another job"):
        export_job(Job(spark, f"{url}/checked"), str(path))
    with pytest.raises(LocalProtocolError, match="exists"):
        verify_job(Job(spark, f"{url}/checked"), f"{url}/exported")
    bad = export_job(Job(spark, f"{url}/damaged"), damaged).results
    assert (bad["entries"], bad["failed"], spark.read.parquet(f"{url}/damaged/quarantine").count()) == (396, 4, 4)

    follow(spark, str(path), f"{url}/live").awaitTermination()
    assert verify_job(Job(spark), f"{url}/live").results["entries"] == 405
    follow(spark, str(path), f"{url}/live").awaitTermination()
    remove("live/checkpoint")
    with pytest.raises(LocalProtocolError, match="no checkpoint any more"):
        follow(spark, str(path), f"{url}/live")

    put("traces/a.jsonl", b"".join(line + b"\n" for line in TRACE))
    for traces in ("traces", "traces/a.jsonl", "traces/*.jsonl"):
        assert traces_job(Job(spark), f"{url}/{traces}").results["messages"] == 1


def main() -> None:
    """Do all of it at an S3 server in this process."""
    import logging

    import boto3
    from moto.server import ThreadedMotoServer

    from gossiplog.spark import session

    log, damaged, folder, ivy = sys.argv[1:]
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    bucket = boto3.resource("s3", endpoint_url=endpoint).create_bucket(Bucket="bucket")
    config = {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.jars.excludes": "software.amazon.awssdk:bundle",
        "spark.jars.ivy": ivy,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.sql.shuffle.partitions": "1",
        # Of a committer that renames, which here is to copy.
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.sql.codegen.wholeStage": "false",
    }
    spark = session("local[2]", memory="1g", config=config)
    path = Path(folder) / "a.db"
    path.write_bytes(Path(log).read_bytes())

    def put(name: str, data: bytes) -> None:
        bucket.put_object(Key=name, Body=data)

    export_and_verify(spark, "s3a://bucket", path)
    grow_an_export(spark, "s3a://bucket", path)
    use_other_jobs(spark, "s3a://bucket", path, damaged, put, lambda name: bucket.objects.filter(Prefix=name).delete())
    spark.stop()
    server.stop()
    print("all of it")


if __name__ == "__main__":
    main()
