"""An S3 server, moto's, for the length of a module, and a bucket in it for each test."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from ports import free_port

__all__ = ["s3", "s3_server", "wait_for"]


def wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(port)


@pytest.fixture(scope="module")
def s3_server() -> Iterator[int]:
    port = free_port()
    program = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(port)
    yield port
    process.terminate()
    process.wait()


@pytest.fixture
def s3(s3_server: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    import urllib.request

    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:60].strip("-")
    for key, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": f"http://127.0.0.1:{s3_server}",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(key, value)
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{s3_server}/{name}", method="PUT")).close()
    return f"s3://{name}/logs/app"
