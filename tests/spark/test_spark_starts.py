"""Jobs as users start them: under spark-submit and over Spark Connect. Those with a Spark of their own run beside the other tests."""

import json
import pkgutil
import subprocess

import pytest
from spark_support import Log, Start, root_of


def test_no_module_hides_a_function() -> None:
    """`import gossiplog.spark.NAME` would put a module into the place of what the package exports by that name."""
    from gossiplog import spark

    modules = {module.name for module in pkgutil.iter_modules(spark.__path__)}
    assert not modules & set(spark.__all__)


def finished(start: Start) -> subprocess.CompletedProcess[str]:
    process = start.process
    process.wait(900)
    return subprocess.CompletedProcess(process.args, process.returncode, start.stdout.read_text(), start.stderr.read_text())


@pytest.mark.slow
def test_job_runs_under_spark_submit(submitted: Start) -> None:
    ran = finished(submitted)
    assert ran.returncode == 3, ran.stderr
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["results"]["entries"] == 400
    assert report["results"]["failed"] == json.loads((submitted.out / "report.json").read_text())["results"]["failed"] > 5


@pytest.mark.slow
def test_jobs_run_over_spark_connect(connected: Start, whole: Log) -> None:
    assert_all_ran(connected, whole)


@pytest.mark.slow
def test_jobs_run_over_spark_connect_with_a_server_of_their_own(connected_alone: Start, whole: Log) -> None:
    assert_all_ran(connected_alone, whole)


def assert_all_ran(connected: Start, whole: Log) -> None:
    ran = finished(connected)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found == {"tree": root_of(whole.path), "verify": found["verify"], "diff": 2, "state": 400, "export": 4, "again": 396}
    assert found["verify"] > 5
    assert (connected.out / "quarantine" / "_SUCCESS").exists()
