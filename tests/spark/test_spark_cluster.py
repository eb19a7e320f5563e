"""A standalone cluster, a master and two workers, reads a bucket at an S3 server.

Each process has credentials of its own, so that the server knows who reads what.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from log_support import SIGNERS, TOPIC, opened
from spark_support import root_of

from gossiplog.bucket import open_storage, publish

pytestmark = pytest.mark.slow

COUNT = 3 * 4096 + 300
KEY = re.compile(r"Credential=([\w-]+)/")


class Server:
    """An S3 server; `read` has what each key has read, as paths below the bucket."""

    def __init__(self) -> None:
        self.read: defaultdict[str, list[str]] = defaultdict(list)

    def recording(self, app: Callable[..., Any]) -> Callable[..., Any]:
        def answer(environ: dict[str, Any], start_response: Any) -> Any:
            found = KEY.search(environ.get("HTTP_AUTHORIZATION", ""))
            if found and environ["REQUEST_METHOD"] == "GET":
                self.read[found[1]].append(environ["PATH_INFO"])
            return app(environ, start_response)

        return answer


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, str]]:
    """The server, and the URL of a bucket on it; this process is `publisher` there."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    recorder = Server()
    server = make_server("127.0.0.1", 0, recorder.recording(DomainDispatcherApplication(create_backend_app)), threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    for key, value in {"ACCESS_KEY_ID": "publisher", "SECRET_ACCESS_KEY": "x", "REGION": "us-east-1", "ENDPOINT": endpoint}.items():
        monkeypatch.setenv(f"AWS_{key}", value)
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT")).close()
    yield recorder, "s3://bucket/app"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cluster(tmp_path: Path, s3: object) -> Iterator[str]:
    """The URL of a master with two workers, `worker-1` and `worker-2`, of one core each."""
    import pyspark

    from gossiplog.spark.java import use_java

    use_java()
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": name, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder)}
        environment |= {"SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "SPARK_WORKER_DIR": str(folder)}
        with (folder / "log").open("wb") as log:
            program = [spark_class, *arguments]
            started.append(subprocess.Popen(program, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True))
        return folder / "log"

    def wait_for(log: Path, pattern: str) -> str:
        for _ in range(600):
            if found := re.search(pattern, log.read_text()):
                return found[0]
            time.sleep(0.1)
        raise TimeoutError(log.read_text()[-2000:])

    try:
        master = start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        url = wait_for(master, r"spark://127\.0\.0\.1:\d+")
        for name in ("worker-1", "worker-2"):
            start(name, "org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", url)
        wait_for(master, r"(?s)Registering worker.*Registering worker")
        yield url
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def test_two_workers_read_a_bucket_and_nothing_passes_through_the_driver(s3: tuple[Server, str], cluster: str, tmp_path: Path) -> None:
    server, url = s3

    async def write() -> None:
        async with opened(tmp_path / "a.db", create=True, topic=TOPIC) as log:
            await log.append_many([{"n": n} for n in range(COUNT)], signer=SIGNERS[0])
            await publish(log, open_storage(url), SIGNERS[0])

    trio.run(write)
    expected = root_of(str(tmp_path / "a.db"))
    (tmp_path / "a.db").unlink()
    (tmp_path / "driver").mkdir()

    def run(*arguments: str) -> Any:
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": "driver", "SPARK_LOCAL_DIRS": str(tmp_path / "driver")}
        settings = ["--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.executor.memory=768m"]
        program = [sys.executable, "-m", "gossiplog", "spark", *arguments, "--master", cluster, "--partitions", "4", *settings, "--json"]
        ran = subprocess.run(program, cwd=tmp_path / "driver", env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr[-4000:]
        return json.loads(ran.stdout)["results"]

    found = run("verify", url)
    assert (found["entries"], found["failed"]) == (COUNT, 0)
    by_key = {key: {path.partition("/1/")[2] for path in paths} for key, paths in server.read.items()}
    segments = {key: {path for path in paths if path.startswith("values/")} for key, paths in by_key.items()}
    assert segments["worker-1"] | segments["worker-2"] == {"values/000", "values/001", "values/002", "values/003.p/300"}
    # One core each, and four parts of a second or so: no worker had all of them.
    assert all(segments[key] for key in ("worker-1", "worker-2"))
    # The driver has looked who has published what, and no more. Nobody has jars for S3.
    assert by_key["driver"] == {""}, "only the list and the head"
    assert all(path.endswith(("/head", "/bucket", "/bucket/")) for path in server.read["driver"])
    found = run("tree", url)
    assert found["root"] == expected == found["log's root"]
