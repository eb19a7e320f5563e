"""Where results go and entries come from: URLs of Spark's file systems, folders of other jobs, checkpoints that are gone."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from remote_support import export_and_verify, grow_an_export, use_other_jobs
from spark_support import REPOSITORY, Log, quick_environment

from gossiplog.cli.app import root
from gossiplog.cli.spark import session as cli_session
from gossiplog.errors import LocalProtocolError
from gossiplog.spark import session
from gossiplog.spark.jobs.export import write_log
from gossiplog.spark.jobs.jobs import Job, export_job, import_job, verify_job


@pytest.fixture
def mounted(spark: Any, tmp_path: Path) -> str:
    """A URL whose files lie in `tmp_path / "mounted"`, in a file system that only Spark can open."""
    (tmp_path / "mounted").mkdir()
    name = tmp_path.name.replace("_", "-")
    spark.sparkContext._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./data", f"file://{tmp_path}/mounted")
    return f"viewfs://{name}/data"


def test_an_export_is_written_to_a_url_and_read_from_it(spark: Any, mounted: str, whole: Log, tmp_path: Path) -> None:
    export_and_verify(spark, mounted, Path(whole.path))
    assert sorted(path.name for path in (tmp_path / "mounted" / "exported").iterdir()) == ["entries", "places", "reports"]
    # Nothing staged is left, and nothing lies in a local folder that is named like the URL.
    assert sorted(path.name for path in (tmp_path / "mounted" / "checked").iterdir()) == ["quarantine", "report", "verdicts"]
    assert not list(Path.cwd().glob("viewfs:*"))


@pytest.mark.slow
def test_other_jobs_work_at_a_url(spark: Any, mounted: str, whole: Log, damaged: Log, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(Path(whole.path).read_bytes())
    folder = tmp_path / "mounted"

    def put(name: str, data: bytes) -> None:
        (folder / name).parent.mkdir()
        (folder / name).write_bytes(data)

    export_and_verify(spark, mounted, path)
    grow_an_export(spark, mounted, path)
    use_other_jobs(spark, mounted, path, damaged.path, put, lambda name: shutil.rmtree(folder / name))
    ran = CliRunner().invoke(root, ["spark", "traces", f"{mounted}/traces/a.jsonl", "--json"], prog_name="gossiplog")
    assert (ran.exit_code, json.loads(ran.stdout)["results"]["messages"]) == (0, 1), ran.stderr


@pytest.mark.slow
def test_all_of_it_works_at_an_s3_server(whole: Log, damaged: Log, tmp_path: Path) -> None:
    program = [
        sys.executable,
        str(Path(__file__).with_name("remote_support.py")),
        whole.path,
        damaged.path,
        str(tmp_path),
        str(tmp_path / "ivy"),
    ]
    environment = quick_environment() | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests" / "support")])}
    ran = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=900, check=False)
    if "UNRESOLVED DEPENDENCIES" in ran.stderr + ran.stdout:
        pytest.skip("the jars of S3 cannot be fetched from Maven's repository")
    assert ran.stdout.endswith("all of it\n"), ran.stderr[-4000:]


def test_what_cannot_be_at_a_url_is_refused(spark: Any, mounted: str, whole: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    entries = spark.createDataFrame([], "value binary")
    refused: list[Callable[[], object]] = [
        lambda: write_log(entries, f"{mounted}/a.db"),
        lambda: write_log(entries, str(tmp_path / "a.db"), staging=f"{mounted}/staging"),
        lambda: import_job(Job(spark, f"{mounted}/imported"), whole.path, str(tmp_path / "a.db")),
        lambda: verify_job(Job(spark), f"{mounted}/a.jsonl"),
        lambda: spark.read.format("gossiplog").load(f"{mounted}/a").count(),
        lambda: export_job(Job(spark, f"{mounted}/a.car"), whole.path),
    ]
    for run in refused:
        with pytest.raises(Exception, match="URL"):
            run()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_what_is_wrong_with_arguments_is_said_before_spark_starts(whole: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(cli_session, "opened_session", start)
    for name in ("followed/checkpoint", "checked"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "checked" / "report.json").touch()
    (tmp_path / "grid.toml").write_text('scenario = "sparse"\nnodes = 3\n')
    for arguments, said in (
        (["sweep", str(tmp_path / "grid.toml")], "nodes: unknown key"),
        (["export", whole.path, str(tmp_path / "checked")], "results of another job"),
        (["export", whole.path, str(tmp_path / "followed")], "results of another job"),
        (["export", whole.path, str(tmp_path / "new"), "--columns", "key,nothing"], "column 'nothing' is none of"),
        (["state", whole.path, "--by", "$["], "is no path"),
        (["state", whole.path, "--by", "sensor"], "sensor is none of the columns"),
        (["state", whole.path, "--by", "concat(author, ')'"], "opened and not closed"),
        (["stats", whole.path, "-o", str(tmp_path / "checked")], "exists"),
        (["import", whole.path, "s3a://bucket/log"], "cannot be at a URL"),
        (["follow", "s3a://bucket/log", str(tmp_path / "live")], "cannot be at a URL"),
        (["import", whole.path, str(tmp_path / "a.db"), "-o", "s3a://bucket/imported"], "cannot be at a URL"),
        (["diff", whole.path, "hdfs://host/a.jsonl"], "is a URL"),
        (["verify", "s3a://bucket/*.jsonl.gz", "--known", "viewfs://host/a.car"], "is a URL"),
        (["import", "viewfs://host/a.car", str(tmp_path / "a.db")], "is a URL"),
        (["state", whole.path, "--by", "$.a", "-o", str(tmp_path / "checked")], "exists"),
        (["export", whole.path, "s3a://bucket/a.jsonl"], "named like a file of entries"),
        (["follow", whole.path, "viewfs://host/a.car"], "named like a file of entries"),
    ):
        ran = CliRunner().invoke(root, ["spark", *arguments, "--json"], prog_name="gossiplog")
        assert ran.exit_code == 1, (arguments, ran.stderr)
        assert said in json.loads(ran.stderr.splitlines()[-1])["error"]["message"], (arguments, ran.stderr)


@pytest.mark.parametrize("memory", ["100m", "2", "much", "-1g", "511m"])
def test_memory_that_spark_cannot_start_with_is_refused(memory: str) -> None:
    with pytest.raises(LocalProtocolError, match="expected a size like 2g"):
        session("local[1]", memory=memory)


def test_faults_of_spark_are_one_line(spark: Any, whole: Log) -> None:
    for arguments, said in (
        (["state", whole.path, "--by", "concat(author, nothing_of_that_name)"], "nothing_of_that_name"),
        (["stats", "s3a://bucket/exported.parquet"], "S3AFileSystem"),
        (["stats", "nosuch://bucket/exported.parquet"], "nosuch"),
    ):
        ran = CliRunner().invoke(root, ["spark", *arguments, "--json"], prog_name="gossiplog")
        lines = ran.stderr.splitlines()
        assert (ran.exit_code, len(lines)) == (1, 1), ran.stderr
        assert said in json.loads(lines[-1])["error"]["message"]
        assert len(lines[-1]) < 1000
